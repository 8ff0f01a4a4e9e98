"""The Cloud Scheduler emulator with Google's client, and what its targets receive."""

from __future__ import annotations

import base64
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth import jwt
from google.auth.credentials import AnonymousCredentials
from google.cloud import scheduler_v1
from google.protobuf import field_mask_pb2
from google.rpc import code_pb2

from tests.integration.scheduler.conftest import PARENT, PROJECT, Emulator, Target
from tests.support.stack import eventually, reserved_ports
from trainmaster_emulators.process.service import Service, run_alone
from trainmaster_emulators.services import iam

ACCOUNT = f"nightly@{PROJECT}.iam.gserviceaccount.com"
TOPIC = f"projects/{PROJECT}/topics/trainmaster-submit"
THREE = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)


@pytest.fixture
def client(emulator: Emulator) -> Iterator[scheduler_v1.CloudSchedulerClient]:
    client = scheduler_v1.CloudSchedulerClient(
        transport="rest",
        credentials=AnonymousCredentials(),
        client_options=ClientOptions(api_endpoint=emulator.address),
    )
    yield client
    client.transport.close()


def a_publication(name: str = "nightly", **changes: Any) -> scheduler_v1.Job:
    target = scheduler_v1.PubsubTarget(
        topic_name=TOPIC, data=b'{"jobId": "a"}', attributes={"source": "schedule"}
    )
    fields = {"schedule": "0 3 * * *", "time_zone": "Etc/UTC", "pubsub_target": target, **changes}
    return scheduler_v1.Job(name=f"{PARENT}/jobs/{name}", **fields)


def a_call(url: str, **changes: Any) -> scheduler_v1.Job:
    target = scheduler_v1.HttpTarget(
        uri=url, body=b"{}", headers={"Content-Type": "application/json"}, **changes
    )
    return scheduler_v1.Job(name=f"{PARENT}/jobs/nightly", schedule="0 3 * * *", http_target=target)


def test_job_is_created_listed_changed_and_deleted(
    client: scheduler_v1.CloudSchedulerClient,
) -> None:
    created = client.create_job(parent=PARENT, job=a_publication())
    assert created.state == scheduler_v1.Job.State.ENABLED
    assert created.schedule_time == THREE
    assert created.pubsub_target.data == b'{"jobId": "a"}'
    with pytest.raises(exceptions.Conflict, match="already exists"):
        client.create_job(parent=PARENT, job=a_publication())
    changed = client.update_job(
        job=a_publication(schedule="0 4 * * *", description="ignored"),
        update_mask=field_mask_pb2.FieldMask(paths=["schedule"]),
    )
    assert (changed.schedule, changed.description, changed.schedule_time) == (
        "0 4 * * *",
        "",
        THREE.replace(hour=4),
    )
    assert [job.name for job in client.list_jobs(parent=PARENT)] == [created.name]
    client.delete_job(name=created.name)
    assert list(client.list_jobs(parent=PARENT)) == []
    for call in (client.get_job, client.delete_job, client.pause_job, client.run_job):
        with pytest.raises(exceptions.NotFound):
            call(name=created.name)


def test_list_is_paged_and_keeps_to_its_location(client: scheduler_v1.CloudSchedulerClient) -> None:
    for number in range(5):
        client.create_job(parent=PARENT, job=a_publication(f"job-{number}"))
    request = scheduler_v1.ListJobsRequest(parent=PARENT, page_size=2)
    pages = [
        [job.name.rpartition("/")[2] for job in page.jobs]
        for page in client.list_jobs(request=request).pages
    ]
    assert pages == [["job-0", "job-1"], ["job-2", "job-3"], ["job-4"]]
    assert list(client.list_jobs(parent=PARENT.replace("us-central1", "europe-west4"))) == []


