"""`trainmaster doctor` on the emulators of Pub/Sub, Firestore and Cloud Storage, with one defect at
a time.

`FakeGoogle` answers requests for which there is no emulator: quotas, notifications of a bucket,
accounts.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.integration.cli.fake_google import FakeGoogle
from tests.support.serving import serving
from trainmaster.cli.doctor.function_checks import FUNCTIONS
from trainmaster.cli.doctor.sample_events import SAMPLE_EVENTS
from trainmaster.cli.doctor.topic_checks import EVENT_TOPICS
from trainmaster.cli.main import app
from trainmaster.errors import PermanentError
from trainmaster.gcp.clients import TOKEN_FILE, firestore_client
from trainmaster.gcp.tools import dead_letter_box, inspection
from trainmaster.gcp.tools.inspection import Endpoints
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.messaging import agent_messages, google_events, topics
from trainmaster.ports import Orphan
from trainmaster.settings import settings
from trainmaster.wiring import core_services
from trainmaster_emulators.process import stack_config
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.services import iam, pubsub, storage

REGION = "us-central1"


@dataclass(frozen=True)
class Installation:
    """An installation as infra/ creates it."""

    project: str
    pubsub: pubsub.PubSub
    pubsub_host: str
    google: FakeGoogle

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["doctor", *arguments])

    def problems(self, *arguments: str) -> list[str]:
        """Run the command, and return the lines of the problems that it found."""
        result = self.run(*arguments)
        lines = [line for line in result.stdout.splitlines() if line.startswith("FIX ")]
        assert result.exit_code == int(bool(lines)), result.output
        return lines

    def with_schema(self, topic: str, name: str, fields: list[dict[str, object]]) -> None:
        definition = json.dumps({"type": "record", "name": "Event", "fields": fields})
        path = f"/v1/projects/{self.project}"
        call(
            self.pubsub_host,
            "POST",
            f"{path}/schemas?schemaId={name}",
            {"type": "AVRO", "definition": definition},
        )
        settings = {"schema": f"projects/{self.project}/schemas/{name}", "encoding": "JSON"}
        body = {
            "topic": {"name": f"projects/{self.project}/topics/{topic}", "schemaSettings": settings}
        }
        call(
            self.pubsub_host,
            "PATCH",
            f"{path}/topics/{topic}",
            {**body, "updateMask": "schemaSettings"},
        )

    def change_subscription(self, topic: str, **changed: object) -> None:
        """Replace the subscription by one with changed fields. None removes a field."""
        path = f"/v1/projects/{self.project}/subscriptions/{topic}"
        body = {**call(self.pubsub_host, "GET", path), **changed}
        call(self.pubsub_host, "DELETE", path)
        call(
            self.pubsub_host,
            "PUT",
            path,
            {name: value for name, value in body.items() if value is not None},
        )


@pytest.fixture
def google() -> FakeGoogle:
    zones = {"items": [{"name": "us-central1-a"}]}
    quotas = [
        {"metric": "CPUS", "usage": 8.0, "limit": 72.0},
        {"metric": "SSD_TOTAL_GB", "usage": 0.0, "limit": 500.0},
        {"metric": "PREEMPTIBLE_CPUS", "usage": 0.0, "limit": 0.0},
        {"metric": "COMMITTED_NVIDIA_T4_GPUS", "usage": 0.0, "limit": 0.0},
        {"metric": "NVIDIA_T4_GPUS", "usage": 0.0, "limit": 0.0},
        {"metric": "SECURITY_POLICIES", "usage": 3.0, "limit": 3.0},
    ]
    responses = {
        "/zones": (200, zones),
        f"/regions/{REGION}": (200, {"name": REGION, "quotas": quotas}),
    }
    responses |= {
        "/aggregated/instances": (200, {"items": {}}),
        "/nodes": (200, {}),
        "/queuedResources": (200, {}),
    }
    return FakeGoogle(responses)


@pytest.fixture
def compute(google: FakeGoogle) -> Iterator[str]:
    with google.serving() as endpoint:
        yield endpoint


@pytest.fixture
def installation(
    pubsub_emulator: str,
    firestore_emulator: str,
    storage_emulator: str,
    google: FakeGoogle,
    compute: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Installation]:
    project = f"test-{uuid.uuid4().hex[:8]}"
    client = pubsub.PubSub(pubsub_emulator, project)
    pubsub.create_topics_and_subscriptions(client, dict.fromkeys(stack_config.FUNCTIONS, 9))
    client.create_topic(topics.UPLOAD)
    storage.create_bucket(storage_emulator, project, project)
    (tmp_path / "token").write_text(iam.OWNER + "\n", encoding="utf-8")
    variables = {
        "TRAINMASTER_PROJECT": project,
        "TRAINMASTER_BUCKET": project,
        "TRAINMASTER_WORKER_SERVICE_ACCOUNT": f"worker@{project}.iam.gserviceaccount.com",
        "TRAINMASTER_COMPUTE_ENDPOINT": compute,
        "TRAINMASTER_TPU_ENDPOINT": compute,
        "PUBSUB_EMULATOR_HOST": pubsub_emulator,
        "FIRESTORE_EMULATOR_HOST": firestore_emulator,
        "STORAGE_EMULATOR_HOST": f"http://{storage_emulator}",
        TOKEN_FILE: str(tmp_path / "token"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dead_letter_box, "PULL_S", 0.5)  # there are no letters, except in one test
    settings.cache_clear()
    core_services.store.cache_clear()
    with serving(iam.listen(0, project)) as endpoint:
        monkeypatch.setenv("TRAINMASTER_IAM_ENDPOINT", endpoint)
        monkeypatch.setenv("TRAINMASTER_IAM_ACCOUNTS_ENDPOINT", endpoint)
        yield Installation(project, client, pubsub_emulator, google)
    # The emulator works for each push subscription without a pause, also if it has no messages.
    for subscription in call(pubsub_emulator, "GET", f"/v1/projects/{project}/subscriptions")[
        "subscriptions"
    ]:
        call(pubsub_emulator, "DELETE", f"/v1/{subscription['name']}")
    settings.cache_clear()
    core_services.store.cache_clear()


def test_complete_installation_has_no_problems(installation: Installation) -> None:
    result = installation.run("--region", REGION)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert {line.partition(" ")[0] for line in lines} == {"ok", "-", "!"}
    assert f"ok   quota CPUS in {REGION}: 8 of 72" in lines
    assert (
        f"ok   quota SSD_TOTAL_GB in {REGION}: 0 of 500 (enough for 5 replicas with default disks)"
        in lines
    )
    (limited,) = [line for line in lines if line.startswith("! ")]
    assert f"that need NVIDIA_T4_GPUS wait indefinitely: these quotas are 0 in {REGION}" in limited
    assert {f"ok   topic {topic} and its subscription" for topic in EVENT_TOPICS} <= set(lines)
    assert f"ok   topic {topics.JOB_STATE}" in lines
    (retries,) = [line for line in lines if "retry policies" in line]
    assert retries.startswith("-    retry policies of the subscriptions: not checked"), (
        "the local stack needs none"
    )


def test_every_topic_is_checked() -> None:
    all_topics = {value for name, value in vars(topics).items() if name.isupper()}
    assert {*EVENT_TOPICS, topics.DEAD_LETTER, topics.JOB_STATE} == all_topics


def test_changed_subscription_is_a_problem(installation: Installation) -> None:
    installation.pubsub.create_topic("elsewhere")
    elsewhere = {
        "deadLetterTopic": f"projects/{installation.project}/topics/elsewhere",
        "maxDeliveryAttempts": 100,
    }
    changes: dict[str, tuple[dict[str, object], str]] = {
        topics.REPLICA_EXIT: ({"pushConfig": {}}, "has no push endpoint"),
        topics.VM_READY: (
            {"deadLetterPolicy": None},
            "does not move messages to trainmaster-dead-letter",
        ),
        topics.SWEEP: (
            {"deadLetterPolicy": elsewhere},
            "does not move messages to trainmaster-dead-letter",
        ),
        topics.SUBMIT: ({"expirationPolicy": None}, "expires when it is not used"),
        topics.PROVISION: ({"expirationPolicy": {"ttl": "86400s"}}, "expires when it is not used"),
        topics.MAINTENANCE: ({"ackDeadlineSeconds": 10}, "has an acknowledgement deadline of 10 s"),
        topics.DEAD_LETTER: (
            {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/"}},
            "has a push endpoint",
        ),
    }
    for topic, (changed, _) in changes.items():
        installation.change_subscription(topic, **changed)
    lines = installation.problems()
    assert len(lines) == len(changes)
    for topic, (_, message) in changes.items():
        assert any(
            f"subscription {topic} {message}" in line and "terraform apply" in line
            for line in lines
        ), topic


def test_schema_that_rejects_agents_events_is_a_problem(installation: Installation) -> None:
    """The emulator supports only Avro.

    The test shows that Pub/Sub validates the sample, and its error is shown.
    """
    fields = _avro(SAMPLE_EVENTS[topics.VM_READY])
    installation.with_schema(topics.VM_READY, "fits", fields)
    installation.with_schema(
        topics.MAINTENANCE, "does-not", [*fields, {"name": "missing", "type": "string"}]
    )
    (line,) = installation.problems()
    assert f"the schema of {topics.MAINTENANCE} rejects the events of agents" in line
    assert "schemas = false" in line
    assert f"ok   schema of {topics.VM_READY}" in installation.run().stdout


def _avro(event: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the fields of an Avro record that describes the event."""
    fields: list[dict[str, object]] = []
    for name, value in event.items():
        kind: object = "int" if isinstance(value, int) else "string"
        if isinstance(value, dict):
            kind = {"type": "record", "name": name.title(), "fields": _avro(value)}
        fields.append({"name": name, "type": kind})
    return fields


