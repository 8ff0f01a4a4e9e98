"""All jobs of a scenario, from their submission to the deletion of their VMs."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Final, cast

from bench.control_plane import NameAddresses
from bench.jobs import job_spec
from bench.scale.bus import Request, ScaleBus, TimedStore
from bench.scale.cloud import START, Cloud
from bench.scale.fleet import ScaleFleet
from bench.scale.scenario import MINUTE, Scenario, Usage
from trainmaster.core.model.job import JobState
from trainmaster.flows import provision, submit, sweep
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.memory.store import MemoryStore
from trainmaster.ports import Bus, Fleet, Store

TRAINING_S: Final = 1800.0
ARRIVAL_S: Final = 600.0


class Installation:
    """One installation: the stored state, the VMs, and what the flows need."""

    def __init__(self, scenario: Scenario) -> None:
        self.cloud = Cloud(scenario)
        self.store = MemoryStore()
        self.deps = CreationDeps(
            cast("Store", TimedStore(self.store, self.cloud)),
            cast("Bus", ScaleBus(self.cloud, self._provision)),
            clock=self.cloud.clock,
            sleep=self.cloud.spend,
        )
        self.fleet = ScaleFleet(self.cloud, self.deps)
        self._fleet_deps = FleetDeps(
            cast("Fleet", self.fleet), NameAddresses(), "my-project", {"startup-script": "#!"}, self.cloud.run_in_waves
        )

    def _provision(self, request: Request, published_at: datetime) -> None:
        provision.handle(request, self._fleet_deps, self.deps, published_at)


def run(scenario: Scenario) -> Usage:
    """Run all jobs to their end. Raises RuntimeError if one does not succeed or leaves a VM."""
    installation = Installation(scenario)
    cloud, deps, fleet = installation.cloud, installation.deps, installation.fleet
    submitted: dict[str, float] = {}
    left = set()

    def submit_job(job_id: str) -> None:
        submitted[job_id] = cloud.now
        data = json.dumps({"jobId": job_id, **job_spec(scenario.replicas)}).encode()
        cloud.deliver("submit", lambda: submit.handle(data, f"gs://bucket/jobs/{job_id}.json#1", deps))
        cloud.after(MINUTE, partial(watch, job_id))

    def watch(job_id: str) -> None:
        """Let the job's programs end some time after it runs."""
        loaded = installation.store.load(job_id)
        if loaded is None or loaded.state.job.started_at is None:
            cloud.after(10.0, partial(watch, job_id))
            return
        began = (loaded.state.job.started_at - START).total_seconds()
        cloud.usage.running_s.append(began - submitted[job_id])
        cloud.after(max(0.0, began + TRAINING_S - cloud.now), partial(end, job_id))

    def end(job_id: str) -> None:
        fleet.exit_all(job_id)
        left.discard(job_id)

    def sweep_now() -> None:
        cloud.deliver("sweep", lambda: sweep.handle(deps))
        cloud.after(MINUTE, sweep_now)

    for number in range(scenario.jobs):
        job_id = f"scale_{number}"
        left.add(job_id)
        cloud.after(ARRIVAL_S * number / scenario.jobs, partial(submit_job, job_id))
    cloud.after(1.0, sweep_now)
    cloud.run(lambda: not left and not installation.store.count_live() and not fleet.exited_at)
    states = Counter(job.state for job in installation.store.recent_jobs(scenario.jobs))
    if states != {JobState.SUCCEEDED: scenario.jobs}:
        raise RuntimeError(f"not all jobs succeeded: {states}")
    return cloud.usage
