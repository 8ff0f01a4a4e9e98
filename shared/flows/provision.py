"""Make the fleet equal what the stored job wants: the only flow that touches machines.

    read what is pending ──► [ load state, list VMs ──► steps ──► carry them out ] ──► no step left: mark it done
                                 ▲                                      │
                                 └──────────────────────────────────────┘

Level-triggered: it looks at what is, not at what was asked, so it may run twice, late, beside another, or stop
half-way. It is done only when a state loaded after its last step wants nothing more; what it did on a state that had
meanwhile changed is therefore undone by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, assert_never

from shared.core.events import (
    CapacityErrorKind,
    CompletionOutdated,
    IncarnationRef,
    VmLost,
    VmRef,
    VmsNotCreated,
    VmsQueued,
)
from shared.core.model.job import Job, JobState, State
from shared.core.model.vm import Vm
from shared.core.reconcile.plan import plan
from shared.core.reconcile.steps import Await, Create, Delete, Direct, Reactivate, ReportLoss, Step
from shared.core.reconcile.zone_order import Stockout, machine_kind
from shared.errors import PermanentError, TemporaryError
from shared.flows import admission, orphans
from shared.flows.record import Deps, record
from shared.flows.vm_metadata import metadata
from shared.messaging import internal_requests, topics
from shared.ports import AddressBook, Created, Fleet, NotCreated, Pending

PASSES: Final = 8
"""Rounds in one delivery; the rest is left to the next one. Each waits at most the fleet's own bounded time, and where
there is nothing to do but wait, 0.25 s doubling to 4 s: a delivery ends well within its ack deadline."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What only this flow may use. `agent_files` are the metadata entries that are the same for every VM; `run_all`
    carries out the steps of one round, to their end even where one raises; `patience` is had with orphans."""

    fleet: Fleet
    addresses: AddressBook
    project: str
    agent_files: dict[str, str]
    run_all: Callable[[Sequence[Callable[[], None]]], None]
    patience: orphans.Patience = field(default_factory=orphans.Patience)


def handle(asked: str | internal_requests.OrphanSearch, machines: Machines, deps: Deps) -> None:
    """A job id, or the search for what belongs to no job."""
    if isinstance(asked, internal_requests.OrphanSearch):
        orphans.handle(machines.fleet, deps, machines.patience, machines.run_all)
    else:
        _provision(asked, machines, deps)


def _provision(job_id: str, machines: Machines, deps: Deps) -> None:
    """Returns when the fleet equals what is desired; raises TemporaryError when that takes longer."""
    keys = deps.store.pending_keys(job_id)
    created: Counter[str] = Counter()
    for nth in range(PASSES):
        loaded = deps.store.load_attempt(job_id)
        if loaded is None:
            raise PermanentError(f"no job {job_id}")
        state = loaded.state
        if _has_none(state.job, deps):
            return
        vms = machines.fleet.list_vms(job_id, state.job.plan.tpu_zones)
        steps = plan(state, vms, deps.clock(), created)
        if steps.is_done:
            if _is_done(state.job, keys, machines.fleet, deps):
                return
            break
        if steps.waits_for_backoff:
            return  # the ledger entries stay pending: the sweep starts the next round
        if steps.queued_vms:
            _record_queued(steps.queued_vms, state.job, deps)
            return  # the queue may take days: the sweep looks again
        if steps.waits:
            deps.sleep(min(0.25 * 2**nth, 4.0))
        else:
            machines.run_all([partial(_carry_out, step, state, machines, deps, created) for step in steps.steps])
    raise TemporaryError(f"{job_id}: provisioning is not finished; it continues automatically")


def _is_done(job: Job, keys: Sequence[str], fleet: Fleet, deps: Deps) -> bool:
    """And marked so; False: something of a job that has ended is still being given back."""
    if job.state.is_terminal and not fleet.release(job):
        return False
    deps.store.mark_done(job.job_id, keys, deps.clock())
    if job.state.is_terminal:
        admission.wake(deps)
    return True


def _has_none(job: Job, deps: Deps) -> bool:
    """A tuning job has no machines, its trials have. A job that waits for others has none yet: what is pending stays
    so, and is looked at again."""
    if job.tuning is not None:
        deps.bus.publish(topics.TUNE, internal_requests.encode_tune(job.job_id), {})
        return True
    return job.state is JobState.QUEUED and admission.admit(job, deps) is not None


def _carry_out(step: Step, state: State, machines: Machines, deps: Deps, created: Counter[str]) -> None:
    match step:
        case Create():
            _create(step, state.job, machines, deps, created)
        case Delete():
            machines.fleet.delete(step.vm)
        case Direct():
            machines.fleet.write_directive(step.vm, step.directive)
        case Await():
            pass
        case ReportLoss():
            _lost(step, state.job, deps)
        case Reactivate():
            _call_back(step, state.job, deps)
        case _:
            assert_never(step)


def _create(create: Create, job: Job, machines: Machines, deps: Deps, created: Counter[str]) -> None:
    outcome = machines.fleet.create(
        job, create, metadata(job, create, machines.project, machines.addresses, machines.agent_files)
    )
    match outcome:
        case Created():
            created[create.request_key(job.job_id)] += 1
        case Pending():
            pass
        case NotCreated():
            kind = machine_kind(create.group, spot=create.spot)
            now = deps.clock()
            if outcome.kind is CapacityErrorKind.STOCKOUT:
                deps.store.note_stockout(Stockout(create.zone, kind, now))
            refused = VmsNotCreated(
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
            )
            record(job.job_id, refused, deps)
        case _:
            assert_never(outcome)


def _record_queued(vms: Sequence[Vm], job: Job, deps: Deps) -> None:
    """Record once per provisioning round that the job waits in Cloud TPU's queue, which reports no position."""
    for vm in vms:
        group = job.plan.group(vm.replica_id.task_type)
        queued = VmsQueued(
            job_id=job.job_id,
            attempt=job.attempt,
            zone=vm.zone,
            round=job.placement.round,
            requested=f"1 x {machine_kind(group, spot=group.spot)} ({vm.replica_id.task_type})",
            at=deps.clock(),
        )
        record(job.job_id, queued, deps)


def _lost(lost: ReportLoss, job: Job, deps: Deps) -> None:
    replica, vm = lost.replica, lost.vm
    where = VmRef(lost.name, vm.zone if vm else job.zone, vm.instance_id if vm else "")
    subject = IncarnationRef(
        job.job_id, replica.attempt, replica.replica_id, replica.incarnation, replica.vm_generation, where
    )
    record(job.job_id, VmLost(subject, deps.clock(), lost.cause, job.placement.round), deps)


def _call_back(step: Reactivate, job: Job, deps: Deps) -> None:
    replica = step.replica
    where = VmRef(step.name, job.zone, replica.instance_id or "")
    subject = IncarnationRef(
        job.job_id, replica.attempt, replica.replica_id, replica.incarnation, replica.vm_generation, where
    )
    record(job.job_id, CompletionOutdated(subject, deps.clock()), deps)


def in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all to their end side by side, then raise the first error: one slow or refused insert holds up no other."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        futures = [pool.submit(task) for task in tasks]
    for future in futures:
        future.result()
