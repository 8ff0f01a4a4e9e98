"""Scheduled jobs: what is written to Cloud Scheduler, and the jobs that its messages become."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cli.conftest import Installation
from tests.support.jobs import a_spec
from tests.support.serving import serving
from tests.support.world import World
from trainmaster.cli.schedule_runs import check_job_ids, describe_run
from trainmaster.core.intake.job_id_template import at_time
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.flows.user_requests import cancel_job
from trainmaster.gcp.tools.scheduler import CloudScheduler, api_call, publication, scheduler_job
from trainmaster.messaging import push

DISCOVERED = "discovery_cache/documents/cloudscheduler.v1.json"
ACCOUNT = "nightly@my-project.iam.gserviceaccount.com"
PARENT = "projects/my-project/locations/us-central1"
NIGHTLY = {"jobId": "nightly_{time:%Y%m%d_%H%M}", **a_spec()}
AT = datetime(2026, 11, 21, 3, 0, 7, tzinfo=UTC)


def test_time_in_job_id_is_filled_in() -> None:
    assert at_time("nightly_{time:%Y%m%d_%H%M}", AT) == "nightly_20261121_0300"
    assert at_time("a_{time}", AT) == "a_20261121_030007"
    assert at_time("plain", AT) == "plain"


def fire(world: World, at: datetime | None, source: str | None = "schedule:nightly") -> None:
    submit.handle(json.dumps(NIGHTLY).encode(), source, world.deps, at)


def test_message_delivered_twice_creates_one_job() -> None:
    world = World()
    for at in (AT, AT, AT.replace(day=22)):
        fire(world, at)
        world.wait(3600)
    assert [job.job_id for job in world.store.recent_jobs(9)] == [
        "nightly_20261122_0300",
        "nightly_20261121_0300",
    ]
    assert world.store.rejections() == ()


def test_messages_without_source_are_distinguished_by_their_time() -> None:
    world = World()
    for day in (21, 21, 22):
        fire(world, AT.replace(day=day), source=None)
    assert {job.job_id for job in world.store.recent_jobs(9)} == {
        "nightly_20261121_0300",
        "nightly_20261122_0300",
    }


def test_time_in_job_id_without_publish_time_is_refused() -> None:
    world = World()
    with pytest.raises(PermanentError, match=r"job\.job_id Error: contains a time"):
        fire(world, at=None)
    assert world.store.recent_jobs(9) == ()


def test_publish_time_is_read_from_pubsub_envelope() -> None:
    message = {
        "data": base64.b64encode(b"{}").decode(),
        "messageId": "1",
        "publishTime": "2026-11-21T03:00:07.123456789Z",
    }
    decoded = push.decode(json.dumps({"message": message}).encode())
    assert decoded.published_at == AT.replace(microsecond=123456)


# Cloud Scheduler.


class SchedulerApi(BaseHTTPRequestHandler):
    """The part of Cloud Scheduler's API that creates and replaces jobs."""

    jobs: dict[str, Any] = {}  # noqa: RUF012 - a test has one server

    def do_POST(self) -> None:
        body = self._body()
        known = body["name"] in self.jobs
        parent = self.path.partition("?")[0] == f"/v1/{body['name'].rpartition('/jobs/')[0]}/jobs"
        status = 200 if parent else 404
        self._answer(409 if known else status, body)

    def do_PATCH(self) -> None:
        name = self.path.partition("?")[0].removeprefix("/v1/")
        self._answer(200 if name in self.jobs else 404, {**self._body(), "name": name})

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return body

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        if body["schedule"] == "never":
            status = 400
        if status == 200:
            self.jobs[body["name"]] = body
        data = json.dumps(
            body if status == 200 else {"error": {"message": "Schedule is invalid."}}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def scheduler() -> Iterator[CloudScheduler]:
    SchedulerApi.jobs.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), SchedulerApi)
    with serving(server) as address:
        client = CloudScheduler(address)
        yield client
        client.close()


