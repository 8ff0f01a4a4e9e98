"""Startup timeouts: replicas whose agent should have reported by now.

No event reports such a failure. The agent reports that a replica is ready before each incarnation,
one execution of its program.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import is_held, is_ready
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.vm import LossCause, Vm, VmStatus
from trainmaster.core.reconcile.desired import DesiredVm, desired_vms, match_vms
from trainmaster.core.reconcile.steps import ReportLoss
from trainmaster.core.timeouts import STARTUP_TIMEOUT_S, TAKE_TIMEOUT_S


def find_startup_timeouts(
    state: State, vms: tuple[Vm, ...], now: datetime, after_s: float = STARTUP_TIMEOUT_S
) -> tuple[ReportLoss, ...]:
    """Return the replicas whose VM has carried the directive of the current incarnation for
    `after_s`.

    The time counts from the latest of these moments: the incarnation or the held round was ordered;
    the VM became RUNNING; in a job of several TPU slices, the last slice became RUNNING. Neither a
    slow create nor waiting for capacity is therefore a timeout. `state` holds the whole attempt.
    """
    desired = desired_vms(state.job, state.replicas, now)
    vm_by_name = match_vms(state.job, desired, vms)
    slices_started = [vm.started_at for vm in vms if vm.started_at and state.job.plan.slices]
    timeouts = []
    for target in desired:
        vm = vm_by_name.get(target.name)
        if vm is None or not _is_starting(state.job, target, vm):
            continue
        ordered_at = target.replica.ordered_at
        if ordered_at is None or vm.started_at is None:
            continue
        moments = [ordered_at, vm.started_at, *slices_started]
        if is_held(state.job, target.replica.replica_id) and state.job.round.ordered_at:
            moments.append(state.job.round.ordered_at)
        if now - max(moments) >= timedelta(seconds=_timeout_s(state.job, target.replica, after_s)):
            timeouts.append(ReportLoss(target.replica, target.name, vm, LossCause.STARTUP_TIMEOUT))
    return tuple(timeouts)


def is_taken_over(job: Job, replica: Replica) -> bool:
    """Whether the replica's VM was taken over from another job, and has not reported since: it has
    booted, and its agent wrote a heartbeat a moment before.
    """
    has_reported = replica.vm_since is not None
    return job.tenure > 1 and replica.instance_id is not None and not has_reported


def _timeout_s(job: Job, replica: Replica, after_s: float) -> float:
    """Return the seconds after which a replica without a report is lost.

    A VM that was taken over has booted, so it needs less. A caller that asks for another time than
    the usual one, such as that of a set-up under way, gets it.
    """
    is_usual = after_s == STARTUP_TIMEOUT_S
    return TAKE_TIMEOUT_S if is_usual and is_taken_over(job, replica) else after_s


def _is_starting(job: Job, target: DesiredVm, vm: Vm) -> bool:
    """Whether the VM runs, was directed to this incarnation, and has not reported it ready."""
    if vm.status is not VmStatus.RUNNING or vm.vm_generation != target.replica.vm_generation:
        return False
    if is_ready(job, target.replica):
        return False
    return vm.directive is not None and vm.directive.order == target.directive.order
