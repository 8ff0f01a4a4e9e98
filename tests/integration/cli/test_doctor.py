"""The doctor on the real Pub/Sub, Firestore and Cloud Storage emulators, with each thing broken once.

What has no emulator (quotas of a region, notifications of a bucket, accounts) is answered by `Answers`.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.doctor.sample_events import AGENTS_SAY
from cli.doctor.topic_checks import EVENT_TOPICS
from cli.main import app
from emulators.services import iam, pubsub, storage
from emulators.stack import state
from emulators.stack.loopback import call
from shared.errors import ConflictError
from shared.gcp import inspection
from shared.gcp.inspection import TOKEN_FILE, Endpoints
from shared.messaging import codec, topics
from shared.ports import Orphan
from shared.settings import settings
from shared.wiring import core_services

REGION = "us-central1"


@dataclass
class Answers:
    """By the path's end; anything else is not there. `at` stands for the clock of who answers."""

    said: dict[str, tuple[int, Any]] = field(default_factory=dict)
    at: datetime | None = None
    tokens: set[str] = field(default_factory=set)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers.tokens.add(self.headers.get("Authorization", ""))
                path = self.path.partition("?")[0]
                missing = 404, {"error": {"message": "not found"}}
                status, said = next((said for end, said in answers.said.items() if path.endswith(end)), missing)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def date_time_string(self, timestamp: float | None = None) -> str:
                return format_datetime(answers.at or datetime.now(UTC), usegmt=True)

            def log_message(self, format: str, *args: object) -> None:
                """Silent."""

        return Handler


def served(server: ThreadingHTTPServer) -> Generator[str, None, None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Installation:
    """Whole and well, until a test breaks something."""

    project: str
    pubsub: pubsub.PubSub
    pubsub_host: str
    answers: Answers

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["doctor", *arguments])

    def broken(self, *arguments: str) -> list[str]:
        """The lines that ask for a repair; each must say how."""
        result = self.run(*arguments)
        lines = [line for line in result.stdout.splitlines() if line.startswith("FIX ")]
        assert result.exit_code == int(bool(lines)), result.output
        return lines

    def with_schema(self, topic: str, name: str, fields: list[dict[str, object]]) -> None:
        definition = json.dumps({"type": "record", "name": "Event", "fields": fields})
        path = f"/v1/projects/{self.project}"
        call(self.pubsub_host, "POST", f"{path}/schemas?schemaId={name}", {"type": "AVRO", "definition": definition})
        settings = {"schema": f"projects/{self.project}/schemas/{name}", "encoding": "JSON"}
        body = {"topic": {"name": f"projects/{self.project}/topics/{topic}", "schemaSettings": settings}}
        call(self.pubsub_host, "PATCH", f"{path}/topics/{topic}", {**body, "updateMask": "schemaSettings"})

    def subscribe(self, topic: str, **changed: object) -> None:
        """Anew, with something other than it should be. None leaves a field out."""
        path = f"/v1/projects/{self.project}/subscriptions/{topic}"
        body = {**call(self.pubsub_host, "GET", path), **changed}
        call(self.pubsub_host, "DELETE", path)
        call(self.pubsub_host, "PUT", path, {name: value for name, value in body.items() if value is not None})


@pytest.fixture
def answers() -> Answers:
    zones = {"items": [{"name": "us-central1-a"}]}
    quotas = [
        {"metric": "CPUS", "usage": 8.0, "limit": 72.0},
        {"metric": "NVIDIA_T4_GPUS", "usage": 0.0, "limit": 0.0},
        {"metric": "SECURITY_POLICIES", "usage": 3.0, "limit": 3.0},
    ]
    said = {"/zones": (200, zones), f"/regions/{REGION}": (200, {"name": REGION, "quotas": quotas})}
    return Answers(dict(said))


@pytest.fixture
def compute(answers: Answers) -> Iterator[str]:
    yield from served(ThreadingHTTPServer(("127.0.0.1", 0), answers.handler()))


