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

from shared.core.events import QUEUED, CompletionOutdated, IncarnationRef, VmLost, VmRef, VmsNotCreated
from shared.core.model.job import Job, JobState, State
from shared.core.reconcile.plan import (
    Await,
    Create,
    Delete,
    Direct,
    Lost,
    Reactivate,
    Step,
    VmStatus,
    desired,
    plan_steps,
    vm_name,
)
from shared.core.reconcile.slice_addresses import introduced
from shared.core.reconcile.zone_order import Stockout, machine_kind
from shared.core.rules.capacity_backoff import is_too_early
from shared.core.rules.reactivation import replicas_to_reactivate
from shared.core.rules.startup_timeout import find_startup_timeouts
from shared.errors import PermanentError, TemporaryError
from shared.flows import admission, orphans
from shared.flows.record import Deps, record
from shared.flows.vm_metadata import metadata
from shared.messaging import codec, topics
from shared.ports import AddressBook, CapacityErrorKind, Created, Fleet, NotCreated, Pending

ANSWERS_BELIEVED: Final = 2
"""How often an insert may be answered "created" while its VM is not listed: a list may lag behind once."""
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


def handle(asked: str | codec.OrphanSearch, machines: Machines, deps: Deps) -> None:
    """A job id, or the search for what belongs to no job."""
    if isinstance(asked, codec.OrphanSearch):
        orphans.handle(machines.fleet, deps, machines.patience, machines.run_all)
    else:
        _provision(asked, machines, deps)


def _provision(job_id: str, machines: Machines, deps: Deps) -> None:
    """Returns when the fleet equals what is desired; raises TemporaryError when that takes longer."""
    keys = deps.store.pending(job_id)
    made: Counter[str] = Counter()
    for nth in range(PASSES):
        loaded = deps.store.load_attempt(job_id)
        if loaded is None:
            raise PermanentError(f"no job {job_id}")
        state = loaded.state
        if _has_none(state.job, deps):
            return
        vms = machines.fleet.list_vms(job_id, state.job.plan.tpu_zones)
        wants = introduced(state.job, desired(state.job, state.replicas), vms)
        left = plan_steps(state.job, wants, vms, state.replicas)
        back = (Reactivate(each, vm_name(job_id, each.replica_id)) for each in replicas_to_reactivate(state))
        steps = _without_ghosts((*left, *find_startup_timeouts(state, vms, deps.clock()), *back), state, made)
        if is_too_early(state.job, deps.clock()) and any(isinstance(step, Create) for step in steps):
            steps = tuple(step for step in steps if not isinstance(step, Create))
            if not steps:
                return  # what was refused is not asked for yet: the sweep looks again
        if not steps:
            if _is_done(state.job, keys, machines.fleet, deps):
                return
            break
        if _are_queued(steps, state.job, deps):
            return  # perhaps for days: the sweep looks again
        if all(isinstance(step, Await) for step in steps):
            deps.sleep(min(0.25 * 2**nth, 4.0))
        else:
            machines.run_all([partial(_carry_out, step, state, machines, deps, made) for step in steps])
    raise TemporaryError(f"{job_id}: the fleet does not yet equal what is desired")


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
        deps.bus.publish(topics.TUNE, codec.encode_tune(job.job_id), {})
        return True
    return job.state is JobState.QUEUED and admission.admit(job, deps) is not None


def _without_ghosts(steps: tuple[Step, ...], state: State, made: Counter[str]) -> tuple[Step, ...]:
    """An insert that was answered "created" before, and whose VM is not there, made one that has gone since: Compute
    answers a known request id with what it did then, and makes nothing. That VM is lost; the next has its own id.

    `made` counts such answers by request key over the rounds of one delivery.
    """
    found: list[Step] = []
    for step in steps:
        if not isinstance(step, Create) or made[step.request_key(state.job.job_id)] < ANSWERS_BELIEVED:
            found.append(step)
            continue
        for replica_id, name in zip(step.replica_ids, step.names, strict=True):
            if replica := state.find(state.job.attempt, replica_id):
                found.append(Lost(replica, name, None))
    return tuple(found)


def _carry_out(step: Step, state: State, machines: Machines, deps: Deps, made: Counter[str]) -> None:
    match step:
        case Create():
            _create(step, state.job, machines, deps, made)
        case Delete():
            machines.fleet.delete(step.vm)
        case Direct():
            machines.fleet.direct(step.vm, step.directive)
        case Await():
            pass
        case Lost():
            _lost(step, state.job, deps)
        case Reactivate():
            _call_back(step, state.job, deps)
        case _:
            assert_never(step)


def _create(create: Create, job: Job, machines: Machines, deps: Deps, made: Counter[str]) -> None:
    outcome = machines.fleet.create(
        job, create, metadata(job, create, machines.project, machines.addresses, machines.agent_files)
    )
    match outcome:
        case Created():
            made[create.request_key(job.job_id)] += 1
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
                asked=f"{len(create.names)} x {kind} ({create.group.task_type})",
            )
            record(job.job_id, refused, deps)
        case _:
            assert_never(outcome)


def _are_queued(steps: Sequence[Step], job: Job, deps: Deps) -> bool:
    """Whether Cloud TPU's queue is all that is waited for. Said once of each search: it tells no place in its queue."""
    vms = [step.vm for step in steps if isinstance(step, Await) and step.vm.status is VmStatus.QUEUED]
    if len(vms) < len(steps):
        return False
    for vm in vms:
        group = job.plan.group(vm.replica_id.task_type)
        kind = machine_kind(group, spot=group.spot)
        waits = VmsNotCreated(
            job_id=job.job_id,
            attempt=job.attempt,
            zone=vm.zone,
            round=job.placement.round,
            error_kind=QUEUED,
            code="",
            message="",
            at=deps.clock(),
            asked=f"1 x {kind} ({vm.replica_id.task_type})",
        )
        record(job.job_id, waits, deps)
    return True


def _lost(lost: Lost, job: Job, deps: Deps) -> None:
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
