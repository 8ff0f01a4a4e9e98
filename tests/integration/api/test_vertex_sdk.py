"""Vertex AI's Python SDK, in a separate environment: it submits, waits, lists, cancels and deletes
over REST.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2

from tests.integration.api.client import OWNER, TOKENS, VIEWER, an_app
from tests.integration.api.served import serving
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster_local.memory.access import MemoryAccess

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".images" / "aiplatform" / "bin" / "python"
PROGRAM = Path(__file__).parent / "programs" / "vertex_sdk.py"

pytestmark = [
    pytest.mark.heavy(
        fact="Vertex AI's SDK manages jobs",
        quick=(
            "`integration/api/test_custom_jobs.py`, `integration/api/test_tuning_jobs.py` with the"
            " same requests"
        ),
    ),
    pytest.mark.timeout(300),
]


def advance(world: World, number: str) -> None:
    """Advance a job by one step: VMs are created, then all replicas are ready, then the primary
    exits.
    """
    loaded = world.store.load(f"custom_{number}")
    if loaded is None or (job := loaded.state.job).state.is_terminal:
        return
    ends = {"good": 0, "bad": 2}
    name = json.loads(job.spec_json)["displayName"]
    if name not in ends:
        return
    world.job_id = job.job_id
    if job.state is JobState.RUNNING:
        world.send(
            "replica-exit",
            job.plan.primary,
            cause="process",
            exit_status=ends[name],
            tail="no such file",
        )
    elif job.state is JobState.PREPARING:
        world.report_all_ready()
    else:
        world.deliver()


@pytest.fixture(scope="module")
def requests() -> list[str]:
    """Return the requests of the SDK as METHOD ADDRESS."""
    return []


@pytest.fixture(scope="module")
def results(requests: list[str]) -> dict[str, Any]:
    """Run `programs/vertex_sdk.py` and return the results of its stories.

    Each request for a job advances the job by one step.
    """
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        app = an_app(world, MemoryAccess(TOKENS), patch)

        def moving(environ: dict[str, Any], start: Any) -> Any:
            requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            if environ["REQUEST_METHOD"] == "GET":
                advance(world, environ["PATH_INFO"].rpartition("/")[2])
            return app(environ, start)

        with serving(moving) as endpoint:
            argv = [str(PYTHON), str(PROGRAM), endpoint, OWNER, VIEWER]
            process = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]
    output: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return output


def test_sdk_submits_job_with_enum_numbers(results: dict[str, Any]) -> None:
    result = results["submitted"]
    assert result["number"].isdecimal()
    assert (result["state"], result["labels"]) == ("JOB_STATE_QUEUED", {"team": "a"})
    assert result["replicas_of_pools"] == [1, 3]
    assert result["accelerator"] == "NVIDIA_TESLA_T4"
    assert (result["timeout_s"], result["restart_job_on_worker_restart"]) == (3600, True)
    assert result["created"] == "2026-11-21T03:00:00+00:00"


def test_sdk_cancels_and_deletes_job(results: dict[str, Any]) -> None:
    result = results["submitted"]
    assert result["state_in_the_end"] == "JOB_STATE_CANCELLED"
    assert result["error_code"] == code_pb2.CANCELLED
    kind, message = result["deleted"]
    assert kind == "NotFound"
    assert f"customJobs/{result['number']} was not found" in message


def test_sdk_run_waits_for_the_end_and_raises_the_error_of_a_failed_job(
    results: dict[str, Any],
) -> None:
    assert results["run"]["good"] == {
        "state": "JOB_STATE_SUCCEEDED",
        "has_started": True,
        "has_ended": True,
    }
    assert "code: 3" in results["run"]["bad"]
    assert "The replica chief 0 exited with a non-zero status of 2." in results["run"]["bad"]
    assert "no such file" in results["run"]["bad"]


def test_sdk_lists_jobs_with_filter_and_order(results: dict[str, Any]) -> None:
    result = results["listed"]
    assert set(result["every"]) == {"good", "bad", "x1", "x2", "x3"}
    assert (result["named"], result["ended"]) == (["x2"], ["good"])
    assert result["ordered"] == ["bad", "good", "x1", "x2", "x3"]


def test_sdk_describes_cancels_and_deletes_tuning_job(results: dict[str, Any]) -> None:
    result = results["tuned"]
    assert (result["max_trials"], result["parallel_trials"]) == (4, 2)
    assert (result["algorithm"], result["goal"], result["scale"]) == (
        "RANDOM_SEARCH",
        "MAXIMIZE",
        "UNIT_LOG_SCALE",
    )
    assert (result["listed"], result["not_a_custom_job"]) == (["tuned"], [])
    assert result["state_in_the_end"] == "JOB_STATE_CANCELLED"
    assert result["deleted"][0] == "NotFound"


@pytest.mark.parametrize(
    ("story", "kind", "text"),
    [
        ("unknown", "NotFound", "customJobs/17 was not found"),
        ("wrong", "BadRequest", "job_spec.worker_pool_specs[0].machine_spec.machine_type Error: "),
        ("account", "Forbidden", "You do not have permission to act as service_account: other@"),
        ("viewer", "Forbidden", "Permission 'aiplatform.customJobs.create' denied"),
        ("stranger", "RefreshError", ""),
    ],
)
def test_sdk_raises_googles_exceptions_for_refused_calls(
    results: dict[str, Any], story: str, kind: str, text: str
) -> None:
    assert results["refused"][story][0] == kind
    assert text in results["refused"][story][1]


def test_sdk_calls_only_v1_addresses(results: dict[str, Any], requests: list[str]) -> None:
    assert results
    assert all(
        line.split()[1].startswith("/v1/projects/my-project/locations/us-central1/")
        for line in requests
    )