@pytest.fixture
def installation(
    pubsub_emulator: str,
    firestore_emulator: str,
    storage_emulator: str,
    answers: Answers,
    compute: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Installation]:
    project = f"test-{uuid.uuid4().hex[:8]}"
    made = pubsub.PubSub(pubsub_emulator, project)
    pubsub.create_all(made, dict.fromkeys(state.FUNCTIONS, 9))
    made.create_topic(topics.UPLOAD)
    storage.create_bucket(storage_emulator, project, project)
    (tmp_path / "token").write_text(iam.OWNER + "\n", encoding="utf-8")
    with_iam = served(iam.listen(0, project))
    variables = {
        "TRAINMASTER_PROJECT": project,
        "TRAINMASTER_BUCKET": project,
        "TRAINMASTER_WORKER_SERVICE_ACCOUNT": f"worker@{project}.iam.gserviceaccount.com",
        "TRAINMASTER_COMPUTE_ENDPOINT": compute,
        "TRAINMASTER_IAM_ENDPOINT": next(with_iam),
        "PUBSUB_EMULATOR_HOST": pubsub_emulator,
        "FIRESTORE_EMULATOR_HOST": firestore_emulator,
        "STORAGE_EMULATOR_HOST": f"http://{storage_emulator}",
        TOKEN_FILE: str(tmp_path / "token"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    core_services.store.cache_clear()
    yield Installation(project, made, pubsub_emulator, answers)
    with_iam.close()
    settings.cache_clear()
    core_services.store.cache_clear()


def test_nothing_is_wrong_with_what_infra_makes(installation: Installation) -> None:
    result = installation.run("--region", REGION)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert {line.partition(" ")[0] for line in lines} == {"ok", "-"}
    assert f"ok   quota CPUS in {REGION}: 8 of 72" in lines
    assert "GPUS" not in result.stdout, "a quota of nothing is no news"
    assert {f"ok   topic {topic} and its delivery" for topic in EVENT_TOPICS} <= set(lines)


def test_all_topics_are_looked_at() -> None:
    named = {value for name, value in vars(topics).items() if name.isupper()}
    assert {*EVENT_TOPICS, topics.DEAD_LETTER} == named


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"pushConfig": {}}, "pushes nowhere"),
        ({"retryPolicy": None}, "repeats without a pause"),
        ({"deadLetterPolicy": None}, "does not give up into trainmaster-dead-letter"),
        ({"expirationPolicy": None}, "expires when it is not used"),
        ({"expirationPolicy": {"ttl": "86400s"}}, "expires when it is not used"),
        ({"ackDeadlineSeconds": 10}, "waits 10 s for an answer"),
    ],
)
def test_a_delivery_that_is_not_as_it_should_be(
    installation: Installation, changed: dict[str, object], said: str
) -> None:
    installation.subscribe(topics.REPLICA_EXIT, **changed)
    (line,) = installation.broken()
    assert said in line
    assert topics.REPLICA_EXIT in line
    assert "terraform apply" in line


def test_another_dead_letter_is_not_ours(installation: Installation) -> None:
    installation.pubsub.create_topic("elsewhere")
    elsewhere = {"deadLetterTopic": f"projects/{installation.project}/topics/elsewhere", "maxDeliveryAttempts": 100}
    installation.subscribe(topics.SWEEP, deadLetterPolicy=elsewhere)
    (line,) = installation.broken()
    assert "does not give up into" in line


def test_a_schema_is_tried_with_what_agents_say(installation: Installation) -> None:
    """The emulator knows Avro only; what matters here is that Pub/Sub is asked, and its no is told."""
    fields = _avro(AGENTS_SAY[topics.VM_READY])
    installation.with_schema(topics.VM_READY, "fits", fields)
    installation.with_schema(topics.MAINTENANCE, "does-not", [*fields, {"name": "unsaid", "type": "string"}])
    (line,) = installation.broken()
    assert f"the schema of {topics.MAINTENANCE} refuses what agents say" in line
    assert "schemas = false" in line
    assert f"ok   the schema of {topics.VM_READY}, which takes what agents say" in installation.run().stdout


