"""Rounds: whether a held round may begin, and whether one runs that must not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import is_ready, members, must_have_stopped
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import STORED_BEFORE_ROUNDS
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.steps import Create, Readiness, ReportLoss, ReportMissingMember, Step


def missing_members(state: State) -> tuple[Step, ...]:
    """Return the report of a member that awaits its VM in a running round. Only in the first one, members start as
    their VMs come."""
    job = state.job
    is_first = (job.attempt, job.round.number) == (1, 1) or job.round.number == STORED_BEFORE_ROUNDS
    if is_first or job.round.is_held or job.state.is_terminal:
        return ()
    return tuple(ReportMissingMember(member) for member in members(state) if member.awaits_vm)[:1]


def readiness(state: State, vms: tuple[Vm, ...], steps: Iterable[Step], now: datetime) -> Readiness:
    """Return how far the members of the held round are. `state` holds the whole attempt; `steps` are those planned.

    A step that concerns a VM of a member keeps the round from beginning: the VM is missing, lost, or given up and may
    still run.
    """
    job, all_members = state.job, members(state)
    if not all_members or not job.round.is_held or job.state.is_terminal:
        return Readiness.NOT_HELD
    vm_by_name = {vm.name: vm for vm in vms}
    waiting = [
        member
        for member in all_members
        if not is_ready(job, member)
        and not _has_stopped(job, member, vm_by_name.get(vm_name(job.job_id, member.replica_id)), now)
    ]
    if waiting:
        return Readiness.REPORTED if all(member.awaits_vm for member in waiting) else Readiness.AWAITED
    ids = {member.replica_id for member in all_members}
    is_clear = all(ids.isdisjoint(_subjects(step)) for step in steps)
    return Readiness.READY if is_clear else Readiness.AWAITED


def _has_stopped(job: Job, member: Replica, vm: Vm | None, now: datetime) -> bool:
    """Whether an agent that does not report under `hold` was told to hold, and must have stopped by now."""
    if vm is None or vm.directive is None or not must_have_stopped(job, member, now):
        return False
    return vm.directive.order == Directive(job.attempt, job.round.number, DirectiveAction.HOLD).order


def _subjects(step: Step) -> tuple[ReplicaId, ...]:
    """Return the replicas whose VMs the step concerns."""
    if isinstance(step, Create):
        return step.replica_ids
    if isinstance(step, ReportLoss | ReportMissingMember):
        return (step.replica.replica_id,)
    return (step.vm.replica_id,)