def test_put_creates_a_schedule_and_replaces_it(scheduler: CloudScheduler) -> None:
    attributes = {"source": "nightly"}
    published = publication("my-project", attributes, "trainmaster-submit", b"1")
    called = api_call("my-project", "https://api.example.com/", ACCOUNT, b"2")
    assert scheduler.put(scheduler_job(PARENT, "nightly", "0 3 * * *", "Etc/UTC", published))
    assert not scheduler.put(scheduler_job(PARENT, "nightly", "0 4 * * *", "Etc/UTC", called))
    (job,) = SchedulerApi.jobs.values()
    assert job["schedule"] == "0 4 * * *"
    with pytest.raises(PermanentError, match=r"Schedule is invalid\."):
        scheduler.put(scheduler_job(PARENT, "other", "never", "Etc/UTC", published))


def test_dry_run_prints_fields_of_the_discovery_document(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(NIGHTLY))
    result = installation.run(
        "schedule",
        "create",
        "nightly",
        str(file),
        "--cron",
        "0 3 * * *",
        "--follow-packages",
        "--dry-run",
    )
    assert result.exit_code == 0, result.output
    job = json.loads(result.stdout)
    schemas = json.loads((files("googleapiclient") / DISCOVERED).read_text())["schemas"]
    assert set(job) <= set(schemas["Job"]["properties"])
    assert set(job["pubsubTarget"]) <= set(schemas["PubsubTarget"]["properties"])
    assert job["pubsubTarget"]["topicName"] == "projects/my-project/topics/trainmaster-submit"
    assert json.loads(base64.b64decode(job["pubsubTarget"]["data"])) == NIGHTLY