def test_changed_target_replaces_the_other_kind(client: scheduler_v1.CloudSchedulerClient) -> None:
    client.create_job(parent=PARENT, job=a_publication())
    mask = field_mask_pb2.FieldMask(paths=["pubsub_target", "http_target"])
    changed = client.update_job(job=a_call("http://127.0.0.1:1/"), update_mask=mask)
    assert changed.http_target.uri == "http://127.0.0.1:1/"
    assert changed.http_target.http_method == scheduler_v1.HttpMethod.POST
    assert not changed.pubsub_target.topic_name


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schedule": "never"}, "schedule: Schedule or time zone is invalid"),
        ({"schedule": "0 0 30 2 *"}, "schedule"),
        ({"schedule": "* * * * * *"}, "crontab expression of 5 fields"),
        ({"time_zone": "Mars/Olympus"}, "timeZone: 'Mars/Olympus' is not a time zone"),
        (
            {"pubsub_target": scheduler_v1.PubsubTarget(topic_name=TOPIC)},
            "pubsubTarget: a message needs data",
        ),
        (
            {"pubsub_target": scheduler_v1.PubsubTarget(topic_name="t", data=b"1")},
            "pubsubTarget.topicName",
        ),
        (
            {
                "pubsub_target": scheduler_v1.PubsubTarget(
                    topic_name="projects/other/topics/t", data=b"1"
                )
            },
            "the topic must be in the project",
        ),
        ({"pubsub_target": None}, "the job needs one target"),
        ({"retry_config": scheduler_v1.RetryConfig(retry_count=9)}, "retryConfig.retryCount"),
    ],
)
def test_invalid_job_is_refused_with_its_field(
    client: scheduler_v1.CloudSchedulerClient, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(exceptions.BadRequest, match=problem.replace(".", r"\.")):
        client.create_job(parent=PARENT, job=a_publication(**changes))
    assert list(client.list_jobs(parent=PARENT)) == []


def test_due_job_publishes_its_message_once(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    client.create_job(parent=PARENT, job=a_publication())
    emulator.fire(THREE - timedelta(seconds=1))
    assert target.received == []
    emulator.fire(THREE)
    emulator.fire(THREE + timedelta(seconds=30))
    (published,) = target.received
    assert published.path == f"/v1/{TOPIC}:publish"
    (message,) = json.loads(published.body)["messages"]
    assert base64.b64decode(message["data"]) == b'{"jobId": "a"}'
    assert message["attributes"] == {"source": "schedule"}
    assert client.get_job(name=f"{PARENT}/jobs/nightly").schedule_time == THREE + timedelta(days=1)


def test_restarted_emulator_fires_a_missed_time_once(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    client.create_job(parent=PARENT, job=a_publication())
    emulator.close()
    emulator.open()
    emulator.fire(THREE + timedelta(days=2, hours=5))
    emulator.fire(THREE + timedelta(days=2, hours=6))
    assert len(target.received) == 1
    assert emulator.get("nightly").due_at == THREE + timedelta(days=3)


def test_program_fires_an_overdue_job_by_its_own_clock(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target, tmp_path: Path
) -> None:
    emulator.now = datetime.now(UTC) - timedelta(minutes=2)
    client.create_job(parent=PARENT, job=a_publication(schedule="* * * * *"))
    emulator.close()
    token_file = tmp_path / "token"
    token_file.write_text(iam.access_token(iam.OWNER, "secret"))
    with reserved_ports() as ports:
        address = ports.take_address()
        argv = [
            sys.executable,
            "-m",
            "trainmaster_emulators.scheduler",
            "--port",
            address.rpartition(":")[2],
        ]
        argv += [
            "--state-dir",
            str(tmp_path),
            "--project",
            PROJECT,
            "--token-file",
            str(token_file),
        ]
        argv += ["--pubsub", target.url.removeprefix("http://")]
        with run_alone(Service("scheduler", argv, address=address, health=None), tmp_path / "log"):
            eventually(lambda: target.received)
    assert {call.path for call in target.received} == {f"/v1/{TOPIC}:publish"}


def test_attempt_lasts_until_its_response_and_no_second_one_begins(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    client.create_job(parent=PARENT, job=a_publication(schedule="* * * * *"))
    target.gate.clear()
    emulator.now = THREE
    emulator.clock.start_due()
    eventually(lambda: target.received)
    emulator.now = THREE + timedelta(minutes=2)
    emulator.clock.start_due()
    target.gate.set()
    eventually(lambda: emulator.get("nightly").job.last_attempt_time)
    assert len(target.received) == 1


def test_failed_call_is_retried_with_the_time_of_its_schedule(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    job = a_call(f"{target.url}/v1/jobs")
    job.retry_config = scheduler_v1.RetryConfig(
        retry_count=3, min_backoff_duration=timedelta(seconds=10)
    )
    client.create_job(parent=PARENT, job=job)
    target.statuses = [503, 302]
    # The retries are due after 10 seconds, and 20 seconds later.
    for seconds in (0, 9, 10, 29, 30):
        emulator.fire(THREE + timedelta(seconds=seconds))
        if seconds == 0:
            status = client.get_job(name=job.name).status
            assert (status.code, status.message) == (
                code_pb2.UNAVAILABLE,
                f"{target.url}/v1/jobs: HTTP status 503",
            )
    times = [request.headers["X-Cloudscheduler-Scheduletime"] for request in target.received]
    assert times == ["2026-11-21T03:00:00Z"] * 3
    assert client.get_job(name=job.name).status.code == code_pb2.OK
    assert emulator.get("nightly").due_at == THREE + timedelta(days=1)


def test_call_has_the_headers_of_cloud_scheduler_and_an_access_token(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    client.create_job(
        parent=PARENT,
        job=a_call(f"{target.url}/x?y=1", oauth_token={"service_account_email": ACCOUNT}),
    )
    emulator.fire(THREE)
    (request,) = target.received
    assert (request.method, request.path, request.body) == ("POST", "/x?y=1", b"{}")
    assert request.headers["User-Agent"] == "Google-Cloud-Scheduler"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["X-Cloudscheduler-Jobname"] == "nightly"
    assert request.headers["Authorization"] == f"Bearer {iam.access_token(ACCOUNT, 'secret')}"


def test_call_with_oidc_has_an_identity_token_for_its_target(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    client.create_job(
        parent=PARENT, job=a_call(f"{target.url}/x", oidc_token={"service_account_email": ACCOUNT})
    )
    emulator.fire(THREE)
    with urllib.request.urlopen(f"{emulator.address}/emulator/v1/certs", timeout=30) as response:
        certificates = json.load(response)
    token = target.received[0].headers["Authorization"].removeprefix("Bearer ")
    claims = jwt.decode(token, certs=certificates, audience=f"{target.url}/x")
    assert claims["email"] == ACCOUNT


def test_access_token_is_not_sent_to_another_machine(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator
) -> None:
    job = a_call("https://example.invalid/", oauth_token={"service_account_email": ACCOUNT})
    client.create_job(parent=PARENT, job=job)
    emulator.fire(THREE)
    assert "loopback addresses only" in client.get_job(name=job.name).status.message


def test_service_account_of_another_project_is_refused(
    client: scheduler_v1.CloudSchedulerClient,
) -> None:
    token = {"service_account_email": "nightly@other.iam.gserviceaccount.com"}
    with pytest.raises(exceptions.BadRequest, match="must be in the project"):
        client.create_job(parent=PARENT, job=a_call("http://127.0.0.1:1/", oauth_token=token))


def test_paused_job_does_not_fire_and_can_be_run(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    name = client.create_job(parent=PARENT, job=a_publication()).name
    assert client.pause_job(name=name).state == scheduler_v1.Job.State.PAUSED
    with pytest.raises(exceptions.BadRequest, match="needs a job that is ENABLED"):
        client.pause_job(name=name)
    emulator.fire(THREE)
    assert target.received == []
    client.run_job(name=name)
    eventually(lambda: len(target.received) == 1)
    emulator.now = THREE + timedelta(hours=1)
    assert client.resume_job(name=name).schedule_time == THREE + timedelta(days=1)


def test_attempt_that_ends_after_a_change_does_not_decide_the_next_time(
    client: scheduler_v1.CloudSchedulerClient, emulator: Emulator, target: Target
) -> None:
    name = client.create_job(parent=PARENT, job=a_publication()).name
    target.gate.clear()
    emulator.now = THREE
    emulator.clock.start_due()
    eventually(lambda: target.received)
    client.update_job(
        job=a_publication(schedule="0 5 * * *"),
        update_mask=field_mask_pb2.FieldMask(paths=["schedule"]),
    )
    target.gate.set()
    eventually(lambda: client.get_job(name=name).last_attempt_time)
    assert client.get_job(name=name).schedule_time == THREE.replace(hour=5)


@pytest.mark.parametrize(
    "header", [{"Origin": "http://attacker.example"}, {"Host": "attacker.example"}]
)
def test_web_page_cannot_create_a_job(emulator: Emulator, header: dict[str, str]) -> None:
    body = json.dumps(
        {"schedule": "* * * * *", "pubsubTarget": {"topicName": TOPIC, "data": "e30="}}
    ).encode()
    request = urllib.request.Request(f"{emulator.address}/v1/{PARENT}/jobs", body, header)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=30)
    assert error.value.code == 403
    error.value.close()
    assert emulator.store.page(PARENT, "", 10) == []
