"""One listing of all VMs, compared with what is stored about all jobs: lost VMs, and VMs that belong to no job.

The sweep requests it once a minute. The listing is older than the state that it is compared with: a job that changes
in between gets one reconciliation more than it needs. VMs without a job are in
`trainmaster.flows.provisioning.orphans`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import LabelledVm, Vm
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.attention import CHANGING, are_vms_expected, needs_reconciliation
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.flows.commit.record import Deps
from trainmaster.flows.provisioning import orphans
from trainmaster.flows.provisioning.execute_steps import record_out_of_reach
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import ProvisionRequest, encode_provision
from trainmaster.ports import Fleet, reached

RunAll = Callable[[Sequence[Callable[[], None]]], None]
_log = logging.getLogger(__name__)


def handle(fleet: Fleet, deps: Deps, times: orphans.OrphanTimes, run_all: RunAll) -> None:
    """List and compare once. `run_all` is explained at `trainmaster.flows.provisioning.fleet_deps.FleetDeps`."""
    try:
        listed, unreachable = _list(fleet, deps)
    except RefusedError as error:
        _record_out_of_reach(deps.store.survey_live_jobs().jobs, str(error), deps, run_all)
        raise
    live = deps.store.survey_live_jobs()
    visible_jobs = [job for job in live.jobs if job.zone not in unreachable]
    for zone in unreachable:
        _log.warning("Google cannot reach %s: VMs there are not checked", zone)
        jobs = [job for job in live.jobs if job.zone == zone]
        _record_out_of_reach(jobs, f"Google cannot reach {zone}", deps, run_all)
    _request_reconciliations(visible_jobs, listed, deps, run_all)
    orphans.handle(listed, live.job_ids, fleet, deps, times, run_all)


def _list(fleet: Fleet, deps: Deps) -> tuple[tuple[LabelledVm, ...], tuple[str, ...]]:
    """Return the VMs, and the zones that cannot be reached. If Google cannot list all zones at once, only those of
    live jobs are listed: orphans elsewhere are found later."""
    try:
        return reached(fleet.list_all)
    except TemporaryError as error:
        _log.warning("%s: the zones of live jobs are listed one by one", error)
        zones = sorted({zone for job in deps.store.survey_live_jobs().jobs for zone in job.zones_used})
        return reached(lambda: fleet.list_all(zones))


def _record_out_of_reach(jobs: Iterable[Job], problem: str, deps: Deps, run_all: RunAll) -> None:
    """Record it for the jobs that have run. The others go on to another zone, or record why they have no VMs."""
    run_all([partial(record_out_of_reach, job.job_id, problem, deps) for job in jobs if job.started_at is not None])


def _request_reconciliations(
    live_jobs: Iterable[Job],
    listed: Iterable[LabelledVm],
    deps: Deps,
    run_all: RunAll,
) -> None:
    """Request a reconciliation of each running job whose VMs differ.

    The sweep itself requests those of jobs that need one anyway.

    Jobs are compared side by side: thousands of jobs one after another would take longer than until the next sweep.
    """
    vms_by_label: dict[str, list[Vm]] = defaultdict(list)
    for labelled in listed:
        vms_by_label[labelled.label].append(labelled.vm)
    now = deps.clock()
    differing: list[str] = []

    def compare(job: Job) -> None:
        running = deps.store.count_replicas(job.job_id, job.attempt, (ReplicaState.RUNNING,))
        changing = deps.store.count_replicas(job.job_id, job.attempt, CHANGING)
        if not are_vms_expected(job, running, changing, vms_by_label.get(job_label(job.job_id), [])):
            differing.append(job.job_id)

    run_all([partial(compare, job) for job in live_jobs if not needs_reconciliation(job, now)])
    if differing:
        _log.info("%d running jobs have other VMs than expected", len(differing))
        requests = [encode_provision(ProvisionRequest(job_id)) for job_id in sorted(differing)]
        deps.bus.publish_all(topics.PROVISION, requests)