def _avro(said: Mapping[str, object]) -> list[dict[str, object]]:
    """Fields of a record."""
    found: list[dict[str, object]] = []
    for name, value in said.items():
        kind: object = "int" if isinstance(value, int) else "string"
        if isinstance(value, dict):
            kind = {"type": "record", "name": name.title(), "fields": _avro(value)}
        found.append({"name": name, "type": kind})
    return found


def test_what_agents_say_is_what_the_functions_read() -> None:
    """All of it, and no less: what a schema refuses must be found."""
    for topic, read in (
        (topics.VM_READY, codec.vm_ready),
        (topics.REPLICA_EXIT, codec.replica_exit),
        (topics.MAINTENANCE, codec.maintenance),
    ):
        read(json.dumps(AGENTS_SAY[topic]).encode())
    assert set(AGENTS_SAY[topics.REPLICA_EXIT]) | {"host"} == set(codec._ReplicaExit.model_fields)


@pytest.mark.parametrize("kind", ["topics", "subscriptions"])
@pytest.mark.parametrize("name", [topics.SYSTEM_EVENTS, topics.DEAD_LETTER])
def test_what_is_not_there(installation: Installation, kind: str, name: str) -> None:
    call(installation.pubsub_host, "DELETE", f"/v1/projects/{installation.project}/{kind}/{name}")
    lines = installation.broken()
    assert lines
    assert all("no topic" in line or "no subscription" in line or "does not give up" in line for line in lines)
    assert name in lines[0]


def test_the_dead_letter_is_pulled_by_people(installation: Installation) -> None:
    installation.subscribe(topics.DEAD_LETTER, pushConfig={"pushEndpoint": "http://127.0.0.1:9/"})
    (line,) = installation.broken()
    assert "is pushed away" in line


def test_letters_that_wait_are_counted_and_stay(installation: Installation) -> None:
    for nth in range(2):
        installation.pubsub.publish(topics.DEAD_LETTER, b"{}", reason=f"no job {nth}", function="vm_ready")
    for _ in range(2):
        (line,) = installation.broken()
        assert "dead letters: 2" in line
        assert "trainmaster dead-letters list" in line


def test_a_machine_without_an_owner(installation: Installation) -> None:
    orphan = Orphan("4711", "tm-x-aaaaaa-worker-0", "us-central1-a", "x", datetime.now(UTC))
    core_services.store().report_orphan(orphan)
    (line,) = installation.broken()
    assert "1 machines without an owner" in line


