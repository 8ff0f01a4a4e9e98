"""Vertex AI's custom jobs: the same jobs at another address, in other words."""

from __future__ import annotations

import json

import pytest

from shared.api import enum_numbers
from shared.core.model.job import public_id
from shared.core.model.vm_names import vm_name
from tests.integration.api.client import CUSTOM_JOBS, JOBS, PROJECT, Api
from tests.integration.api.discovery import document
from tests.support.jobs import CHIEF, a_spec
from tests.support.world import World

GCLOUD = "gcloud/528.0.0 command/gcloud.ai.custom-jobs.create invocation-id/{} environment/None"
PACKAGE = {
    "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
    "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
    "pythonModule": "trainer.task",
    "args": ["--epochs", "5"],
}
POOLS = [
    {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1", "pythonPackageSpec": PACKAGE},
    {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "2", "pythonPackageSpec": PACKAGE},
]
BODY = {"displayName": "digits", "jobSpec": {"workerPoolSpecs": POOLS}, "labels": {"team": "vision"}}


def create(api: Api, **changes: object) -> dict[str, object]:
    created = api.done("POST", CUSTOM_JOBS, {**BODY, **changes}, schema="CustomJob")
    api.world.job_id = f"custom_{str(created['name']).rpartition('/')[2]}"
    return created


def address(created: dict[str, object]) -> str:
    return f"/v1/{created['name']}"


def get(api: Api, created: dict[str, object]) -> dict[str, object]:
    return api.done("GET", address(created), schema="CustomJob")


def test_a_custom_job_gets_a_number_and_is_a_job_like_any_other(api: Api, world: World) -> None:
    created = create(api)
    parent, _, number = str(created["name"]).rpartition("/")
    assert parent == f"projects/{PROJECT}/locations/us-central1/customJobs"
    assert number.isdecimal()
    assert public_id(world.job_id) == number
    assert created == {
        "name": created["name"],
        "displayName": "digits",
        "jobSpec": BODY["jobSpec"],
        "labels": {"team": "vision"},
        "state": "JOB_STATE_QUEUED",
        "createTime": "2026-11-21T03:00:00Z",
        "updateTime": "2026-11-21T03:00:00Z",
    }
    assert get(api, created) == created
    world.deliver()
    assert get(api, created)["state"] == "JOB_STATE_PENDING"
    assert len(world.vms) == 3
    world.report_all_ready()
    assert get(api, created)["state"] == "JOB_STATE_RUNNING"
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    ended = get(api, created)
    assert (ended["state"], ended["updateTime"]) == ("JOB_STATE_SUCCEEDED", ended["endTime"])
    world.check()


def test_two_custom_jobs_of_one_name_are_two_and_one_command_makes_one(api: Api) -> None:
    names = {str(create(api)["name"]) for _ in range(3)}
    assert len(names) == 3
    said = [api.done("POST", CUSTOM_JOBS, BODY, schema="CustomJob", agent=GCLOUD.format("c" * 12)) for _ in range(2)]
    assert said[0]["name"] == said[1]["name"]


def test_a_cancelled_job_has_an_error_whose_code_says_so(api: Api, world: World) -> None:
    created = create(api)
    for _ in range(2):
        assert api.done("POST", f"{address(created)}:cancel", {}, schema="GoogleProtobufEmpty") == {}
    ended = get(api, created)
    assert ended["state"] == "JOB_STATE_CANCELLED"
    assert ended["error"]["code"] == 1  # type: ignore[index]


@pytest.mark.parametrize(("cause", "code"), [("process", 3), ("setup", 13)])
def test_a_failed_job_says_whose_fault_it_was(api: Api, world: World, cause: str, code: int) -> None:
    scheduling = {"disableRetries": True} if cause == "process" else {}
    created = create(api, jobSpec={"workerPoolSpecs": POOLS, "scheduling": scheduling})
    world.deliver()
    for _ in range(3):
        world.report_all_ready()
        error = {"type": "DownloadError", "message": "m", "frame": ""}
        exit_ = {"cause": cause, "exit_status": 1} if cause == "process" else {"cause": cause, "error": error}
        world.send("replica-exit", CHIEF, **exit_)
        if world.has_ended:
            break
        world.deliver()
    ended = get(api, created)
    assert ended["state"] == "JOB_STATE_FAILED"
    assert ended["error"]["code"] == code  # type: ignore[index]


def test_only_a_job_that_has_ended_is_deleted_and_then_it_is_not_found_and_its_number_stays_used(
    api: Api, world: World
) -> None:
    created = create(api)
    early = api.refused("DELETE", address(created))
    assert (early["code"], early["status"]) == (400, "FAILED_PRECONDITION")
    api.done("POST", f"{address(created)}:cancel", {}, schema="GoogleProtobufEmpty")
    operation = api.done("DELETE", address(created), schema="GoogleLongrunningOperation")
    assert (operation["done"], operation["response"]) == (
        True,
        {"@type": "type.googleapis.com/google.protobuf.Empty"},
    )
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", ":cancel")]:
        assert api.refused(method, address(created) + path)["code"] == 404
    assert api.done("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse") == {}
    assert world.job.deleted_at is not None
    world.check()


def test_each_api_shows_its_own_jobs_and_each_region_too(api: Api) -> None:
    api.create()
    created = create(api)
    number = str(created["name"]).rpartition("/")[2]
    assert [job["jobId"] for job in api.list()["jobs"]] == ["digits_1"]
    listed = api.done("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse")
    assert [job["name"] for job in listed["customJobs"]] == [created["name"]]
    for path in (
        f"{JOBS}/custom_{number}",
        f"{JOBS}/{number}",
        f"{CUSTOM_JOBS}/digits_1",
        f"{CUSTOM_JOBS.replace('us-central1', 'europe-west4')}/{number}",
    ):
        assert api.refused("GET", path)["code"] == 404
    elsewhere = CUSTOM_JOBS.replace("us-central1", "europe-west4")
    assert api.done("GET", elsewhere, schema="ListCustomJobsResponse") == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('state="JOB_STATE_QUEUED" AND display_name:"dig*"', 1),
        ('NOT display_name="digits"', 0),
        ("labels.team=vision", 1),
        ("labels.other:*", 0),
        ('create_time>"2021-05-18T00:00:00Z"', 1),
    ],
)
def test_the_discovery_documents_own_filters(api: Api, text: str, found: int) -> None:
    create(api)
    listed = api.done("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse", filter=text)
    assert len(listed.get("customJobs", [])) == found


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "custom_job.display_name"),
        ({"displayName": "x"}, "custom_job.job_spec"),
        ({"displayName": "x", **a_spec()}, "custom_job.job_spec"),
        ({**BODY, "jobId": "mine"}, "custom_job.job_id"),
        ({**BODY, "jobSpec": {"workerPoolSpecs": POOLS, "bogus": 1}}, "job_spec.bogus"),
        ({**BODY, "trainmaster": 3}, "trainmaster"),
        ({**BODY, "displayName": "x" * 129}, "display_name"),
    ],
)
def test_what_is_no_custom_job_names_its_field(api: Api, world: World, body: object, field: str) -> None:
    error = api.refused("POST", CUSTOM_JOBS, body)
    fields = [each["field"] for each in error["details"][0]["fieldViolations"]]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert field in fields
    assert world.store.recent_jobs(5) == ()