def test_schedule_of_a_job_with_its_own_account_calls_the_api_with_a_token(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.yaml"
    document = {"jobId": NIGHTLY["jobId"], **a_spec(serviceAccount=ACCOUNT)}
    file.write_text(yaml.safe_dump(document))
    command = (
        "schedule",
        "create",
        "nightly",
        str(file),
        "--cron",
        "0 3 * * *",
        "--follow-packages",
        "--dry-run",
    )
    refused = installation.run(*command)
    assert isinstance(refused.exception, PermanentError)
    assert "--submit-as ACCOUNT --api URL" in str(refused.exception)
    assert "trainingInput.serviceAccount" in str(refused.exception)
    result = installation.run(*command, "--submit-as", ACCOUNT, "--api", "https://api.example.com")
    assert result.exit_code == 0, result.output
    target = json.loads(result.stdout)["httpTarget"]
    schemas = json.loads((files("googleapiclient") / DISCOVERED).read_text())["schemas"]
    assert set(target) <= set(schemas["HttpTarget"]["properties"])
    assert set(target["oauthToken"]) <= set(schemas["OAuthToken"]["properties"])
    assert target["uri"] == "https://api.example.com/v1/projects/my-project/jobs"
    assert target["oauthToken"]["serviceAccountEmail"] == ACCOUNT
    assert json.loads(base64.b64decode(target["body"])) == document


def test_options_of_a_schedule_through_the_api_belong_together(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(NIGHTLY))
    for option in (("--submit-as", ACCOUNT), ("--api", "https://api.example.com")):
        result = installation.run(
            "schedule",
            "create",
            "nightly",
            str(file),
            "--cron",
            "0 3 * * *",
            "--follow-packages",
            "--dry-run",
            *option,
        )
        assert "belong together" in str(result.exception)


def test_options_that_cloud_scheduler_could_not_use_are_refused_in_a_dry_run(
    installation: Installation, tmp_path: Path
) -> None:
    (file := tmp_path / "nightly.yaml").write_text(yaml.safe_dump(NIGHTLY))
    common = (
        "schedule",
        "create",
        "nightly",
        str(file),
        "--cron",
        "0 3 * * *",
        "--follow-packages",
        "--dry-run",
    )
    for options, problem in (
        (
            ("--submit-as", "me", "--api", "https://api.example.com"),
            "--submit-as: must be the e-mail address",
        ),
        (
            ("--submit-as", "", "--api", "https://api.example.com"),
            "--submit-as: must be the e-mail address",
        ),
        (("--submit-as", ACCOUNT, "--api", "not a url"), "--api: 'not a url' is not an address"),
        (
            ("--submit-as", ACCOUNT, "--api", "http://api.example.com"),
            "--api: 'http://api.example.com' is not an",
        ),
        (("--submit-as", ACCOUNT, "--api", ""), "--api: '' is not an address"),
        (("--time-zone", "Mars"), "--time-zone: 'Mars' is not a time zone"),
        (("--time-zone", ""), "--time-zone: '' is not a time zone"),
        (("--time-zone", "../etc/passwd"), "--time-zone: '../etc/passwd' is not a time zone"),
    ):
        result = installation.run(*common, *options)
        assert isinstance(result.exception, PermanentError), options
        assert problem in str(result.exception)


def test_word_that_is_no_command_is_not_taken_for_a_schedule(installation: Installation) -> None:
    for words in (("rum", "nightly"), ("nightly", "job.yaml", "--cron", "0 3 * * *")):
        result = installation.run("schedule", *words)
        assert result.exit_code == 2
        assert f"No such command '{words[0]}'" in result.stderr


@pytest.mark.parametrize(
    ("document", "message"),
    [({"jobId": "once", **a_spec()}, "can be used only once"), (a_spec(region="moon"), "region")],
)
def test_job_file_that_cannot_be_submitted_repeatedly_is_refused(
    installation: Installation, tmp_path: Path, document: dict[str, object], message: str
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(document))
    result = installation.run(
        "schedule",
        "create",
        "nightly",
        str(file),
        "--cron",
        "0 3 * * *",
        "--follow-packages",
        "--dry-run",
    )
    assert isinstance(result.exception, PermanentError)
    assert message in str(result.exception)


def test_name_that_no_schedule_can_have_is_refused(
    installation: Installation, tmp_path: Path
) -> None:
    (file := tmp_path / "nightly.yaml").write_text(yaml.safe_dump(NIGHTLY), encoding="utf-8")
    options = (str(file), "--cron", "0 3 * * *", "--follow-packages", "--dry-run")
    for name in ("", "a b", "a/b", "../x", "é", "ok.name", "n" * 481):
        for command in (("create", name, *options), ("run", name), ("delete", name)):
            result = installation.run("schedule", *command)
            assert isinstance(result.exception, PermanentError), command
            assert f"NAME: must have at most 480 letters, digits, _ and -, not {name!r}" in str(
                result.exception
            )


def test_location_that_is_no_region_is_refused(installation: Installation) -> None:
    for location in ("", "mars", "us-central1-a", "us/x"):
        for command in (("list",), ("run", "nightly")):
            result = installation.run("schedule", *command, "--location", location)
            assert isinstance(result.exception, PermanentError), location
            assert f"--location: must be a region, not {location!r}" in str(result.exception)


@pytest.mark.parametrize(
    ("job_id", "cron", "zone", "expected"),
    [
        ("nightly_{time:%Y%m%d}", "*/5 * * * *", "Etc/UTC", "would both be nightly_"),
        ("nightly_{time:%H%M}", "0 3 * * *", "Etc/UTC", "would both be nightly_0300"),
        ("nightly_{time:%Y%m%d}", "30 1 * * *", "Europe/Berlin", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 0 * * *", "Europe/London", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 19 * * *", "America/New_York", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 10 * * *", "Australia/Sydney", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 1 * * *", "Etc/UTC", ""),
        ("nightly_{time:%Y%m%d_%H%M}", "30 1 * * *", "Europe/Berlin", ""),
        ("nightly_{time:%Y%m%d_%H%M}", "* * * * *", "Europe/Berlin", ""),
        ("weekly_{time:%Y%W}", "0 3 * * mon", "Europe/Berlin", ""),
        ("nightly_{time:%Y%m%d}", "every 1 hours", "Etc/UTC", ""),
        ("nightly_{time}", "0 3 * *", "Etc/UTC", "is not a cron expression"),
        ("nightly_{time}", "61 3 * * *", "Etc/UTC", "is not a cron expression"),
    ],
)
def test_schedule_with_two_runs_of_one_job_id_is_refused(
    job_id: str, cron: str, zone: str, expected: str
) -> None:
    found = ""
    try:
        check_job_ids(job_id, cron, zone, AT)
    except PermanentError as error:
        found = str(error)
    assert expected in found
    assert bool(found) == bool(expected)


def test_run_that_shares_the_id_of_an_earlier_run_is_a_rejection() -> None:
    world = World()
    document = {"jobId": "nightly_{time:%Y%m%d}", **a_spec()}
    data = json.dumps(document).encode()
    first = world.now
    submit.handle(data, "schedule:nightly/anna", world.deps, first)
    submit.handle(data, "schedule:nightly/anna", world.deps, first)
    assert world.store.rejections() == ()
    world.wait(300)
    with pytest.raises(PermanentError, match="is the job of an earlier message"):
        submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    (rejection,) = world.store.rejections()
    assert rejection.source == "schedule:nightly/anna"
    assert len(world.store.recent_jobs(9)) == 1


def a_message(at: datetime) -> push.Message:
    attributes = {"source": "schedule:nightly/anna", submit.OVERLAP: submit.FORBIDDEN}
    return push.Message(json.dumps(NIGHTLY).encode(), attributes, "1", at)


def test_run_without_overlap_is_left_out_until_the_earlier_job_has_ended() -> None:
    world = World()
    submit.on_message(a_message(world.now), world.deps)
    submit.on_message(a_message(world.now), world.deps)  # a redelivery
    (first,) = world.store.recent_jobs(9)
    world.wait(120)
    submit.on_message(a_message(world.now), world.deps)
    assert [job.job_id for job in world.store.recent_jobs(9)] == [first.job_id]
    (rejection,) = world.store.rejections()
    assert f"{first.job_id} of the same schedule has not ended" in rejection.problems[0]
    cancel_job(first.job_id, "anna", world.deps)
    world.wait(120)
    submit.on_message(a_message(world.now), world.deps)
    assert len(world.store.recent_jobs(9)) == 2


def a_schedule(template: str) -> dict[str, Any]:
    data = json.dumps({"jobId": template, **a_spec()}).encode()
    return publication(
        "my-project", {"source": "schedule:nightly/anna"}, "trainmaster-submit", data
    )


def test_result_of_a_run_is_its_job_or_why_there_is_none() -> None:
    world = World()
    schedule = a_schedule("nightly_{time:%Y%m%d}")
    assert describe_run(schedule, world.now, world.store) == "no job yet"
    data = base64.b64decode(schedule["pubsubTarget"]["data"])
    submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    (job,) = world.store.recent_jobs(9)
    assert describe_run(schedule, world.now, world.store) == f"{job.job_id}: QUEUED"
    world.wait(300)
    assert describe_run(schedule, world.now, world.store) == (
        f"no job: {job.job_id} was used before"
    )
    with pytest.raises(PermanentError):
        submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    assert "is the job of an earlier message" in describe_run(schedule, world.now, world.store)


def test_result_of_a_run_that_crosses_a_minute_is_its_job() -> None:
    world = World()
    schedule = a_schedule("nightly_{time:%Y%m%d_%H%M}")
    data = base64.b64decode(schedule["pubsubTarget"]["data"])
    attempted_at = world.now.replace(second=59, microsecond=900_000)
    world.now = attempted_at + timedelta(seconds=1)
    submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    assert describe_run(schedule, attempted_at, world.store).endswith(": QUEUED")