def test_an_index_that_is_not_there(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator asks for none; Firestore refuses in these words."""

    def refused(_: object) -> None:
        raise ConflictError("400 FAILED_PRECONDITION: The query requires an index.")

    monkeypatch.setattr(type(core_services.store()), "jobs_with_pending", refused)
    (line,) = installation.broken()
    assert "indexes of Firestore" in line
    assert "requires an index" in line
    assert "terraform apply" in line


def test_a_wrong_clock(installation: Installation, monkeypatch: pytest.MonkeyPatch, compute: str) -> None:
    installation.answers.at = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setenv("TRAINMASTER_IAM_ENDPOINT", compute)
    settings.cache_clear()
    line, _ = installation.broken()  # and that server knows of no permissions
    assert "s ahead" in line
    assert "timedatectl" in line


def test_who_may_only_look_is_told_what_is_missing(installation: Installation) -> None:
    Path(os.environ[TOKEN_FILE]).write_text(iam.VIEWER, encoding="utf-8")
    (line,) = installation.broken()
    assert "you may not aiplatform.customJobs.cancel, aiplatform.customJobs.create" in line
    assert "roles/aiplatform.user" in line
    assert "datastore.entities.get" not in line
    Path(os.environ[TOKEN_FILE]).write_text("forged", encoding="utf-8")
    (line,) = installation.broken()
    assert "log in" in line


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("TRAINMASTER_BUCKET", "no bucket is named"),
        ("TRAINMASTER_WORKER_SERVICE_ACCOUNT", "no account of the VMs is named"),
    ],
)
def test_a_setting_that_is_missing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, variable: str, said: str
) -> None:
    monkeypatch.delenv(variable)
    settings.cache_clear()
    (line,) = installation.broken()
    assert said in line
    assert f"set {variable}" in line


def test_a_setting_that_is_wrong(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_OPERATION_WAIT_S", "a while")
    settings.cache_clear()
    (line,) = installation.broken()
    assert "TRAINMASTER_OPERATION_WAIT_S" in line


def test_a_bucket_that_is_not_there(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_BUCKET", "nobodys-bucket")
    settings.cache_clear()
    (line,) = installation.broken()
    assert "no bucket gs://nobodys-bucket" in line


def test_quotas_that_are_used_up(installation: Installation) -> None:
    full = {"quotas": [{"metric": "N2_CPUS", "usage": 24, "limit": 24}]}
    installation.answers.said[f"/regions/{REGION}"] = 200, full
    (line,) = installation.broken("--region", REGION)
    assert "quota N2_CPUS in us-central1: 24 of 24" in line
    (line,) = installation.broken("--region", "mars-north1")
    assert "no region mars-north1" in line


def test_what_does_not_answer_is_a_finding_and_the_rest_is_looked_at(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_COMPUTE_ENDPOINT", "http://127.0.0.1:9")
    settings.cache_clear()
    installation.subscribe(topics.SWEEP, retryPolicy=None)
    first, second = installation.broken()
    assert topics.SWEEP in first
    assert "Compute Engine: http://127.0.0.1:9 does not answer" in second


def test_findings_as_json(installation: Installation) -> None:
    installation.subscribe(topics.SWEEP, retryPolicy=None)
    result = installation.run("--format", "json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)
    assert [each["what"] for each in findings if each["status"] == "FIX"] == [
        "subscription trainmaster-sweep repeats without a pause"
    ]
    assert all(each["fix"] for each in findings if each["status"] == "FIX")


NOTIFICATION = {
    "topic": f"//pubsub.googleapis.com/projects/p/topics/{topics.UPLOAD}",
    "event_types": ["OBJECT_FINALIZE"],
    "object_name_prefix": "jobs/",
    "payload_format": "JSON_API_V1",
}


@pytest.mark.parametrize(
    ("items", "is_right"),
    [
        ([NOTIFICATION], True),
        ([{**NOTIFICATION, "event_types": [], "object_name_prefix": ""}], True),
        ([], False),
        ([{**NOTIFICATION, "event_types": ["OBJECT_DELETE"]}], False),
        ([{**NOTIFICATION, "object_name_prefix": "packages/"}], False),
        ([{**NOTIFICATION, "topic": "//pubsub.googleapis.com/projects/p/topics/another"}], False),
    ],
)
def test_on_google_cloud_the_bucket_must_tell_of_job_files_and_the_account_exist(
    installation: Installation,
    compute: str,
    monkeypatch: pytest.MonkeyPatch,
    items: list[dict[str, object]],
    is_right: bool,
) -> None:
    """With nothing of the local stack but what cannot be had otherwise: Google is asked with the caller's token."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.delenv("TRAINMASTER_COMPUTE_ENDPOINT")
    settings.cache_clear()
    google = Endpoints(storage=compute, compute=compute, accounts=compute)
    monkeypatch.setattr(inspection, "GOOGLE", google)
    said = installation.answers.said
    said[f"/b/{installation.project}"] = 200, {"name": installation.project}
    said["/notificationConfigs"] = 200, {"items": items} if items else {}
    account = f"/serviceAccounts/worker@{installation.project}.iam.gserviceaccount.com"
    said[account] = 200, {"email": "worker"}
    lines = installation.broken()
    assert bool(lines) is not is_right
    assert all("does not tell trainmaster-upload of new files" in line for line in lines)
    assert installation.answers.tokens == {f"Bearer {iam.OWNER}"}
    del said[account]
    assert any("no account worker@" in line for line in installation.broken())
