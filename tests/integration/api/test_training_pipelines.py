"""Vertex AI's training pipelines, with the bodies that google-cloud-aiplatform sends."""

from __future__ import annotations

from typing import Any, Final

import pytest
from google.rpc import code_pb2

from tests.integration.api.client import CUSTOM_JOBS, PIPELINES, PROJECT, UNPRIVILEGED, VIEWER, Api
from tests.support.jobs import CHIEF
from tests.support.world import World
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.jobspec.formats.vertex import CUSTOM_TASK

IMAGE: Final = "us-docker.pkg.dev/my-project/training/trainer:1"
REDUCTION_SERVER: Final = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"

SPOT_NUMBER: Final = 4.0
"""The number of SPOT among Vertex AI's strategies of scheduling."""
POOL: Final = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "containerSpec": {"imageUri": IMAGE},
}


def a_pool(
    replicas: float, image: str = IMAGE, spec: str = "containerSpec", name: str = "imageUri"
) -> dict[str, Any]:
    """Return a worker pool as the SDK writes it: mixed names, and floats."""
    program = {name: image, "args": ["--n", 5.0, 0.5], "env": [{"name": "A", "value": "1"}]}
    return {
        spec: program,
        "machine_spec": {
            "machine_type": "n1-standard-8",
            "accelerator_type": "NVIDIA_TESLA_T4",
            "accelerator_count": 1.0,
        },
        "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100.0},
        "replica_count": replicas,
    }


def a_body(**changes: Any) -> dict[str, Any]:
    inputs = {
        "worker_pool_specs": [a_pool(1.0), a_pool(2.0)],
        "base_output_directory": {
            "output_uri_prefix": "gs://stage/aiplatform-custom-training-2026-11-22-05:19:41.110"
        },
        "scheduling": {
            "timeout": "3600s",
            "disable_retries": True,
            "strategy": SPOT_NUMBER,
            "max_wait_duration": None,
        },
    }
    body = {
        "displayName": "c",
        "trainingTaskDefinition": CUSTOM_TASK,
        "trainingTaskInputs": {**inputs, **changes.pop("inputs", {})},
        "labels": {"a": "b"},
    }
    return {**body, **changes}


def create(api: Api, **changes: Any) -> dict[str, Any]:
    created = api.send_ok("POST", PIPELINES, a_body(**changes), schema="TrainingPipeline")
    api.world.job_id = f"custom_{created['name'].rpartition('/')[2]}"
    return created


def address(pipeline: dict[str, Any]) -> str:
    return f"/v1/{pipeline['name']}"


def get(api: Api, pipeline: dict[str, Any]) -> dict[str, Any]:
    return api.send_ok("GET", address(pipeline), schema="TrainingPipeline")


def test_pipeline_runs_as_a_custom_job_of_the_same_number(api: Api, world: World) -> None:
    created = create(api)
    number = created["name"].rpartition("/")[2]
    custom_job = f"projects/{PROJECT}/locations/us-central1/customJobs/{number}"
    assert created["name"] == f"projects/{PROJECT}/locations/us-central1/trainingPipelines/{number}"
    assert created["trainingTaskMetadata"] == {"backingCustomJob": custom_job}
    assert created["trainingTaskDefinition"] == CUSTOM_TASK, "the SDK compares it"
    assert created["trainingTaskInputs"].keys() == a_body()["trainingTaskInputs"].keys(), (
        "in the SDK's spelling"
    )
    assert (created["state"], created["labels"]) == ("PIPELINE_STATE_QUEUED", {"a": "b"})
    shown = api.send_ok("GET", f"/v1/{custom_job}", schema="CustomJob")
    assert (shown["displayName"], shown["jobSpec"]) == ("c", created["trainingTaskInputs"])
    plan = world.job.plan
    assert [(group.task_type, group.count, group.purchase) for group in plan.groups] == [
        ("chief", 1, Purchase(Spot())),
        ("worker", 2, Purchase(Spot())),
    ]
    assert (plan.limits.max_running_s, plan.restarts.disable_retries) == (3600, True)


def test_numbers_among_arguments_become_text(api: Api, world: World) -> None:
    create(api)
    assert world.job.plan.program.args == ("--n", "5", "0.5")


def test_pipeline_passes_through_the_states_of_vertex_ai(api: Api, world: World) -> None:
    created = create(api)
    world.deliver()
    assert get(api, created)["state"] == "PIPELINE_STATE_PENDING"
    world.report_all_ready()
    assert get(api, created)["state"] == "PIPELINE_STATE_RUNNING"
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    ended = get(api, created)
    assert ended["state"] == "PIPELINE_STATE_SUCCEEDED"
    assert "error" not in ended
    assert ended["startTime"] <= ended["endTime"]


def test_failed_pipeline_has_an_error(api: Api, world: World) -> None:
    created = create(api)
    world.deliver()
    world.report_all_ready()
    world.send("replica-exit", CHIEF, cause="process", exit_status=1, tail="no such file")
    world.deliver()
    failed = get(api, created)
    assert (failed["state"], failed["error"]["code"]) == (
        "PIPELINE_STATE_FAILED",
        code_pb2.INVALID_ARGUMENT,
    )
    assert "no such file" in failed["error"]["message"]


