"""Training pipelines of Vertex AI's Python SDK, in a separate environment: its Custom…TrainingJob
classes over REST.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2

from tests.integration.api.client import OWNER, TOKENS, an_app
from tests.integration.api.served import serving
from tests.integration.api.test_vertex_sdk import PYTHON, advance
from tests.support.world import World
from trainmaster_local.memory.access import MemoryAccess

PROGRAM = Path(__file__).parent / "programs" / "vertex_pipeline_calls.py"

pytestmark = [
    pytest.mark.heavy(
        fact="Vertex AI's SDK runs training pipelines",
        quick="`integration/api/test_training_pipelines.py` with the same requests",
    ),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Run the program and return its results.

    Each request for a pipeline advances its job by one step.
    """
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        app = an_app(world, MemoryAccess(TOKENS), patch)

        def moving(environ: dict[str, Any], start: Any) -> Any:
            if environ["REQUEST_METHOD"] == "GET":
                advance(world, environ["PATH_INFO"].rpartition("/")[2])
            return app(environ, start)

        with serving(moving) as endpoint:
            argv = [str(PYTHON), str(PROGRAM), endpoint, OWNER]
            process = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]
    plans = {job.job_id: job.plan for job in world.store.recent_jobs(20)}
    output: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return {**output, "arguments": {plan.program.args for plan in plans.values()}}


def test_container_pipeline_runs_to_its_end_without_a_model(results: dict[str, Any]) -> None:
    assert results["container"] == {
        "has_model": False,
        "pipeline": "PIPELINE_STATE_SUCCEEDED",
        "pipeline read again": "PIPELINE_STATE_SUCCEEDED",
        "job": "JOB_STATE_SUCCEEDED",
        "has_end_time": True,
    }
    assert ("--n", "5", "0.5") in results["arguments"]


def test_package_pipeline_runs_to_its_end(results: dict[str, Any]) -> None:
    assert results["package"] == {"pipeline": "PIPELINE_STATE_SUCCEEDED", "has_failed": False}
    assert ("--epochs", "6") in results["arguments"]


def test_failed_pipeline_raises_the_error_of_its_job(results: dict[str, Any]) -> None:
    failed = results["failed"]
    assert failed["error"] == "RuntimeError"
    assert "The replica chief 0 exited with a non-zero status of 2." in failed["message"]


def test_pipeline_is_submitted_cancelled_and_deleted(results: dict[str, Any]) -> None:
    assert results["cancelled"] == {
        "submitted": "PIPELINE_STATE_QUEUED",
        "cancelled": "PIPELINE_STATE_CANCELLED",
        "code": code_pb2.CANCELLED,
        "error after deletion": "NotFound",
    }


def test_model_upload_is_refused_by_name_and_no_pipeline_is_created(
    results: dict[str, Any],
) -> None:
    refused = results["refused"]
    assert refused["error"] == "BadRequest"
    assert (
        "model_to_upload Error: requests the upload of a model; this is not supported"
        in refused["message"]
    )
    assert results["listed"] == ["bad", "good", "good"]
