"""Tuning jobs in the API of Vertex AI: hyperparameterTuningJobs."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2

from tests.integration.api.client import (
    CUSTOM_JOBS,
    JOBS,
    PROJECT,
    TUNING_JOBS,
    UNPRIVILEGED,
    VIEWER,
    Api,
)
from tests.support.study import Study


@pytest.fixture
def world() -> Study:
    return Study()


def a_body(**changes: object) -> dict[str, Any]:
    """Return the body that `gcloud ai hp-tuning-jobs create` sends."""
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": "1",
        "containerSpec": {
            "imageUri": "us-docker.pkg.dev/my-project/training/trainer:1",
            "args": ["--epochs", "5"],
        },
    }
    return {
        "displayName": "tuning",
        "maxTrialCount": 3,
        "parallelTrialCount": 2,
        "studySpec": {
            "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
            "parameters": [
                {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "3"}},
                {"parameterId": "optimizer", "categoricalValueSpec": {"values": ["adam", "sgd"]}},
            ],
        },
        "trialJobSpec": {
            "workerPoolSpecs": [pool],
            "baseOutputDirectory": {"outputUriPrefix": "gs://my-bucket/tuning"},
        },
        **changes,
    }


def create(api: Api, world: Study, **changes: object) -> dict[str, Any]:
    created = api.send_ok("POST", TUNING_JOBS, a_body(**changes), schema="HyperparameterTuningJob")
    world.job_id = f"custom_{created['name'].rpartition('/')[2]}"
    return created


def path_of(job: dict[str, Any]) -> str:
    return f"/v1/{job['name']}"


def get(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    return api.send_ok("GET", path_of(job), schema="HyperparameterTuningJob")


def test_vertex_tuning_job_is_shown_with_its_trials(api: Api, world: Study) -> None:
    created = create(api, world)
    assert created["name"].startswith(
        f"projects/{PROJECT}/locations/us-central1/hyperparameterTuningJobs/"
    )
    assert created["state"] == "JOB_STATE_QUEUED"
    assert {name: created[name] for name in a_body()} == a_body(), "as it was sent"
    world.deliver()
    world.report_ready(1, 2)
    running = get(api, created)
    assert running["state"] == "JOB_STATE_RUNNING"
    assert [trial["state"] for trial in running["trials"]] == ["ACTIVE", "ACTIVE"]
    world.complete_trial(1, 0.5)
    world.fail_trial(2)
    world.report_ready(3)
    world.complete_trial(3, 0.75)
    ended = get(api, created)
    assert ended["state"] == "JOB_STATE_SUCCEEDED"
    assert [trial["state"] for trial in ended["trials"]] == ["SUCCEEDED", "INFEASIBLE", "SUCCEEDED"]
    assert ended["trials"][2]["parameters"] == [
        {"parameterId": "layers", "value": 2.0},
        {"parameterId": "optimizer", "value": "adam"},
    ]
    assert ended["trials"][2]["finalMeasurement"] == {
        "stepCount": "100",
        "metrics": [{"metricId": "accuracy", "value": 0.75}],
    }
    assert "finalMeasurement" not in ended["trials"][1]


def test_running_trial_has_measurements_and_one_stopped_early_succeeds(
    api: Api, world: Study
) -> None:
    created = create(
        api, world, studySpec={**a_body()["studySpec"], "medianAutomatedStoppingSpec": {}}
    )
    world.deliver()
    world.report_ready(1, 2)
    world.write_metric(1, -0.5)
    world.write_metric(2, 0.5, 0.75)
    world.wait(60)
    world.sweep()
    world.deliver()
    stopped, running, _ = get(api, created)["trials"]
    measurement = {"stepCount": "100", "metrics": [{"metricId": "accuracy", "value": -0.5}]}
    assert (stopped["state"], stopped["finalMeasurement"]) == ("SUCCEEDED", measurement)
    assert running["state"] == "ACTIVE"
    assert [measured["metrics"][0]["value"] for measured in running["measurements"]] == [0.5, 0.75]
    assert "finalMeasurement" not in running


def test_trial_gets_its_own_directories_and_values(api: Api, world: Study) -> None:
    create(api, world)
    world.deliver()
    trial = world.trial(2).job
    assert trial.plan.origin.output_directory == "gs://my-bucket/tuning/2"
    assert trial.plan.program.args == ("--epochs", "5", "--layers", "1", "--optimizer", "sgd")


def test_tuning_jobs_and_custom_jobs_are_found_only_in_their_collection(
    api: Api, world: Study
) -> None:
    created = create(api, world)
    world.deliver()
    listed = api.send_ok("GET", TUNING_JOBS, schema="ListHyperparameterTuningJobsResponse")
    assert [job["name"] for job in listed["hyperparameterTuningJobs"]] == [created["name"]]
    assert api.send_ok("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse") == {}
    assert api.list() == {}
    number = created["name"].rpartition("/")[2]
    assert api.send_refused("GET", f"{CUSTOM_JOBS}/{number}")["code"] == 404
    assert api.send_refused("GET", f"{TUNING_JOBS}/17")["code"] == 404
    assert api.send_refused("GET", f"{JOBS}/custom_{number}")["code"] == 404
    assert (
        api.send_refused("GET", path_of(created).replace("us-central1", "europe-west1"))["code"]
        == 404
    )


def test_vertex_tuning_job_is_cancelled_with_its_trials_and_deleted(api: Api, world: Study) -> None:
    created = create(api, world)
    world.deliver()
    assert api.send_refused("DELETE", path_of(created))["status"] == "FAILED_PRECONDITION"
    api.send_ok("POST", f"{path_of(created)}:cancel", {}, schema="GoogleProtobufEmpty")
    world.deliver()
    cancelled = get(api, created)
    assert (cancelled["state"], cancelled["error"]["code"]) == (
        "JOB_STATE_CANCELLED",
        code_pb2.CANCELLED,
    )
    assert world.states == ["CANCELLED", "CANCELLED"]
    done = api.send_ok("DELETE", path_of(created), schema="GoogleLongrunningOperation")
    assert done["done"] is True
    assert api.send_refused("GET", path_of(created))["code"] == 404


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"studySpec": None}, "hyperparameter_tuning_job.study_spec"),
        ({"trialJobSpec": {}}, "hyperparameter_tuning_job.trial_job_spec"),
        ({"maxTrialCount": 0}, "hyperparameter_tuning_job.max_trial_count"),
        ({"trialJobSpec": {"workerPoolSpecs": [{}]}}, "trial_job_spec.worker_pool_specs[0]"),
        ({"studySpec": {"metrics": [], "parameters": []}}, "study_spec.metrics"),
        ({"jobId": "mine"}, "hyperparameter_tuning_job.job_id"),
    ],
)
def test_wrong_vertex_tuning_job_is_refused_at_its_field(
    api: Api, changes: dict[str, object], field: str
) -> None:
    error = api.send_refused("POST", TUNING_JOBS, a_body(**changes))
    assert error["code"] == 400
    assert field in {violation["field"] for violation in error["details"][0]["fieldViolations"]}


def test_enum_numbers_of_tuning_job_are_accepted(api: Api, world: Study) -> None:
    study = a_body()["studySpec"]
    minimize, grid_search = 2, 2
    study["metrics"][0]["goal"] = minimize
    study["algorithm"] = grid_search
    create(api, world, studySpec=study)
    assert (world.tuning.goal, world.tuning.algorithm) == ("MINIMIZE", "GRID_SEARCH")


def test_tuning_job_methods_require_their_own_permissions(api: Api, world: Study) -> None:
    created = create(api, world)
    assert get(api, created) == api.send_ok(
        "GET", path_of(created), schema="HyperparameterTuningJob", token=VIEWER
    )
    for method, path in (
        ("POST", TUNING_JOBS),
        ("POST", f"{path_of(created)}:cancel"),
        ("DELETE", path_of(created)),
    ):
        error = api.send_refused(method, path, a_body(), token=VIEWER)
        assert "aiplatform.hyperparameterTuningJobs." in error["message"]
    assert api.send_refused("GET", TUNING_JOBS, token=UNPRIVILEGED)["code"] == 403


def test_tuning_job_resumes_another_one_by_its_number_or_resource_name(
    api: Api, world: Study
) -> None:
    first = create(api, world, maxTrialCount=1, parallelTrialCount=1)
    world.deliver()
    world.report_ready(1)
    world.complete_trial(1, 0.5)
    for name in (first["name"], first["name"].rpartition("/")[2]):
        create(
            api,
            world,
            displayName=f"resumed {len(name)}",
            trainmaster={"resumePreviousJobId": name},
        )
        assert [earlier.value for earlier in world.tuning.earlier] == [0.5]
    error = api.send_refused(
        "POST", TUNING_JOBS, a_body(trainmaster={"resumePreviousJobId": "4711"})
    )
    assert "names custom_4711, which is not a tuning job" in error["message"]