def test_a_region_that_there_is_not_is_a_problem_of_the_job(api: Api) -> None:
    error = api.refused("POST", CUSTOM_JOBS.replace("us-central1", "atlantis"), BODY)
    assert error["code"] == 400
    assert "atlantis" in error["message"]


def test_a_custom_job_does_not_go_to_the_old_services_address(api: Api, world: World) -> None:
    error = api.refused("POST", JOBS, {"jobId": "digits_1", **BODY})
    assert error["details"][0]["fieldViolations"][0]["field"] == "training_input"
    assert world.store.recent_jobs(5) == ()


def test_one_that_came_as_a_file_is_shown_by_its_name(api: Api, world: World) -> None:
    world.submit({"workerPoolSpecs": POOLS, "trainmaster": {"region": "us-central1"}})
    shown = api.done("GET", f"{CUSTOM_JOBS}/digits_1", schema="CustomJob")
    assert (shown["displayName"], shown["jobSpec"]) == ("digits_1", {"workerPoolSpecs": POOLS})


def test_its_program_and_its_log_know_it_by_its_number(api: Api, world: World) -> None:
    created = create(api)
    world.deliver()
    number = str(created["name"]).rpartition("/")[2]
    gang = json.loads(world.fleet.metadata(vm_name(world.job_id, CHIEF))["trainmaster-vm-config"])
    assert gang["environment"]["CLOUD_ML_JOB_ID"] == number
    assert gang["expands"] is True, "$(NAME) is Vertex AI's"
    assert gang["job_id"] == f"custom_{number}"


def test_enums_by_number_are_the_names_that_they_stand_for(api: Api, world: World) -> None:
    """As the generated clients send them, whose JSON has no names."""
    machine = {"machineType": "n1-standard-8", "acceleratorType": 5, "acceleratorCount": 2}
    spec = {"workerPoolSpecs": [{**POOLS[0], "machineSpec": machine}], "scheduling": {"strategy": 4}}
    created = create(api, jobSpec=spec)
    shown = created["jobSpec"]
    assert isinstance(shown, dict)
    assert shown["workerPoolSpecs"][0]["machineSpec"] == {**machine, "acceleratorType": "NVIDIA_TESLA_T4"}
    assert shown["scheduling"] == {"strategy": "SPOT"}
    group = world.job.plan.groups[0]
    assert (group.accelerator and group.accelerator.type, group.spot) == ("nvidia-tesla-t4", True)


@pytest.mark.parametrize("number", [99, True, -1, 2.5])
def test_a_number_that_stands_for_nothing_is_refused_by_its_field(api: Api, number: object) -> None:
    machine = {"machineType": "n1-standard-8", "acceleratorType": number, "acceleratorCount": 2}
    error = api.refused(
        "POST", CUSTOM_JOBS, {**BODY, "jobSpec": {"workerPoolSpecs": [{**POOLS[0], "machineSpec": machine}]}}
    )
    assert error["code"] == 400
    assert "machine_spec.accelerator_type" in error["message"]


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ("acceleratorType", "MachineSpec"),
        ("strategy", "Scheduling"),
        ("reservationAffinityType", "ReservationAffinity"),
        ("goal", "StudySpecMetricSpec"),
        ("algorithm", "StudySpec"),
        ("scaleType", "StudySpecParameterSpec"),
        ("measurementSelectionType", "StudySpec"),
        ("observationNoise", "StudySpec"),
    ],
)
def test_the_names_behind_the_numbers_are_the_discovery_documents(field: str, schema: str) -> None:
    known = document("aiplatform")["schemas"][f"GoogleCloudAiplatformV1{schema}"]["properties"]
    name = "reservationAffinityType" if schema == "ReservationAffinity" else field
    assert set(enum_numbers.NAMES[field].values()) <= set(known[name]["enum"])


def test_what_belongs_to_vertex_ai_and_is_not_served_says_what_is(api: Api) -> None:
    error = api.refused("POST", CUSTOM_JOBS.replace("customJobs", "trainingPipelines"), {})
    assert (error["code"], error["status"]) == (404, "NOT_FOUND")
    assert "Create a custom job instead" in error["message"]