def test_sample_events_have_all_fields_that_functions_decode() -> None:
    for topic, decode in (
        (topics.VM_READY, agent_messages.decode_vm_ready),
        (topics.REPLICA_EXIT, agent_messages.decode_replica_exit),
        (topics.MAINTENANCE, google_events.decode_maintenance),
    ):
        decode(json.dumps(SAMPLE_EVENTS[topic]).encode())
    assert set(SAMPLE_EVENTS[topics.REPLICA_EXIT]) | {"host"} == set(
        agent_messages.ReplicaExitMessage.model_fields
    )


@pytest.mark.parametrize("kind", ["topics", "subscriptions"])
@pytest.mark.parametrize("name", [topics.SYSTEM_EVENTS, topics.DEAD_LETTER])
def test_missing_topic_or_subscription_is_a_problem(
    installation: Installation, kind: str, name: str
) -> None:
    call(installation.pubsub_host, "DELETE", f"/v1/projects/{installation.project}/{kind}/{name}")
    lines = installation.problems()
    assert lines
    assert all(
        "no topic" in line or "no subscription" in line or "does not move" in line for line in lines
    )
    assert name in lines[0]


def test_dead_letters_are_counted_and_kept(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_box, "PULL_S", 2.0)
    for number in range(2):
        installation.pubsub.publish(
            topics.DEAD_LETTER, b"{}", reason=f"no job {number}", function="vm_ready"
        )
    for _ in range(2):
        (line,) = installation.problems()
        assert "dead letters: 2" in line
        assert "trainmaster dead-letters list" in line


