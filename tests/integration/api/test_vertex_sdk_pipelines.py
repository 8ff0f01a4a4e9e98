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
    has_no_model, *states, has_end_time = results["container"]
    assert (has_no_model, has_end_time) == (True, True)
    assert states == [
        "PIPELINE_STATE_SUCCEEDED",
        "PIPELINE_STATE_SUCCEEDED",
        "JOB_STATE_SUCCEEDED",
    ], "of the pipeline, of the same one read again, and of its job"
    assert ("--n", "5", "0.5") in results["arguments"]


def test_package_pipeline_runs_to_its_end(results: dict[str, Any]) -> None:
    state, has_failed = results["package"]
    assert (state, has_failed) == ("PIPELINE_STATE_SUCCEEDED", False)
    assert ("--epochs", "6") in results["arguments"]


def test_failed_pipeline_raises_the_error_of_its_job(results: dict[str, Any]) -> None:
    kind, message = results["failed"]
    assert kind == "RuntimeError"
    assert "The replica chief 0 exited with a non-zero status of 2." in message


def test_pipeline_is_submitted_cancelled_and_deleted(results: dict[str, Any]) -> None:
    first_state, last_state, error_code, error_after_deletion, _ = results["cancelled"]
    assert (first_state, last_state) == ("PIPELINE_STATE_QUEUED", "PIPELINE_STATE_CANCELLED")
    assert error_code == code_pb2.CANCELLED
    assert error_after_deletion == "NotFound"


def test_model_upload_is_refused_by_name_and_no_pipeline_is_created(
    results: dict[str, Any],
) -> None:
    kind, message = results["refused"]
    assert kind == "BadRequest"
    assert "model_to_upload Error: requests the upload of a model; this is not supported" in message
    assert results["listed"] == ["bad", "good", "good"]
