"""Execution of the steps that bring the observed VMs to the desired ones: calls to the fleet, or
events to record.

`reconciliation` calls it, in cycles of listing, planning and executing. An insert is one request
that creates the VMs of a role; if Google creates none, that is a capacity error. Those of a cycle
are collected in `Inserts`, and recorded when no other insert can still create VMs.

A job that is a gang needs all of its VMs at once. Any other job has required replicas, without
which it cannot run, and optional ones. A synchronous job may grow: replicas that it had to start
without join it, after the others have saved.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from trainmaster.core.events import (
    CapacityErrorKind,
    IncarnationRef,
    MemberMissing,
    MembersJoin,
    SaveOver,
    VmLost,
    VmRef,
    VmsNotCreated,
    VmsOutOfReach,
    VmsQueued,
    ZonesEmptied,
)
from trainmaster.core.model.capacity import machine_kind
from trainmaster.core.model.gang import required_replicas
from trainmaster.core.model.job import Job
from trainmaster.core.model.members import current_incarnation
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.core.reconcile.steps import (
    Await,
    Create,
    Delete,
    Direct,
    HandOver,
    ReportGrowth,
    ReportLoss,
    ReportMissingMember,
    ReportSaveOver,
    Step,
    Steps,
)
from trainmaster.core.rules.search import may_begin_pass
from trainmaster.flows.commit.record import Deps, record
from trainmaster.flows.provisioning.kept_machines import release_for_capacity
from trainmaster.flows.provisioning.outlook import gather_outlook, note_outcome
from trainmaster.messaging.json_log import REFUSED_CALL
from trainmaster.ports import Created, Fleet, NotCreated, Pending, reached

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Inserts:
    """Facts about its inserts that a delivery keeps."""

    created: Counter[str] = field(default_factory=Counter)
    """Number of inserts that Compute Engine answered with "created", by request key."""
    failed: list[tuple[Create, NotCreated]] = field(default_factory=list)
    """Capacity errors of this cycle that are not recorded yet."""
    is_open: bool = False
    """Whether an insert of this cycle may still create VMs."""


def execute_step(
    step: Step,
    job: Job,
    fleet: Fleet,
    metadata: Callable[[Create], dict[str, str]],
    deps: Deps,
    inserts: Inserts,
) -> None:
    """Execute one step of the job.

    Every step may be repeated. `metadata` returns the metadata of new VMs.
    """
    match step:
        case Create():
            _create_vms(step, job, fleet, metadata(step), deps, inserts)
        case Delete():
            fleet.delete(step.vm)
        case Direct():
            fleet.write_directive(step.vm, step.directive)
        case HandOver():
            fleet.hand_over(job.placed, step, metadata(step.create))
        case Await():
            inserts.is_open |= step.vm.status is VmStatus.CREATING
        case ReportLoss():
            _record_loss(step, job, deps)
        case ReportMissingMember():
            missing = step.replica.replica_id
            record(
                MemberMissing(job.job_id, job.attempt, job.round.number, missing, deps.clock()),
                deps,
            )
        case ReportGrowth():
            number = job.round.next_save
            joins = MembersJoin(job.job_id, job.attempt, job.round.number, number, deps.clock())
            record(joins, deps)
        case ReportSaveOver():
            primary = job.plan.primary
            over = SaveOver(
                job.job_id, job.attempt, job.round.number, step.number, primary, deps.clock()
            )
            record(over, deps)
        case _:
            assert_never(step)


def record_queued_vms(vms: Sequence[Vm], job: Job, deps: Deps) -> None:
    """Record once per placement round that the job waits in Cloud TPU's queue, which reports no
    position.
    """
    for vm in vms:
        group = job.plan.group(vm.replica_id.task_type)
        kind = machine_kind(group, group.purchase.price)
        queued = VmsQueued(
            job_id=job.job_id,
            attempt=job.attempt,
            zone=vm.zone,
            round=job.placement.round,
            requested=f"1 x {kind} ({vm.replica_id.task_type})",
            at=deps.clock(),
        )
        record(queued, deps)


def record_out_of_reach(job_id: str, problem: str, deps: Deps) -> None:
    """Record once an hour for each cause that Google cannot reach the job's zone, or refuses calls
    about its VMs.
    """
    event = VmsOutOfReach(job_id, problem, deps.clock())
    # A read is cheaper than another commit each minute.
    if deps.store.entry(job_id, event.key) is None:
        record(event, deps)


def record_empty_zones(job: Job, vms: Sequence[Vm], deps: Deps) -> bool:
    """Record that no VM is left in the zones in which programs of the job may run still, and return
    True. `vms` are all that a complete listing shows. False: some are left, or it is known.

    A synchronous job needs no listing: the beginning of a round proves the same.
    """
    zones = {left.zone for left in job.placement.left if left.may_run}
    is_over = job.plan.is_synchronous or job.state.is_terminal
    if is_over or not zones or any(vm.zone in zones for vm in vms):
        return False
    emptied = ZonesEmptied(job.job_id, job.attempt, job.placement.round, deps.clock())
    return record(emptied, deps).is_new


def record_unreachable_zone(steps: Steps, job: Job, refusal: str, deps: Deps) -> bool:
    """Let a job that has not run yet go on to its next zone, as after a stockout, or wait if Google
    refuses the list of its VMs. False: it requests no VM now.
    """
    creates = [step for step in steps.steps if isinstance(step, Create)]
    for create in creates:
        kind = CapacityErrorKind.BLOCKED if refusal else CapacityErrorKind.STOCKOUT
        problem = NotCreated(
            kind, "ZONE_UNREACHABLE", refusal or f"Google cannot reach {create.zone}"
        )
        _record_capacity_error(create, problem, job, deps)
    return bool(creates)


def record_capacity_errors(inserts: Inserts, job: Job, fleet: Fleet, deps: Deps) -> bool:
    """Record the capacity errors of a cycle, and return True.

    While another insert may still create VMs, none is recorded, and the result is False: the gang
    does not leave a zone before its operations there have ended. Google returns the same errors in
    the next cycle.
    """
    failed = inserts.failed
    is_open = inserts.is_open
    inserts.failed = []
    inserts.is_open = False
    if is_open and failed:
        return False
    present: frozenset[ReplicaId] = frozenset()
    is_gang = job.plan.restarts.gang
    # What the other VMs cost counts for a limit of the cost, and what they are for a job that may
    # run without the missing ones.
    needs_other_vms = bool(job.plan.limits.cap) or not is_gang
    if failed and needs_other_vms:
        present = _present(job, fleet)
    has_required = not is_gang and present.issuperset(required_replicas(job.plan))
    for create, outcome in failed:
        _record_capacity_error(
            create,
            outcome,
            job,
            deps,
            has_other_vms=bool(present),
            has_required_vms=has_required,
        )
    return True


def _create_vms(
    create: Create, job: Job, fleet: Fleet, metadata: dict[str, str], deps: Deps, inserts: Inserts
) -> None:
    outcome = fleet.create(job.placed, create, metadata)
    match outcome:
        case Created():
            inserts.created[create.request_key(job.job_id)] += 1
            note_outcome(create, deps, is_created=True)
        case Pending():
            inserts.is_open = True
        case NotCreated():
            inserts.failed.append((create, outcome))
        case _:
            assert_never(outcome)


def _present(job: Job, fleet: Fleet) -> frozenset[ReplicaId]:
    """Return the replicas that have a VM in the job's zone, listed again: the inserts of a cycle
    run side by side.
    """
    vms, *_ = reached(lambda: fleet.list_vms(job.set_id, job.tpu_zones, job.zones_used))
    return frozenset(
        vm.replica_id
        for vm in vms
        if vm.zone == job.zone and vm.status in (VmStatus.CREATING, VmStatus.RUNNING)
    )


def _record_capacity_error(
    create: Create,
    outcome: NotCreated,
    job: Job,
    deps: Deps,
    *,
    has_other_vms: bool = False,
    has_required_vms: bool = False,
) -> None:
    """Record why the VMs were not created, and note a stockout.

    `has_other_vms`: the zone has VMs of the job. `has_required_vms`: among them are those of all
    required replicas.
    """
    kind = machine_kind(create.group, create.price)
    now = deps.clock()
    if outcome.kind is CapacityErrorKind.BLOCKED:
        _log.warning(
            "Google refuses VMs: %s",
            outcome.message,
            extra={"action": REFUSED_CALL, "job_id": job.job_id},
        )
    if outcome.kind is CapacityErrorKind.STOCKOUT:
        note_outcome(create, deps, is_created=False)
    not_created = VmsNotCreated(
        job_id=job.job_id,
        attempt=create.directive.attempt,
        zone=create.zone,
        round=create.round,
        error_kind=outcome.kind,
        code=outcome.code,
        message=outcome.message,
        at=now,
        zones_available=outcome.zones_available,
        requested=f"{len(create.names)} x {kind} ({create.group.task_type})",
        others_created=has_other_vms,
        required_present=has_required_vms,
        outlook=gather_outlook(job, deps) if may_begin_pass(job) else (),
    )
    record(not_created, deps)
    is_quota = outcome.kind is CapacityErrorKind.QUOTA
    if is_quota or outcome.kind is CapacityErrorKind.STOCKOUT:
        release_for_capacity(create, job, deps, is_quota=is_quota)


def _record_loss(step: ReportLoss, job: Job, deps: Deps) -> None:
    vm = VmRef(
        step.name, step.vm.zone if step.vm else job.zone, step.vm.instance_id if step.vm else ""
    )
    replica = step.replica
    incarnation = current_incarnation(job, replica)
    subject = IncarnationRef(
        job.job_id, replica.attempt, replica.replica_id, incarnation, replica.vm_generation, vm
    )
    record(VmLost(subject, step.at or deps.clock(), step.cause, job.placement.round), deps)
