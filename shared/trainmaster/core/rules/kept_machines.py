"""Kept machines: which ends of a job keep its VMs, which jobs may take them, and when they are
released. Jobs of one owner save the minutes of creating and setting up VMs.

    job with keepMachines ends ── by itself, by its program, by its user ──► kept
                               └─ any other end: deadline, capacity, machines ──► deleted
    job with keepMachines starts ── a kept set fits ──► takes it
                                 └─ none does ──► requests VMs, and says why

A machine set is the VMs that one job created. They have the name of that job, whichever job holds
them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from trainmaster.core.actions import (
    CancelJob,
    DropMachines,
    FailJob,
    ReleaseMachines,
    SucceedJob,
)
from trainmaster.core.decisions import Decision, Reason, Rule, provisional, stale
from trainmaster.core.events import (
    ExitCause,
    MachinesLost,
    MachinesReleased,
    ReplicaExited,
    VmLost,
)
from trainmaster.core.model.fit import ROLE, fit_of, may_share
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.machine_set import KeptVm, MachineSet, ReleaseCause
from trainmaster.core.rules.vm_loss import FAULTY_ENDS
from trainmaster.core.timeouts import CHAIN_S

FAULTS: Final = (
    Reason.INTERNAL_BUDGET_SPENT,
    Reason.SETUP_FAILED,
    Reason.STALLED,
    Reason.VM_RESTARTED,
    Reason.UNFIT,
)
"""Reasons of a failure that may be a fault of the machines: they are not kept."""
SHOWN_MAX: Final = 3
"""Replicas whose lost VMs a sentence names."""


def keeps_machines(job: Job, decision: Decision) -> bool:
    """Whether the machines of the job are kept after it has ended by this decision.

    If the owner of a job is unknown, only another trial of its tuning job may take its machines.
    """
    if not job.plan.keep_s or not may_share(job):
        return False
    match decision.action:
        case SucceedJob():
            return True
        case FailJob():
            return decision.action.replica is not None and decision.reason not in FAULTS
        case CancelJob():
            return decision.reason in (Reason.CANCELLED_BY_USER, Reason.TRIAL_STOPPED)
        case _:
            return False


def judge_release(state: State, event: MachinesReleased, now: datetime) -> Decision:
    """Release the machines that the job keeps, unless another job has taken them."""
    machines = state.machine_set
    if machines is None or not state.keeps_machines:
        return stale(Reason.NOTHING_TO_DO, "The job keeps no machines.")
    if event.cause is ReleaseCause.DEADLINE and now < machines.until:
        return provisional("The machines are kept for longer.")
    text = f"{_release_words(event)}: the kept machines are deleted."
    return Decision(Rule.LIFECYCLE, Reason.MACHINES_RELEASED, text, ReleaseMachines())


def judge_lost_machines(state: State, event: MachinesLost, now: datetime) -> Decision:
    """Keep the other machines, unless these are kept no longer."""
    del now
    machines = state.machine_set
    kept = {vm.instance_id for vm in machines.vms} if machines else set()
    if machines is None or not state.keeps_machines or kept.isdisjoint(event.instance_ids):
        return stale(Reason.NOTHING_TO_DO, "The machines are kept no longer.")
    return _drop(machines, event.instance_ids)


def judge_loss_while_kept(state: State, event: VmLost | ReplicaExited) -> Decision | None:
    """Return the decision about the loss of a VM that the ended job keeps, or about a fault of it;
    None: the event is about neither.

    A VM that is about to stop, as for host maintenance, still runs: no listing shows its loss.
    """
    machines = state.machine_set
    if machines is None or not state.keeps_machines:
        return None
    if isinstance(event, ReplicaExited) and event.cause not in FAULTY_ENDS:
        return None
    subject = event.subject
    lost = KeptVm(subject.replica_id, subject.vm.instance_id, subject.vm_generation)
    if lost not in machines.vms:
        return None
    return _drop(machines, (lost.instance_id,), _fault_words(event))


def _fault_words(event: VmLost | ReplicaExited) -> str:
    """Return the fault that an exit reports, in words; empty: the VM is lost."""
    if isinstance(event, VmLost):
        return ""
    # The other exits are reported with the last lines of the program.
    found = "" if event.cause is ExitCause.VM_STOPPING else event.tail.strip()
    return f"{FAULTY_ENDS[event.cause]} ({found})" if found else FAULTY_ENDS[event.cause]


def _drop(machines: MachineSet, lost: tuple[str, ...], fault: str = "") -> Decision:
    """Return the decision to keep these VMs no longer. `fault`: of the only one."""
    who = [vm.replica_id.words for vm in machines.vms if vm.instance_id in lost]
    shown = ", ".join(who[:SHOWN_MAX])
    more = f" and {len(who) - SHOWN_MAX} others" if len(who) > SHOWN_MAX else ""
    left = len(machines.vms) - len(who)
    what = (
        f"The kept machine of {shown} {fault}"
        if fault
        else f"Lost while kept: the machines of {shown}{more}"
    )
    text = f"{what}. Still kept: {left or 'none'}."
    return Decision(Rule.LIFECYCLE, Reason.MACHINES_LOST, text, DropMachines(lost))


def _release_words(event: MachinesReleased) -> str:
    match event.cause:
        case ReleaseCause.DEADLINE:
            return "No job has taken them in time"
        case ReleaseCause.USER:
            return f"Released by {event.by or 'a user'}"
        case ReleaseCause.CAPACITY:
            return f"{event.by or 'Another job'} needs what they use"
        case ReleaseCause.TUNING_ENDED:
            return "The tuning job has ended"
        case _:
            assert_never(event.cause)


def candidate_in(machines: MachineSet, job: Job, now: datetime) -> int | str:
    """Return the candidate of the job that these machines fit; or why none does, in words."""
    if not may_share(job):
        return "the submitter of this job is not known"
    longest = timedelta(seconds=job.plan.fuse_s - CHAIN_S)  # the longest that the job may run
    if now + longest > machines.fuse_at:
        return (
            f"its VMs end by {machines.fuse_at:%Y-%m-%d %H:%M} UTC, and this job may run longer"
            " than that"
        )
    differences: list[str] = []
    for candidate, zone in enumerate(job.plan.where.zones):
        if zone == machines.zone:
            difference = _difference(machines, replace(job, plan=job.plan.at(candidate)))
            if difference is None:
                return candidate
            differences.append(difference)
    return differences[0] if differences else f"it is in {machines.zone}"


def _difference(machines: MachineSet, job: Job) -> str | None:
    """Return the first difference between the machines and what the job needs; None: they fit."""
    has = {item.name: item.value for item in machines.fit}
    needs = {item.name: item.value for item in fit_of(job)}
    common = [name for name in needs if name in has]
    for name in common:
        if has[name] != needs[name]:
            return f"{name} is {has[name]}, and that of this job {needs[name]}"
    is_any_role = any(name.startswith(ROLE) for name in common)
    return None if is_any_role else "it has none of the roles of this job"
