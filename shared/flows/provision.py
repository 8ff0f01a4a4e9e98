"""Make the VMs equal what the stored job requires. This is the only flow that creates, changes or deletes VMs.

    read pending entries ──► [ load state, list VMs ──► plan ──► execute the steps ] ──► no step left: mark them done
                                 ▲                                     │
                                 └─────────────────────────────────────┘

The flow is level-triggered: it compares the stored state with the listed VMs, so it may run twice, late, concurrently,
or stop halfway. It is done only when a state that was loaded after its last step needs no further step. A step that
was planned on an outdated state is therefore corrected by the next round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from shared.core.model.job import Job, JobState
from shared.core.reconcile.plan import plan
from shared.core.reconcile.steps import Steps
from shared.errors import PermanentError, TemporaryError
from shared.flows import admission, orphans
from shared.flows.execute_steps import execute_step, record_queued_vms
from shared.flows.record import Deps
from shared.flows.vm_metadata import vm_metadata
from shared.messaging import topics
from shared.messaging.internal_requests import OrphanSearch, encode_tune
from shared.ports import AddressBook, Fleet

ROUNDS_MAX: Final = 8
"""Rounds in one delivery. What is left is done by the next delivery. A round waits at most the fleet's own bounded
time, or 0.25 s doubling to 4 s if it can only wait: a delivery ends well within its ack deadline."""
WAIT_MIN_S: Final = 0.25
WAIT_MAX_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class FleetDeps:
    """The ports and settings that only this flow may use."""

    fleet: Fleet
    addresses: AddressBook
    project: str
    agent_files: dict[str, str]
    """Metadata entries that are the same for every VM: the agent and its scripts."""
    run_all: Callable[[Sequence[Callable[[], None]]], None]
    """Runs the steps of one round. Runs all of them to their end, and then raises the first error."""
    orphan_times: orphans.OrphanTimes = field(default_factory=orphans.OrphanTimes)


def handle(request: str | OrphanSearch, fleet_deps: FleetDeps, deps: Deps) -> None:
    """Provision the job with this id, or search for VMs that belong to no job."""
    if isinstance(request, OrphanSearch):
        orphans.handle(fleet_deps.fleet, deps, fleet_deps.orphan_times, fleet_deps.run_all)
    else:
        _provision(request, fleet_deps, deps)


def _provision(job_id: str, fleet_deps: FleetDeps, deps: Deps) -> None:
    """Return when the VMs equal the stored state, or when only a sweep can continue.

    Raises TemporaryError if more rounds are needed.
    """
    fleet = fleet_deps.fleet
    pending_keys = deps.store.pending_keys(job_id)
    created: Counter[str] = Counter()
    for round_number in range(ROUNDS_MAX):
        loaded = deps.store.load_attempt(job_id)
        if loaded is None:
            raise PermanentError(f"there is no job {job_id}")
        state, job = loaded.state, loaded.state.job
        if job.tuning is not None:
            deps.bus.publish(topics.TUNE, encode_tune(job_id), {})  # a tuning job has no VMs, but its trials have
            return
        if job.state is JobState.QUEUED and admission.admit(job, deps) is not None:
            return  # its ledger entries stay pending: the next sweep tries again
        steps = plan(state, fleet.list_vms(job_id, job.plan.tpu_zones), deps.clock(), created)
        if steps.is_done:
            if not _release(job, fleet):
                break
            _finish(job, pending_keys, deps)
            return
        if steps.waits_for_backoff:
            return  # its ledger entries stay pending: a sweep starts the next provisioning round
        if steps.queued_vms:
            record_queued_vms(steps.queued_vms, job, deps)
            return  # Cloud TPU's queue may take days: the next sweep looks again
        if steps.waits:
            deps.sleep(min(WAIT_MIN_S * 2**round_number, WAIT_MAX_S))
        else:
            _execute(steps, job, fleet_deps, deps, created)
    raise TemporaryError(f"{job_id}: provisioning is not finished; it continues automatically")


def _execute(steps: Steps, job: Job, fleet_deps: FleetDeps, deps: Deps, created: Counter[str]) -> None:
    metadata = partial(
        vm_metadata,
        job,
        project=fleet_deps.project,
        address_book=fleet_deps.addresses,
        agent_files=fleet_deps.agent_files,
    )
    fleet_deps.run_all(
        [partial(execute_step, step, job, fleet_deps.fleet, metadata, deps, created) for step in steps.steps]
    )


def _release(job: Job, fleet: Fleet) -> bool:
    """Delete what an ended job has beside VMs, such as placement policies. False: some deletions are not finished."""
    return not job.state.is_terminal or fleet.release(job)


def _finish(job: Job, pending_keys: Sequence[str], deps: Deps) -> None:
    """Confirm the effects of the ledger entries. If the job has ended, others may be admitted."""
    deps.store.mark_done(job.job_id, pending_keys, deps.clock())
    if job.state.is_terminal:
        admission.retry_queued_jobs(deps)
