"""What is left to do so that the observed VMs equal the desired ones.

    state ──► desired VMs ──► slice addresses ──┐
    vms (listed) ───────────────────────────────┴──► VM steps ┐
    state + vms + now ──► timeouts, readiness of the round ───┴──► Steps

Everything here is pure. `trainmaster.flows.provisioning.reconciliation` executes the steps and
plans again until no step is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import (
    current_incarnation,
    goes_on,
    is_member,
    is_refused,
    may_run,
)
from trainmaster.core.model.purchase import PriceClass
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.desired import DesiredVm, desired_vms, match_vms, price_of_vm
from trainmaster.core.reconcile.rounds import growth, missing_members, readiness
from trainmaster.core.reconcile.slice_addresses import with_slice_addresses
from trainmaster.core.reconcile.startup_timeout import find_startup_timeouts
from trainmaster.core.reconcile.steps import (
    Await,
    Create,
    Delete,
    Direct,
    HandOver,
    ReportLoss,
    Step,
    Steps,
)
from trainmaster.core.rules.capacity_backoff import is_too_early

CREATED_ANSWERS_MAX: Final = 2
"""How often an insert may be answered "created" while its VM is not listed.

A listing may lag behind once.
"""

_NO_INSERTS: Final[Mapping[str, int]] = MappingProxyType({})


def plan(
    state: State,
    vms: tuple[Vm, ...],
    now: datetime,
    created: Mapping[str, int] = _NO_INSERTS,
    *,
    may_start: bool = True,
) -> Steps:
    """Return the steps of the next cycle of the reconciliation.

    `state` holds the whole attempt; `vms` are all VMs of the job. `created` counts, by request key,
    the inserts of this delivery that Compute Engine answered with "created". `may_start`: whether
    programs of replicas that are judged alone may start on their VMs; False: a VM that such a
    replica has left may still run.
    """
    job = state.job.placed
    state = replace(state, job=job)
    missing = missing_members(state)
    if missing:
        return Steps(missing)
    desired = with_slice_addresses(job, desired_vms(job, state.replicas, now), vms)
    steps = vm_steps(job, desired, vms, state.replicas, may_start=may_start)
    steps = _with_vanished_vms(steps, state, created)
    steps += find_startup_timeouts(state, vms, now)
    ready = readiness(state, vms, steps, now)
    steps += growth(state, vms, steps, now)
    # A VM that is created now would end itself: the next sweep computes the cost, and decides.
    is_unpaid = job.paid_until is not None and now >= job.paid_until
    if not is_too_early(job, now) and not is_unpaid:
        return Steps(steps, readiness=ready)
    allowed = tuple(
        step
        for step in steps
        if not isinstance(step, Create) or (_is_urgent(job, step) and not is_unpaid)
    )
    return Steps(allowed, readiness=ready)


def _is_urgent(job: Job, create: Create) -> bool:
    """Whether the VMs are required, and the job waits only for optional ones."""
    return job.placement.only_optional and not create.partial


def delete_newer(state: State, vms: tuple[Vm, ...]) -> tuple[Step, ...]:
    """Return the deletions of the VMs that a later state has ordered.

    Usually `state` is out of date then.

    A state that is read after the VMs were listed contains every order that led to them, unless the
    database was restored to an earlier time. The state then ignores what their agents report, and
    the agents ignore its directives. `state` holds the whole attempt.
    """
    replicas = {replica.replica_id: replica for replica in state.replicas}
    deletions = []
    for vm in vms:
        replica = replicas.get(vm.replica_id)
        if replica is not None and _is_newer(vm, state.job.placed, replica):
            deletions.append(_delete_or_await(vm))
    return tuple(deletions)


def _is_newer(vm: Vm, job: Job, replica: Replica) -> bool:
    """Whether a later state has ordered the VM, its incarnation, or that it may run. A SAVE may be
    found where the state orders RUN: the time of the request is over.
    """
    found = vm.directive
    ordered = (0, 0, 0, False)
    if found is not None:
        is_begun = found.action is not DirectiveAction.HOLD
        ordered = (found.tenure, found.attempt, found.incarnation, is_begun)
    known = (
        job.tenure,
        replica.attempt,
        current_incarnation(job, replica),
        may_run(job, replica),
    )
    return vm.vm_generation > replica.vm_generation or ordered > known


def vm_steps(
    job: Job,
    desired: tuple[DesiredVm, ...],
    vms: tuple[Vm, ...],
    replicas: tuple[Replica, ...] = (),
    *,
    may_start: bool = True,
) -> tuple[Step, ...]:
    """Return the steps from `vms` to `desired`; empty if they are equal.

    `replicas` are those of the whole attempt. `may_start`: as in `plan`.

    A VM with a higher VM generation, or a later directive, than desired was made by a delivery that
    had read a newer state: it is left alone (but see `delete_newer`). If two VMs share a name (a
    late insert in an abandoned zone), the extra one is deleted, and the program starts when it no
    longer runs. Replicas that wait for slice addresses yield Await only if there is no other step.
    """
    vm_by_name = match_vms(job, desired, vms)
    idle = _idle_vms(job, replicas)
    extra = [vm for vm in vms if vm_by_name.get(vm.name) is not vm and vm.instance_id not in idle]
    steps = _deletions(job, extra, replicas)
    # Names whose extra VM must end before a program starts on the desired VM of that name
    others = {vm.name for vm in extra if _may_run_programs(vm)}
    waiting: list[Step] = []
    missing: dict[_Insert, list[DesiredVm]] = {}
    begins_without_missing = job.round.is_held and is_refused(job) and goes_on(State(job, replicas))
    for target in desired:
        vm = vm_by_name.get(target.name)
        if _must_create(job, target, vm):
            if target.is_paused:
                continue
            replica = target.replica
            insert = _Insert(
                replica.replica_id.task_type,
                replica.vm_generation,
                target.directive,
                price_of_vm(job.plan, replica),
                not begins_without_missing and _is_required(job, replica),
            )
            missing.setdefault(insert, []).append(target)
        elif vm is None:
            steps.append(ReportLoss(target.replica, target.name, vm=None))
        elif (may_start and vm.name not in others) or not _is_start(job, target, vm):
            step = _step_for(job, target, vm)
            if step is not None:
                steps.append(step)
            elif target.awaits_slices:
                waiting.append(Await(vm))
    creates = [
        _create(job, targets, partial=not insert.is_required) for insert, targets in missing.items()
    ]
    steps.extend(_scarce_first(job, _required_first(creates)))
    return tuple(steps or waiting)


class _Insert(NamedTuple):
    """The properties that all VMs of one bulk insert share."""

    task_type: TaskType
    vm_generation: int
    directive: Directive
    price: PriceClass
    is_required: bool
    """Whether all of them must be created, or none."""


def _deletions(job: Job, extra: Sequence[Vm], replicas: Sequence[Replica]) -> list[Step]:
    """Return the deletions of VMs that are not desired, but of none that a later state ordered."""
    generations = {
        vm_name(job.set_id, replica.replica_id): replica.vm_generation for replica in replicas
    }
    return [
        _delete_or_await(vm)
        for vm in extra
        if job.state.is_terminal or vm.vm_generation <= generations.get(vm.name, vm.vm_generation)
    ]


def _idle_vms(job: Job, replicas: tuple[Replica, ...]) -> frozenset[str]:
    """Return the ids of the VMs of replicas that have completed, if the job keeps its machines: a
    late deletion would hit a VM that the next job has taken.
    """
    if job.machines is None or job.state.is_terminal:
        return frozenset()
    return frozenset(
        replica.instance_id
        for replica in replicas
        if replica.state is ReplicaState.COMPLETED and replica.instance_id
    )


def _is_required(job: Job, replica: Replica) -> bool:
    """Whether the VM is required: the job may not run without the replica, and the round does not
    go without it.
    """
    if replica.replica_id in job.round.without:
        return False
    return is_required(job.plan, replica.replica_id)


def _required_first(creates: list[Create]) -> list[Create]:
    """Return the inserts without those of optional replicas, as long as required ones are missing.

    Optional VMs would otherwise take the capacity that the job needs in order to run at all.
    """
    required = [create for create in creates if not create.partial]
    return required or creates


def _scarce_first(job: Job, creates: list[Create]) -> list[Create]:
    """Return only the inserts of VMs with accelerators, if any, after a capacity error: no other VM
    is paid for while they are missing.
    """
    if job.placement.since is None:
        return creates
    return [create for create in creates if create.group.accelerator or create.group.tpu] or creates


def _step_for(job: Job, target: DesiredVm, vm: Vm) -> Step | None:
    """Return the next step for this VM; None if it is as desired, or belongs to a newer state."""
    if vm.vm_generation > target.replica.vm_generation:
        return None
    is_outdated = vm.vm_generation < target.replica.vm_generation
    if is_outdated or vm.zone != job.zone:
        return _delete_or_await(vm)
    if vm.status in (VmStatus.STOPPED, VmStatus.STOPPING, VmStatus.REFUSED):
        return ReportLoss(target.replica, target.name, vm, vm.loss)
    is_directed = vm.directive is not None and vm.directive.order >= target.directive.order
    if not is_directed:  # the metadata of a queued request cannot be changed: request it again
        return _direct(job, target, vm)
    if vm.status in (VmStatus.CREATING, VmStatus.QUEUED):
        return Await(vm)
    return _extension(target.directive, vm)


def _extension(desired: Directive, vm: Vm) -> Step | None:
    """Return the step that lets the VM run for longer; None: it may, or belongs to a newer state.

    Only the time changes, and not the directive: it may still ask to save when the desired one no
    longer does.
    """
    found = vm.directive
    is_current = found is not None and found.execution == desired.execution
    if found is None or not is_current or found.paid_until >= desired.paid_until:
        return None
    return Direct(vm, replace(found, paid_until=desired.paid_until))


def _may_run_programs(vm: Vm) -> bool:
    return vm.status in (VmStatus.CREATING, VmStatus.RUNNING, VmStatus.STOPPING)


def _is_start(job: Job, target: DesiredVm, vm: Vm) -> bool:
    """Whether the VM gets its first program, and no round decides about that."""
    is_alone = not is_member(job.plan, target.replica.replica_id)
    has_run = vm.directive is not None and vm.directive.action is not DirectiveAction.HOLD
    return is_alone and target.directive.action is DirectiveAction.RUN and not has_run


def _must_create(job: Job, target: DesiredVm, vm: Vm | None) -> bool:
    """Whether the VM is missing, or Cloud TPU's queue refused the very request that is still
    desired.
    """
    if vm is None:
        return target.may_create
    is_same_request = vm.vm_generation == target.replica.vm_generation and vm.zone == job.zone
    return vm.status is VmStatus.REFUSED and is_same_request and target.may_create


def _create(job: Job, targets: list[DesiredVm], *, partial: bool) -> Create:
    first = targets[0]
    return Create(
        group=job.plan.group(first.replica.replica_id.task_type),
        zone=job.zone,
        vm_generation=first.replica.vm_generation,
        directive=first.directive,
        replica_ids=tuple(target.replica.replica_id for target in targets),
        names=tuple(target.name for target in targets),
        round=job.placement.round,
        price=price_of_vm(job.plan, first.replica),
        partial=partial,
    )


def _direct(job: Job, target: DesiredVm, vm: Vm) -> Step:
    """Return the step that gives the VM its directive, and all its metadata if another job had the
    VM before.
    """
    if vm.status is VmStatus.QUEUED:
        return _delete_or_await(vm)
    if vm.directive is not None and vm.directive.tenure < target.directive.tenure:
        return HandOver(vm, _create(job, [target], partial=False))
    return Direct(vm, target.directive)


def _delete_or_await(vm: Vm) -> Step:
    return Await(vm) if vm.status is VmStatus.STOPPING else Delete(vm)


def _with_vanished_vms(
    steps: tuple[Step, ...], state: State, created: Mapping[str, int]
) -> tuple[Step, ...]:
    """Replace each insert whose VMs were created, but no longer exist, by reports of their loss.

    Compute Engine answers a repeated request id with the result of the first request, and creates
    nothing. Only the next VM generation has another request id.
    """
    result: list[Step] = []
    for step in steps:
        if (
            not isinstance(step, Create)
            or created.get(step.request_key(state.job.job_id), 0) < CREATED_ANSWERS_MAX
        ):
            result.append(step)
            continue
        for replica_id, name in zip(step.replica_ids, step.names, strict=True):
            replica = state.find(state.job.attempt, replica_id)
            if replica is not None:
                result.append(ReportLoss(replica, name, vm=None))
    return tuple(result)
