"""Rounds: whether a held round may begin, whether a running one must end, and whether it can grow.

A round is one common run of the members of a synchronous job. After one of them has ended, the next
round is held: the members wait until all of them are ready. An elastic job goes on without members
whose VMs Google refuses (`Round.without`); a round can grow when their VMs exist at last.

A round grows in two steps. All running members are asked to save and to stop, so that the next
round begins with the members that join. If none has stopped after the time for the save, the round
is ended for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from trainmaster.core.model.job import State
from trainmaster.core.model.members import (
    awaited_for_start,
    goes_on,
    is_ready,
    is_refused,
    joining_members,
    members,
)
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import SaveCause, SaveRequest
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.core.reconcile.steps import (
    Await,
    Create,
    Direct,
    Readiness,
    ReportGrowth,
    ReportLoss,
    ReportMissingMember,
    ReportSaveOver,
    Step,
)
from trainmaster.core.timeouts import BOOT_MAX, GROWTH_MIN, SAVE_MAX


def missing_members(state: State) -> tuple[Step, ...]:
    """Return the report of a member that awaits its VM in a running round."""
    job = state.job
    if job.round.is_held or job.state.is_terminal:
        return ()
    for member in members(state):
        if member.awaits_vm and member.replica_id not in job.round.without:
            return (ReportMissingMember(member),)
    return ()


def growth(
    state: State, vms: tuple[Vm, ...], steps: Iterable[Step], now: datetime
) -> tuple[Step, ...]:
    """Return the report that members can join the next round, unless others may follow within
    moments; or the report that the round must end for them, because no program has stopped after
    the request to save.

    `state` holds the whole attempt; `steps` are those planned.
    """
    job = state.job
    round_ = job.round
    saving = round_.saving
    joining = joining_members(state)
    ids = {member.replica_id for member in joining}
    is_clear = all(ids.isdisjoint(_subjects(step)) for step in steps)
    is_running = not (job.state.is_terminal or round_.is_held or round_.ends_job)
    saves_together = job.plan.saving.on_notice is SaveOnNotice.GANG
    if not is_running or not joining or not is_clear or not saves_together:
        return ()
    if saving is not None and saving.why is SaveCause.GROWTH and _has_awaited(joining, saving):
        return (ReportSaveOver(saving.number),) if now >= saving.until else ()
    if saving is not None and now - saving.at < SAVE_MAX:
        return ()
    if round_.grown_at is not None and now - round_.grown_at < GROWTH_MIN:
        return ()
    others = [vm for vm in vms if vm.replica_id in round_.without and vm.replica_id not in ids]
    boots = any(vm.created_at and now - vm.created_at < BOOT_MAX for vm in others)
    return () if boots else (ReportGrowth(),)


def _has_awaited(joining: Iterable[Replica], saving: SaveRequest) -> bool:
    """Whether a member that can join was ready when the others were asked to save for it."""
    return any(member.ready_at is not None and member.ready_at <= saving.at for member in joining)


def readiness(state: State, vms: Sequence[Vm], steps: Iterable[Step], now: datetime) -> Readiness:
    """Return how far the members of the held round are.

    `state` holds the whole attempt; `vms` are all VMs of the job, and `steps` are those planned.

    A step that concerns a VM of a member keeps the round from beginning: the VM is missing, lost,
    or given up and may still run.
    """
    job = state.job
    all_members = members(state)
    if not all_members or not job.round.is_held or job.state.is_terminal:
        return Readiness.NOT_HELD
    waiting = [member for member in all_members if not is_ready(job, member)]
    if not waiting and awaited_for_start(state):
        return Readiness.AWAITED
    if not all(member.awaits_vm for member in waiting):
        return Readiness.AWAITED
    missing = {member.replica_id for member in waiting}
    if missing and not _may_begin_without(state, missing, vms, now):
        return Readiness.REPORTED  # every agent has, but these members have no VM
    ids = {member.replica_id for member in all_members}
    is_clear = all(
        ids.isdisjoint(_subjects(step)) or _is_of_next_vm(state, step, missing) for step in steps
    )
    return Readiness.READY if is_clear else Readiness.AWAITED


def _may_begin_without(
    state: State, missing: set[ReplicaId], vms: Sequence[Vm], now: datetime
) -> bool:
    """Whether the held round of an elastic job need not wait for these members: the last one went
    without them, or their VMs were refused, or do not report. A VM that boots is waited for.
    """
    round_ = state.job.round
    elastic = state.job.plan.restarts.elastic
    if elastic is None or not goes_on(state, missing):
        return False
    if missing <= set(round_.without):
        return True
    if any(_boots(state, vm, now) for vm in vms if vm.replica_id in missing):
        return False
    waited = now - round_.ordered_at if round_.ordered_at else timedelta()
    is_refused_for_long = is_refused(state.job) and waited >= timedelta(seconds=elastic.after_s)
    return is_refused_for_long or waited >= BOOT_MAX


def _boots(state: State, vm: Vm, now: datetime) -> bool:
    """Whether the VM is its replica's next one, and may report soon."""
    replica = state.find(state.job.attempt, vm.replica_id)
    is_next = replica is not None and vm.vm_generation == replica.vm_generation
    is_up = vm.status in (VmStatus.CREATING, VmStatus.RUNNING)
    is_young = vm.created_at is not None and now - vm.created_at < BOOT_MAX
    return is_next and is_up and is_young


def _is_of_next_vm(state: State, step: Step, missing: set[ReplicaId]) -> bool:
    """Whether the step only concerns new VMs of missing members. Nothing has run on them."""
    if isinstance(step, Create):
        return missing.issuperset(step.replica_ids)
    if not isinstance(step, Await | Direct) or step.vm.replica_id not in missing:
        return False
    replica = state.find(state.job.attempt, step.vm.replica_id)
    return replica is not None and step.vm.vm_generation == replica.vm_generation


def _subjects(step: Step) -> tuple[ReplicaId, ...]:
    """Return the replicas whose VMs the step concerns."""
    if isinstance(step, Create):
        return step.replica_ids
    if isinstance(step, ReportLoss | ReportMissingMember):
        return (step.replica.replica_id,)
    if isinstance(step, ReportGrowth | ReportSaveOver):
        return ()
    return (step.vm.replica_id,)