def test_cancelled_pipeline_has_an_error_and_can_be_deleted(api: Api) -> None:
    """Without an error, the SDK would report a cancelled pipeline as a success without a model."""
    created = create(api)
    early = api.send_refused("DELETE", address(created))
    assert "The job is in PIPELINE_STATE_QUEUED" in early["message"]
    assert api.send_ok("POST", f"{address(created)}:cancel", {}, schema="GoogleProtobufEmpty") == {}
    cancelled = get(api, created)
    assert (cancelled["state"], cancelled["error"]["code"]) == (
        "PIPELINE_STATE_CANCELLED",
        code_pb2.CANCELLED,
    )
    operation = api.send_ok("DELETE", address(created), schema="GoogleLongrunningOperation")
    assert operation["done"] is True
    assert api.send_refused("GET", address(created))["code"] == 404


def test_pipelines_and_custom_jobs_are_listed_in_their_collections(api: Api) -> None:
    created = create(api)
    other = api.send_ok(
        "POST",
        CUSTOM_JOBS,
        {"displayName": "trainingTaskDefinition", "jobSpec": {"workerPoolSpecs": [POOL]}},
        schema="CustomJob",
    )
    listed = api.send_ok("GET", PIPELINES, schema="ListTrainingPipelinesResponse")
    assert [pipeline["name"] for pipeline in listed["trainingPipelines"]] == [created["name"]]
    jobs = api.send_ok("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse")["customJobs"]
    assert {job["name"] for job in jobs} == {
        other["name"],
        created["trainingTaskMetadata"]["backingCustomJob"],
    }
    number = other["name"].rpartition("/")[2]
    assert api.send_refused("GET", f"{PIPELINES}/{number}")["code"] == 404


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('state="PIPELINE_STATE_QUEUED" AND display_name="c"', 1),
        (f'training_task_definition="{CUSTOM_TASK}"', 1),
        ("labels.a=b", 1),
        ('display_name="d"', 0),
    ],
)
def test_pipelines_are_filtered(api: Api, text: str, count: int) -> None:
    create(api)
    listed = api.send_ok("GET", PIPELINES, schema="ListTrainingPipelinesResponse", filter=text)
    assert len(listed.get("trainingPipelines", [])) == count


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"modelToUpload": {"displayName": "m"}}, "model_to_upload"),
        ({"inputDataConfig": {"datasetId": "9"}}, "input_data_config"),
        ({"modelId": "7"}, "model_id"),
        (
            {"trainingTaskDefinition": CUSTOM_TASK.replace("custom", "automl")},
            "training_task_definition",
        ),
        ({"trainingTaskInputs": None}, "training_pipeline.training_task_inputs"),
        ({"displayName": ""}, "training_pipeline.display_name"),
        ({"inputs": {"experiment": "projects/1/contexts/e"}}, "training_task_inputs.experiment"),
        ({"inputs": {"worker_pool_specs": []}}, "training_task_inputs.worker_pool_specs"),
        (
            {
                "inputs": {
                    "worker_pool_specs": [
                        a_pool(1.0),
                        a_pool(1.0),
                        a_pool(1.0, REDUCTION_SERVER, "container_spec", "image_uri"),
                    ]
                }
            },
            "training_task_inputs.worker_pool_specs[2].container_spec.image_uri",
        ),
        (
            {"inputs": {"worker_pool_specs": [a_pool(1.5)]}},
            "training_task_inputs.worker_pool_specs[0].replica_count",
        ),
    ],
)
def test_unsupported_or_wrong_field_is_refused_before_anything_is_stored(
    api: Api, world: World, changes: dict[str, Any], field: str
) -> None:
    error = api.send_refused("POST", PIPELINES, a_body(**changes))
    assert error["code"] == 400
    assert [violation["field"] for violation in error["details"][0]["fieldViolations"]] == [field]
    assert world.store.recent_jobs(5) == ()


@pytest.mark.parametrize(
    "convenience",
    [
        {"tensorboard": "projects/1/locations/us-central1/tensorboards/5"},
        {"enable_web_access": True},
    ],
    ids=str,
)
def test_convenience_that_training_does_not_need_is_replaced_and_listed(
    api: Api, world: World, convenience: dict[str, Any]
) -> None:
    api.send_ok("POST", PIPELINES, a_body(inputs=convenience), schema="TrainingPipeline")
    (job,) = world.store.recent_jobs(5)
    (name,) = convenience
    assert name in str([item.field for item in job.plan.origin.substitutions])


def test_persistent_resource_of_a_pipeline_names_kept_machines(api: Api, world: World) -> None:
    inputs = {"persistent_resource_id": "my-resource"}
    api.send_ok("POST", PIPELINES, a_body(inputs=inputs), schema="TrainingPipeline")
    (job,) = world.store.recent_jobs(5)
    assert job.plan.persistent_resource == "my-resource"
    assert job.plan.keep_s


def test_methods_require_their_own_permissions(api: Api) -> None:
    created = create(api)
    assert (
        api.send_ok("GET", address(created), schema="TrainingPipeline", token=VIEWER)["name"]
        == created["name"]
    )
    for method, path in (
        ("POST", PIPELINES),
        ("POST", f"{address(created)}:cancel"),
        ("DELETE", address(created)),
    ):
        error = api.send_refused(method, path, a_body(), token=VIEWER)
        assert "aiplatform.trainingPipelines." in error["message"]
    assert api.send_refused("GET", PIPELINES, token=UNPRIVILEGED)["code"] == 403
