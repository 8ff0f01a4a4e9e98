"""All jobs of a scenario, from their submission to the deletion of their VMs."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Final

from bench.jobs import job_spec
from bench.scale.cloud import START
from bench.scale.installation import Installation
from bench.scale.scenario import MINUTE, Scenario, Usage
from trainmaster.core.model.job import JobState
from trainmaster.flows import submit, sweep

TRAINING_S: Final = 1800.0
ARRIVAL_S: Final = 600.0


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
