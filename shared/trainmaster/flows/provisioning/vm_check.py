"""Checks the VMs of all jobs at once, and requests a reconciliation of each job that needs one.

One listing of all VMs, compared with what is stored about the jobs, shows lost VMs and VMs that
belong to no job (`orphans` handles those). One count of the time series that agents write to Cloud
Monitoring while they work, compared with the running replicas, shows VMs that hang.

The sweep, which runs once a minute, requests a check as soon as its last request has been
delivered. The listing is older than the state that it is compared with: a job that changes in
between gets one reconciliation more than it needs.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import LabelledVm, Vm
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.attention import CHANGING, are_vms_expected, needs_reconciliation
from trainmaster.core.reconcile.heartbeat import jobs_to_read
from trainmaster.core.timeouts import SERIES_MEMORY
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.flows.commit.record import Deps
from trainmaster.flows.provisioning import orphans
from trainmaster.flows.provisioning.alive_series import count_alive
from trainmaster.flows.provisioning.execute_steps import record_out_of_reach
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import ProvisionRequest, encode_provision
from trainmaster.ports import Fleet, LiveJobs, reached
from trainmaster.ports.metrics import MetricReader

RunAll = Callable[[Sequence[Callable[[], None]]], None]
_log = logging.getLogger(__name__)


def handle(fleet_deps: FleetDeps, deps: Deps, requested_at: datetime | None = None) -> None:
    """List and compare once, unless a check that was requested later has begun.

    `requested_at`: the time of the request's message; None: now. It is stored first. From that the
    sweep sees that its earlier requests have been delivered, too, as far as Pub/Sub keeps their
    order.
    """
    requested_at = requested_at or deps.clock()
    latest_at = deps.store.sweep_requests().reached_at
    if latest_at is not None and latest_at > requested_at:
        return
    deps.store.note_sweep_reached(requested_at)
    fleet = fleet_deps.fleet
    run_all = fleet_deps.run_all
    try:
        listed, unreachable, _ = _list(fleet, deps)
    except RefusedError as error:
        for page in _active_pages(deps):
            _record_out_of_reach(page.jobs, str(error), deps, run_all)
        raise
    for zone in unreachable:
        _log.warning("Google cannot reach %s: VMs there are not checked", zone)
    vms_by_label: dict[str, list[Vm]] = defaultdict(list)
    for labelled in listed:
        vms_by_label[labelled.label].append(labelled.vm)
    compared = _Compared()
    active_labels: set[str] = set()
    for page in _active_pages(deps):
        # A job that has taken the machines of another one has no VM of its own name.
        set_ids = (*(job.set_id for job in page.jobs), *page.unreadable)
        active_labels.update(map(job_label, set_ids))
        for zone in unreachable:
            jobs = [job for job in page.jobs if job.zone == zone]
            _record_out_of_reach(jobs, f"Google cannot reach {zone}", deps, run_all)
        visible_jobs = [job for job in page.jobs if job.zone not in unreachable]
        _compare(visible_jobs, vms_by_label, compared, fleet_deps, deps)
    _request_reconciliations(compared, fleet_deps, deps)
    orphans.handle(listed, active_labels, fleet, deps, fleet_deps.orphan_times, run_all)


def _active_pages(deps: Deps) -> Iterator[LiveJobs]:
    """Yield the live jobs in parts. Jobs that wait for their admission have no VMs."""
    return deps.store.live_pages(waiting=not deps.limits)


def _list(fleet: Fleet, deps: Deps) -> tuple[tuple[LabelledVm, ...], tuple[str, ...], str]:
    """Return the VMs, the zones that cannot be reached, and Google's refusal to list them; empty:
    it refused none.

    If Google cannot list all zones at once, only those of live jobs are listed: orphans elsewhere
    are found later.
    """
    try:
        return reached(fleet.list_all)
    except TemporaryError as error:
        _log.warning("%s: the zones of live jobs are listed one by one", error)
        zones = sorted(
            {zone for page in _active_pages(deps) for job in page.jobs for zone in job.zones_used}
        )
        return reached(lambda: fleet.list_all(zones))


def _record_out_of_reach(jobs: Iterable[Job], problem: str, deps: Deps, run_all: RunAll) -> None:
    """Record for each job that has run that its VMs are out of reach.

    The other jobs go on to another zone, or record why they have no VMs.
    """
    run_all(
        [
            partial(record_out_of_reach, job.job_id, problem, deps)
            for job in jobs
            if job.started_at is not None
        ]
    )


@dataclass(slots=True)
class _Compared:
    """What the comparison of jobs with their VMs has found."""

    differing: list[str] = field(default_factory=list)
    """Ids of running jobs that have other VMs than they need."""
    running: dict[str, int] = field(default_factory=dict)
    """Id of each other running job → its RUNNING replicas."""


def _compare(
    jobs: Iterable[Job],
    vms_by_label: Mapping[str, Sequence[Vm]],
    compared: _Compared,
    fleet_deps: FleetDeps,
    deps: Deps,
) -> None:
    """Compare running jobs with their VMs, except for those whose reconciliation the sweep itself
    requests.

    Jobs are compared side by side: thousands of jobs one after another would take longer than until
    the next sweep.
    """
    now = deps.clock()

    def compare(job: Job) -> None:
        running = deps.store.count_replicas(job.job_id, job.attempt, (ReplicaState.RUNNING,))
        changing = deps.store.count_replicas(job.job_id, job.attempt, CHANGING)
        if are_vms_expected(job, running, changing, vms_by_label.get(job_label(job.set_id), [])):
            compared.running[job.job_id] = running
        else:
            compared.differing.append(job.job_id)

    fleet_deps.run_all(
        [partial(compare, job) for job in jobs if not needs_reconciliation(job, now)]
    )


def _request_reconciliations(compared: _Compared, fleet_deps: FleetDeps, deps: Deps) -> None:
    """Request a reconciliation of each job whose VMs differ, or whose agents may be silent."""
    silent = _find_silent(compared.running, fleet_deps.metrics, deps.clock())
    differing = sorted({*compared.differing, *silent})
    if differing:
        _log.info(
            "%d running jobs have other VMs than expected, or too few agents that write",
            len(differing),
        )
        requests = [encode_provision(ProvisionRequest(job_id)) for job_id in differing]
        deps.bus.publish_all(topics.PROVISION, requests)


def _find_silent(
    running: Mapping[str, int], metrics: MetricReader | None, now: datetime
) -> Sequence[str]:
    """Return the jobs that have fewer series than running replicas, and had more series before.

    A job that had no more before has just started: the first point of a series may be visible only
    after minutes.
    """
    if metrics is None or not running:
        return ()
    alive = count_alive(metrics, now)
    fewer = sorted(
        job_id for job_id, replicas in running.items() if alive.get(job_id, 0) < replicas
    )
    if not fewer:
        return ()
    before = count_alive(metrics, now, SERIES_MEMORY)
    missing = {
        job_id: running[job_id] - alive.get(job_id, 0)
        for job_id in fewer
        if alive.get(job_id, 0) < before.get(job_id, 0)
    }
    return jobs_to_read(missing, now)