def test_orphan_and_unreadable_job_are_problems(installation: Installation) -> None:
    orphan = Orphan(
        "4711", "tm-x-aaaaaaaaaaaaaaaa-worker-0", "us-central1-a", "x", datetime.now(UTC)
    )
    core_services.store().report_orphan(orphan)
    (line,) = installation.problems()
    assert "VMs or TPU nodes without a job: 1" in line
    client = firestore_client(installation.project)
    client.document("jobs/digits_1").set({"is_live": True, "schema": 99})
    client.close()
    (line,) = (line for line in installation.problems() if "without a job" not in line)
    assert "job digits_1 cannot be read by this release" in line
    assert "docs/runbooks.md#unreadable-job" in line


def test_missing_index_is_a_problem(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator needs no indexes. The error is that of Firestore."""

    def reject(_: object) -> None:
        raise PermanentError(
            "Firestore: query: 400 The query requires an index. `terraform apply` creates it"
        )

    monkeypatch.setattr(type(core_services.store()), "jobs_with_pending", reject)
    (line,) = installation.problems()
    assert "indexes of Firestore" in line
    assert "requires an index" in line
    assert "terraform apply" in line


def test_wrong_clock_is_a_problem(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, compute: str
) -> None:
    installation.google.at = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setenv("TRAINMASTER_IAM_ENDPOINT", compute)
    settings.cache_clear()
    line, _ = installation.problems()  # the second problem: the fake server has no permissions
    assert "s ahead" in line
    assert "timedatectl" in line


def test_missing_permissions_are_listed(installation: Installation) -> None:
    Path(os.environ[TOKEN_FILE]).write_text(iam.VIEWER, encoding="utf-8")
    project, api = installation.problems()
    assert "you lack the permissions datastore.entities.create, datastore.entities.update" in (
        project
    )
    assert "roles/datastore.user" in project
    assert "datastore.entities.get" not in project
    assert "you lack the permissions aiplatform.customJobs.create" in api
    assert "aiplatform.customJobs.get" not in api
    assert "`api_users` of infra/" in api
    Path(os.environ[TOKEN_FILE]).write_text("forged", encoding="utf-8")
    (line,) = installation.problems()
    assert "log in" in line


def test_missing_or_invalid_setting_and_missing_bucket_are_problems(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = "TRAINMASTER_WORKER_SERVICE_ACCOUNT"
    for variable, value, message in (
        ("TRAINMASTER_BUCKET", None, "TRAINMASTER_BUCKET is not set: set TRAINMASTER_BUCKET"),
        (worker, None, f"{worker} is not set: set {worker}"),
        ("TRAINMASTER_OPERATION_WAIT_S", "a while", "TRAINMASTER_OPERATION_WAIT_S"),
        ("TRAINMASTER_BUCKET", "missing-bucket", "no bucket gs://missing-bucket"),
    ):
        with monkeypatch.context() as changed:
            if value is None:
                changed.delenv(variable)
            else:
                changed.setenv(variable, value)
            settings.cache_clear()
            (line,) = installation.problems()
        assert message in line


def test_full_quota_and_unknown_region_are_problems(installation: Installation) -> None:
    full = {"quotas": [{"metric": "N2_CPUS", "usage": 24, "limit": 24}]}
    installation.google.responses[f"/regions/{REGION}"] = 200, full
    (line,) = installation.problems("--region", REGION)
    assert "quota N2_CPUS in us-central1: 24 of 24" in line
    assert (
        "gcloud beta quotas preferences create --service compute.googleapis.com"
        f" --project {installation.project} --billing-project {installation.project}"
        " --quota-id N2-CPUS-per-project-region --preferred-value 48"
        " --dimensions region=us-central1" in line
    )
    (line,) = installation.problems("--region", "mars-north1")
    assert "no region mars-north1" in line


def test_unreachable_api_is_a_problem_and_other_checks_continue(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_COMPUTE_ENDPOINT", "http://127.0.0.1:9")
    settings.cache_clear()
    installation.change_subscription(topics.SWEEP, expirationPolicy=None)
    *unreachable, last = installation.problems()
    assert unreachable
    assert all("http://127.0.0.1:9 does not answer" in line for line in unreachable)
    assert any("Compute Engine" in line for line in unreachable)
    assert topics.SWEEP in last


def test_findings_are_printed_as_json(installation: Installation) -> None:
    installation.change_subscription(topics.SWEEP, expirationPolicy=None)
    result = installation.run("--format", "json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)
    assert [finding["what"] for finding in findings if finding["status"] == "FIX"] == [
        "subscription trainmaster-sweep expires when it is not used"
    ]
    assert all(finding["fix"] for finding in findings if finding["status"] == "FIX")


NOTIFICATION: dict[str, object] = {
    "topic": f"//pubsub.googleapis.com/projects/p/topics/{topics.UPLOAD}",
    "event_types": ["OBJECT_FINALIZE"],
    "object_name_prefix": "jobs/",
    "payload_format": "JSON_API_V1",
}


def on_google_cloud(
    installation: Installation, google: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the command call FakeGoogle in place of Google. Pub/Sub and Firestore stay emulators."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.delenv("TRAINMASTER_COMPUTE_ENDPOINT")
    settings.cache_clear()
    endpoints = Endpoints(
        storage=google, compute=google, iam=google, orgpolicy=google, cloudfunctions=google
    )
    monkeypatch.setattr(inspection, "GOOGLE", endpoints)
    for topic in EVENT_TOPICS:
        installation.change_subscription(
            topic, retryPolicy={"minimumBackoff": "10s", "maximumBackoff": "600s"}
        )
    functions = [
        {"name": f"projects/p/locations/r/functions/{name}", "state": "ACTIVE"}
        for name in FUNCTIONS
    ]
    functions[-1]["url"] = f"{google}/api"
    installation.google.responses |= {
        f"/b/{installation.project}": (200, {"name": installation.project}),
        "/notificationConfigs": (200, {"items": [NOTIFICATION]}),
        f"/serviceAccounts/worker@{installation.project}.iam.gserviceaccount.com": (
            200,
            {"email": "worker"},
        ),
        **{
            f"/{runtime.image}": (200, {"name": "image"})
            for runtime in RUNTIMES.values()
            if runtime.image
        },
        "/functions": (200, {"functions": functions}),
        f"/api/v1/projects/{installation.project}/jobs": (401, {"error": {"code": 401}}),
    }


def test_on_google_cloud_notification_of_the_bucket_is_checked(
    installation: Installation, compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests to Google carry the caller's token. The API is also called without one."""
    on_google_cloud(installation, compute, monkeypatch)
    cases: tuple[tuple[list[dict[str, object]], bool], ...] = (
        ([NOTIFICATION], True),
        ([{**NOTIFICATION, "event_types": [], "object_name_prefix": ""}], True),
        ([], False),
        ([{**NOTIFICATION, "event_types": ["OBJECT_DELETE"]}], False),
        ([{**NOTIFICATION, "object_name_prefix": "packages/"}], False),
        ([{**NOTIFICATION, "topic": "//pubsub.googleapis.com/projects/p/topics/another"}], False),
    )
    for items, is_right in cases:
        installation.google.responses["/notificationConfigs"] = (
            200,
            {"items": items} if items else {},
        )
        lines = installation.problems()
        assert bool(lines) is not is_right, items
        assert all("does not notify trainmaster-upload of new files" in line for line in lines), (
            items
        )
    assert installation.google.tokens == {f"Bearer {iam.OWNER}", ""}


def test_on_google_cloud_missing_service_account_and_retry_policy_are_problems(
    installation: Installation, compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_google_cloud(installation, compute, monkeypatch)
    del installation.google.responses[
        f"/serviceAccounts/worker@{installation.project}.iam.gserviceaccount.com"
    ]
    installation.change_subscription(topics.SWEEP, retryPolicy=None)
    lines = installation.problems()
    assert len(lines) == 2
    assert any("no service account worker@" in line for line in lines)
    (line,) = [
        line for line in lines if "subscription trainmaster-sweep retries without backoff" in line
    ]
    assert "terraform apply" in line
