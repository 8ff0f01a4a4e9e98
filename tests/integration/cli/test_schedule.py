"""`trainmaster schedule`: what is written to Cloud Scheduler, and options that are refused.

`test_scheduled_runs.py` has the jobs that its messages become.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cli.conftest import Installation
from tests.support.jobs import a_spec
from tests.support.serving import serving
from trainmaster.errors import PermanentError
from trainmaster.gcp.tools.scheduler import CloudScheduler, api_call, publication, scheduler_job

DISCOVERED = "discovery_cache/documents/cloudscheduler.v1.json"
ACCOUNT = "nightly@my-project.iam.gserviceaccount.com"
PARENT = "projects/my-project/locations/us-central1"
NIGHTLY = {"jobId": "nightly_{time:%Y%m%d_%H%M}", **a_spec()}


def create_dry(file: Path) -> tuple[str, ...]:
    """Return the command that prints the schedule `nightly` of a job file and creates none.

    It names packages as the file does, whatever is stored under their names at each run.
    """
    options = ("--cron", "0 3 * * *", "--follow-packages", "--dry-run")
    return ("schedule", "create", "nightly", str(file), *options)


class SchedulerApi(BaseHTTPRequestHandler):
    """The part of Cloud Scheduler's API that creates and replaces jobs."""

    jobs: dict[str, Any] = {}  # noqa: RUF012 - a test has one server

    def do_POST(self) -> None:
        body = self._body()
        exists = body["name"] in self.jobs
        parent, _, _ = body["name"].rpartition("/jobs/")
        is_called_for_the_parent = self.path.partition("?")[0] == f"/v1/{parent}/jobs"
        status = 200 if is_called_for_the_parent else 404
        self._answer(409 if exists else status, body)

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
    result = installation.run(*create_dry(file))
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
    command = create_dry(file)
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
        result = installation.run(*create_dry(file), *option)
        assert "belong together" in str(result.exception)


def test_options_that_cloud_scheduler_could_not_use_are_refused_in_a_dry_run(
    installation: Installation, tmp_path: Path
) -> None:
    (file := tmp_path / "nightly.yaml").write_text(yaml.safe_dump(NIGHTLY))
    command = create_dry(file)
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
        result = installation.run(*command, *options)
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
    result = installation.run(*create_dry(file))
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
