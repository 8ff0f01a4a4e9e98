"""Vertex AI's custom jobs: the same jobs at another address and in another format."""

from __future__ import annotations

import json

import pytest
from google.rpc import code_pb2

from tests.integration.api.client import CUSTOM_JOBS, JOBS, PROJECT, Api
from tests.integration.api.discovery import document
from tests.support.jobs import CHIEF, a_spec
from tests.support.world import World
from trainmaster.api import enum_numbers
from trainmaster.core.model.job import public_id
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.core.model.vm_names import vm_name

GCLOUD = "gcloud/528.0.0 command/gcloud.ai.custom-jobs.create invocation-id/{} environment/None"
PACKAGE = {
    "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
    "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
    "pythonModule": "trainer.task",
    "args": ["--epochs", "5"],
}
POOLS = [
    {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": "1",
        "pythonPackageSpec": PACKAGE,
    },
    {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": "2",
        "pythonPackageSpec": PACKAGE,
    },
]
BODY = {
    "displayName": "digits",
    "jobSpec": {"workerPoolSpecs": POOLS},
    "labels": {"team": "vision"},
}


def create(api: Api, **changes: object) -> dict[str, object]:
    created = api.send_ok("POST", CUSTOM_JOBS, {**BODY, **changes}, schema="CustomJob")
    api.world.job_id = f"custom_{str(created['name']).rpartition('/')[2]}"
    return created


def address(created: dict[str, object]) -> str:
    return f"/v1/{created['name']}"


def get(api: Api, created: dict[str, object]) -> dict[str, object]:
    return api.send_ok("GET", address(created), schema="CustomJob")


def test_custom_job_gets_a_number_and_is_stored_as_a_job(api: Api, world: World) -> None:
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


def test_same_display_name_creates_two_jobs_but_repeated_request_one(api: Api) -> None:
    names = {str(create(api)["name"]) for _ in range(3)}
    assert len(names) == 3
    responses = [
        api.send_ok("POST", CUSTOM_JOBS, BODY, schema="CustomJob", agent=GCLOUD.format("c" * 12))
        for _ in range(2)
    ]
    assert responses[0]["name"] == responses[1]["name"]


def test_cancelled_custom_job_has_error_code_cancelled(api: Api, world: World) -> None:
    created = create(api)
    for _ in range(2):
        assert (
            api.send_ok("POST", f"{address(created)}:cancel", {}, schema="GoogleProtobufEmpty")
            == {}
        )
    ended = get(api, created)
    assert ended["state"] == "JOB_STATE_CANCELLED"
    assert ended["error"]["code"] == code_pb2.CANCELLED  # type: ignore[index]
    # Clients look for the service's word in the message.
    assert ended["error"]["message"].startswith("CANCELED: ")  # type: ignore[index]


@pytest.mark.parametrize(
    ("cause", "code"), [("process", code_pb2.INVALID_ARGUMENT), ("setup", code_pb2.INTERNAL)]
)
def test_failed_custom_job_has_error_code_by_cause(
    api: Api, world: World, cause: str, code: int
) -> None:
    scheduling = {"disableRetries": True} if cause == "process" else {}
    created = create(api, jobSpec={"workerPoolSpecs": POOLS, "scheduling": scheduling})
    world.deliver()
    tries_of_a_set_up = 3
    for _ in range(tries_of_a_set_up):
        world.report_all_ready()
        error = {"type": "DownloadError", "message": "m", "frame": ""}
        exit_ = (
            {"cause": cause, "exit_status": 1}
            if cause == "process"
            else {"cause": cause, "error": error}
        )
        world.send("replica-exit", CHIEF, **exit_)
        world.deliver()
        if world.has_ended:
            break
        world.wait(4000)  # longer than the pauses between tries
        world.sweep()
        world.deliver()
    ended = get(api, created)
    assert ended["state"] == "JOB_STATE_FAILED"
    assert ended["error"]["code"] == code  # type: ignore[index]


def test_ended_custom_job_can_be_deleted_and_its_number_stays_used(api: Api, world: World) -> None:
    created = create(api)
    early = api.send_refused("DELETE", address(created))
    assert (early["code"], early["status"]) == (400, "FAILED_PRECONDITION")
    api.send_ok("POST", f"{address(created)}:cancel", {}, schema="GoogleProtobufEmpty")
    operation = api.send_ok("DELETE", address(created), schema="GoogleLongrunningOperation")
    assert (operation["done"], operation["response"]) == (
        True,
        {"@type": "type.googleapis.com/google.protobuf.Empty"},
    )
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", ":cancel")]:
        assert api.send_refused(method, address(created) + path)["code"] == 404
    assert api.send_ok("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse") == {}
    assert world.job.deleted_at is not None
    assert world.ledger[-1].decision.text.startswith("Deleted by a user of the API;")
    world.check()


