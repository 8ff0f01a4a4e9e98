"""Memory of one sweep over thousands of running jobs: it does not grow with their number.

The function runs from its archive, as on Cloud Functions, on the emulators of Firestore and
Pub/Sub.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from bench.cold_events import PROJECT, world
from bench.jobs import job_spec
from tests.integration.cost.staged_function import running_function
from tests.support.world import World
from trainmaster.core.model.job import Job, JobState
from trainmaster.gcp import clients
from trainmaster.gcp.firestore.database import commit, job_path
from trainmaster.gcp.firestore.documents import job_document

MIB_MAX: Final = 256
"""Half of the function's memory in infra/functions.tf."""
BATCH: Final = 250


def running_job() -> Job:
    """Return a running job of ten replicas, started now."""
    job = World(now=datetime.now(UTC))
    job.submit(job_spec(10))
    job.deliver()
    job.report_all_ready()
    job.deliver()
    assert job.job.state is JobState.RUNNING
    return job.job


@pytest.mark.parametrize(
    "jobs",
    [
        1_100,
        pytest.param(
            10_000,
            marks=pytest.mark.heavy(
                fact="a sweep over ten thousand running jobs fits its memory",
                quick="the same test with 1,100 jobs, which are three parts",
            ),
        ),
    ],
)
def test_sweep_fits_the_memory_of_its_function(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as cloud:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", cloud.variables["FIRESTORE_EMULATOR_HOST"])
        client = clients.firestore_client(PROJECT)
        job = running_job()
        for start in range(0, jobs, BATCH):
            batch = client.batch()
            for number in range(start, min(start + BATCH, jobs)):
                copied = replace(job, job_id=f"job_{number}")
                batch.set(client.document(job_path(copied.job_id)), job_document(copied))
            commit(batch, "store running jobs")
        with running_function("sweep", tmp_path, cloud.variables) as function:
            began = time.monotonic()
            function.deliver(b"{}")
            seconds = time.monotonic() - began
            print(f"{jobs} jobs: {function.peak_mib:.0f} MiB, {seconds:.1f} s")
            assert function.peak_mib < MIB_MAX
