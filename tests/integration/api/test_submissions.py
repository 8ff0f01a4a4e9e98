"""`projects.jobs:submit`: the text of a file becomes a job of its kind."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.api.client import JOBS, OWNER, TOKENS, Api, an_app
from tests.integration.api.test_custom_jobs import BODY, POOLS
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.api.permissions import vertex_permissions
from trainmaster_local.memory.access import MemoryAccess

SUBMIT = f"{JOBS}:submit"
MANIFESTS = Path(__file__).parents[2] / "unit" / "jobspec" / "manifests"
INVOCATION = "trainmaster invocation-id/{}"
TUNING = {
    "studySpec": {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.001, "maxValue": 0.1}}
        ],
    },
    "trialJobSpec": {"workerPoolSpecs": POOLS[:1]},
}


def submission(document: object, **fields: str) -> dict[str, object]:
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    return {"document": text, **fields}


def test_yaml_without_a_job_id_gets_the_files_name_and_the_time_of_the_submission(
    api: Api, world: World
) -> None:
    body = submission(a_spec(), fileName="digits.yaml", time="2026-11-21T03:00:00+01:00")
    created = api.send_ok("POST", SUBMIT, body)
    assert created["jobId"] == "digits_20261121_020000"
    assert world.store.recent_jobs(1)[0].job_id == created["jobId"]


def test_repeated_submission_creates_one_job(api: Api, world: World) -> None:
    body = submission({"jobId": "digits_{time}", **a_spec()}, time="2026-11-21T02:00:00Z")
    agent = INVOCATION.format("1" * 8)
    first, second = (api.send_ok("POST", SUBMIT, body, agent=agent) for _ in range(2))
    assert first["jobId"] == second["jobId"]
    assert len(world.store.recent_jobs(9)) == 1


def test_region_of_the_submission_is_for_a_job_that_names_none(api: Api) -> None:
    without: dict[str, Any] = copy.deepcopy(a_spec())
    del without["trainingInput"]["region"]
    created = api.send_ok(
        "POST", SUBMIT, submission({"jobId": "a", **without}, region="europe-west4")
    )
    named = api.send_ok(
        "POST", SUBMIT, submission({"jobId": "b", **a_spec()}, region="europe-west4")
    )
    regions = [job["trainingInput"]["region"] for job in (created, named)]
    assert regions == ["europe-west4", "us-central1"]


@pytest.mark.parametrize(
    ("document", "kind", "name"),
    [
        (BODY, "CustomJob", "digits"),
        ({"jobId": "mine", "jobSpec": BODY["jobSpec"]}, "CustomJob", "mine"),
        ({"workerPoolSpecs": POOLS}, "CustomJob", "a_file_20261121_020000"),
        (TUNING, "HyperparameterTuningJob", "a_file_20261121_020000"),
        (
            (MANIFESTS / "tf-dist-mnist.yaml").read_text(encoding="utf-8"),
            "CustomJob",
            "dist-mnist-for-e2e-test",
        ),
    ],
)
def test_job_of_another_kind_is_created_at_its_address(
    api: Api, document: object, kind: str, name: str
) -> None:
    body = submission(
        document, fileName="a-file.yaml", region="us-central1", time="2026-11-21T02:00:00Z"
    )
    created = api.send("POST", SUBMIT, body)[1]
    address = str(created["name"])
    collection = f"{kind[0].lower()}{kind[1:]}s"
    assert address.startswith(f"projects/my-project/locations/us-central1/{collection}/")
    assert created["displayName"] == name
    assert api.send_ok("GET", f"/v1/{address}", schema=kind)["displayName"] == name


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "document is empty"),
        (submission("[1, 2", fileName="my.yaml"), "my.yaml, line 2"),
        (submission('{"a": 1', fileName="my.json"), "my.json, line 1"),
        ({"document": {"jobId": "a"}}, "Field: document Error: must be a string"),
        ({"document": "\ud800: 1"}, "surrogate"),
        (submission(a_spec()), "Field: jobId Error: is required"),
        (submission(BODY), "Field: trainmaster.region Error: is required"),
        (submission({**BODY, "trainmaster": {"region": [1]}}), "region"),
        (submission(a_spec(), region=5), "Field: region Error: must be a string"),  # type: ignore[arg-type]
    ],
)
def test_wrong_submission_is_refused_with_its_problem(
    api: Api, world: World, body: dict[str, object], problem: str
) -> None:
    error = api.send_refused("POST", SUBMIT, body)
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert problem in str(error["message"])
    assert world.store.recent_jobs(1) == ()


def test_permission_is_that_of_the_kind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    create = vertex_permissions("hyperparameterTuningJobs")[0]
    access = MemoryAccess({OWNER: TOKENS[OWNER] - {create}})
    app = an_app(world, access, monkeypatch)
    body = submission(TUNING, region="us-central1")
    response = app.test_client().post(
        SUBMIT, data=json.dumps(body), headers={"Authorization": f"Bearer {OWNER}"}
    )
    assert response.status_code == 403
    assert create in response.text