def test_jobs_are_listed_only_in_their_api_and_region(api: Api) -> None:
    api.create()
    created = create(api)
    number = str(created["name"]).rpartition("/")[2]
    assert [job["jobId"] for job in api.list()["jobs"]] == ["digits_1"]
    listed = api.send_ok("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse")
    assert [job["name"] for job in listed["customJobs"]] == [created["name"]]
    for path in (
        f"{JOBS}/custom_{number}",
        f"{JOBS}/{number}",
        f"{CUSTOM_JOBS}/digits_1",
        f"{CUSTOM_JOBS.replace('us-central1', 'europe-west4')}/{number}",
    ):
        assert api.send_refused("GET", path)["code"] == 404
    elsewhere = CUSTOM_JOBS.replace("us-central1", "europe-west4")
    assert api.send_ok("GET", elsewhere, schema="ListCustomJobsResponse") == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('state="JOB_STATE_QUEUED" AND display_name:"dig*"', 1),
        ('NOT display_name="digits"', 0),
        ("labels.team=vision", 1),
        ("labels.other:*", 0),
        ('create_time>"2021-05-18T00:00:00Z"', 1),
    ],
)
def test_filter_examples_of_discovery_document_are_accepted(
    api: Api, text: str, count: int
) -> None:
    create(api)
    listed = api.send_ok("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse", filter=text)
    assert len(listed.get("customJobs", [])) == count


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
def test_wrong_custom_job_is_refused_at_its_field(
    api: Api, world: World, body: object, field: str
) -> None:
    error = api.send_refused("POST", CUSTOM_JOBS, body)
    fields = [violation["field"] for violation in error["details"][0]["fieldViolations"]]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert field in fields
    assert world.store.recent_jobs(5) == ()


def test_custom_job_in_unknown_region_is_refused(api: Api) -> None:
    error = api.send_refused("POST", CUSTOM_JOBS.replace("us-central1", "atlantis"), BODY)
    assert error["code"] == 400
    assert "atlantis" in error["message"]


def test_custom_job_at_ai_platform_address_is_refused(api: Api, world: World) -> None:
    error = api.send_refused("POST", JOBS, {"jobId": "digits_1", **BODY})
    assert error["details"][0]["fieldViolations"][0]["field"] == "training_input"
    assert world.store.recent_jobs(5) == ()


def test_custom_job_of_a_file_is_shown_by_its_job_id(api: Api, world: World) -> None:
    world.submit({"workerPoolSpecs": POOLS, "trainmaster": {"region": "us-central1"}})
    shown = api.send_ok("GET", f"{CUSTOM_JOBS}/digits_1", schema="CustomJob")
    assert (shown["displayName"], shown["jobSpec"]) == ("digits_1", {"workerPoolSpecs": POOLS})


def test_program_and_log_of_custom_job_have_its_number(api: Api, world: World) -> None:
    created = create(api)
    world.deliver()
    number = str(created["name"]).rpartition("/")[2]
    metadata = world.fleet.metadata(vm_name(world.job_id, CHIEF))
    vm_config = json.loads(metadata["trainmaster-vm-config"])
    assert vm_config["environment"]["CLOUD_ML_JOB_ID"] == number
    assert vm_config["expands"] is True, "$(NAME) is Vertex AI's"
    assert vm_config["job_id"] == f"custom_{number}"


def test_enum_numbers_are_replaced_by_names(api: Api, world: World) -> None:
    """Google's generated clients send enums as numbers."""
    tesla_t4, spot = 5, 4
    machine = {"machineType": "n1-standard-8", "acceleratorType": tesla_t4, "acceleratorCount": 2}
    spec = {
        "workerPoolSpecs": [{**POOLS[0], "machineSpec": machine}],
        "scheduling": {"strategy": spot},
    }
    created = create(api, jobSpec=spec)
    shown = created["jobSpec"]
    assert isinstance(shown, dict)
    assert shown["workerPoolSpecs"][0]["machineSpec"] == {
        **machine,
        "acceleratorType": "NVIDIA_TESLA_T4",
    }
    assert shown["scheduling"] == {"strategy": "SPOT"}
    group = world.job.plan.groups[0]
    assert (group.accelerator and group.accelerator.type) == "nvidia-tesla-t4"
    assert group.purchase == Purchase(Spot())


@pytest.mark.parametrize("number", [99, True, -1, 2.5])
def test_unknown_enum_number_is_refused_at_its_field(api: Api, number: object) -> None:
    machine = {"machineType": "n1-standard-8", "acceleratorType": number, "acceleratorCount": 2}
    error = api.send_refused(
        "POST",
        CUSTOM_JOBS,
        {**BODY, "jobSpec": {"workerPoolSpecs": [{**POOLS[0], "machineSpec": machine}]}},
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
def test_enum_names_are_those_of_the_discovery_document(field: str, schema: str) -> None:
    known = document("aiplatform")["schemas"][f"GoogleCloudAiplatformV1{schema}"]["properties"]
    name = "reservationAffinityType" if schema == "ReservationAffinity" else field
    assert set(enum_numbers.NAMES[field].values()) <= set(known[name]["enum"])
