"""Jobs of built-in algorithms through the API: shown as the service showed them, refused with field
and argument.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.client import JOBS, Api
from tests.integration.api.discovery import faults
from tests.support.jobs import CHIEF
from tests.support.world import World

PACKAGE = f"gs://stage/algorithms/{'ab' * 32}/trainmaster_algorithms-1.0-py3-none-any.whl"


@pytest.fixture
def world() -> World:
    return World(algorithms=PACKAGE)


def body(image: str, *arguments: str) -> dict[str, Any]:
    training = {
        "region": "us-central1",
        "jobDir": "gs://bucket/trees",
        "masterConfig": {"imageUri": f"gcr.io/cloud-ml-algos/{image}"},
        "useChiefInTfConfig": True,
        "args": ["--training_data_path=gs://bucket/t.csv", *arguments],
    }
    return {"jobId": "digits_1", "trainingInput": training}


def test_job_is_shown_as_submitted_and_names_its_model_when_it_has_succeeded(
    api: Api, world: World
) -> None:
    sent = body("boosted_trees:latest", "--objective=reg:linear")
    created = api.send_ok("POST", JOBS, sent)

    assert created["trainingInput"] == sent["trainingInput"]
    assert created["trainingOutput"]["isBuiltInAlgorithmJob"] is True
    assert world.job.plan.program.package_uris == (f"{PACKAGE}#sha256={'ab' * 32}",)
    world.deliver()
    world.report_all_ready()
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    ended = api.get()
    assert ended["trainingOutput"]["builtInAlgorithmOutput"] == {
        "framework": "XGBOOST",
        "runtimeVersion": "xgboost-3.2",
        "pythonVersion": "3.11",
        "modelPath": "gs://bucket/trees/model/",
    }
    assert faults("ml", "GoogleCloudMlV1__Job", ended, {"trainingInput"}) == []


@pytest.mark.parametrize(
    ("sent", "field", "expected"),
    [
        (
            body("boosted_trees", "--eta=2"),
            "training_input.args",
            "--eta must be a number of at least 0 and at most 1",
        ),
        (body("ncf"), "training_input.master_config.image_uri", "TensorFlow Model Garden"),
    ],
)
def test_wrong_job_is_an_invalid_argument(
    api: Api, sent: dict[str, Any], field: str, expected: str
) -> None:
    error = api.send_refused("POST", JOBS, sent)

    assert error["status"] == "INVALID_ARGUMENT"
    assert field in str(error)
    assert expected in str(error)
