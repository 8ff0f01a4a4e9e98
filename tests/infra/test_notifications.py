"""Notifications in infra/: the schema of their topic, the webhook and the e-mails, which are off by
default.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on (`conftest.py`).
"""

from __future__ import annotations

import base64
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import functions_framework
import pytest
from flask import Flask
from flask.testing import FlaskClient
from google.protobuf.descriptor import Descriptor
from werkzeug import Request, Response
from werkzeug.serving import make_server

from tests.infra.conftest import Plan
from tests.infra.test_topic_schemas import SCHEMAS, accepts, compile_schema, fields, fields_of_model
from tests.support.captured_logs import CapturedLogs
from tests.support.jobs import CHIEF, a_tuning_spec
from tests.support.serving import serving
from tests.support.world import World
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import JobState
from trainmaster.messaging import topics
from trainmaster.messaging.job_state import (
    JobStateMessage,
    Transition,
    encode_job_state,
    job_state_message,
)
from trainmaster_emulators.checkout import ROOT

SCHEMA: Final = SCHEMAS / "job-state.proto"
FUNCTION: Final = "google_cloudfunctions2_function"
WEBHOOK: Final = ROOT / "infra" / "webhook" / "main.py"


@pytest.fixture(scope="module")
def job_state_schema(tmp_path_factory: pytest.TempPathFactory) -> Descriptor:
    return compile_schema(SCHEMA, tmp_path_factory.mktemp("proto") / "descriptors")


def messages() -> Iterator[JobStateMessage]:
    """Yield a message of every kind and transition that a world of one job makes."""
    failed, tuned = World(), World()
    failed.submit()
    failed.deliver()
    failed.report_all_ready()
    failed.exit_program(CHIEF, status=0)
    tuned.submit({**a_tuning_spec(maxTrials=1, maxParallelTrials=1), "labels": {"team": "vision"}})
    tuned.deliver()
    for world in (failed, tuned):
        for job in world.store.recent_jobs(10):
            for entry in world.store.ledger(job.job_id):
                if is_transition(entry):
                    yield job_state_message(entry, job)


def is_transition(entry: LedgerEntry) -> bool:
    return entry.decision.action.kind in {
        "accept_job",
        "begin_preparing",
        "begin_running",
        "succeed_job",
    }


def test_schema_has_exactly_the_fields_of_the_message(job_state_schema: Descriptor) -> None:
    assert fields(job_state_schema) == fields_of_model(JobStateMessage)


def test_schema_accepts_real_messages_and_rejects_others(job_state_schema: Descriptor) -> None:
    real = [json.loads(encode_job_state(message)) for message in messages()]
    assert {message["kind"] for message in real} == {"job", "tuning", "trial"}
    assert {message["transition"] for message in real} >= {
        "queued",
        "preparing",
        "running",
        "succeeded",
    }
    assert [message for message in real if not accepts(job_state_schema, message)] == []
    for name, model_field in JobStateMessage.model_fields.items():
        if model_field.is_required():
            assert not accepts(
                job_state_schema, {key: value for key, value in real[0].items() if key != name}
            ), name
    assert not accepts(job_state_schema, {**real[0], "unknown_field": 1})


def test_installation_publishes_nothing_and_has_no_subscriber_by_default(plan: Plan) -> None:
    for function in plan.of(FUNCTION).values():
        assert (
            function["service_config"][0]["environment_variables"]["TRAINMASTER_NOTIFICATIONS"]
            == "false"
        )
    assert topics.JOB_STATE not in {
        entry["name"] for entry in plan.of("google_pubsub_subscription").values()
    }
    assert not plan.of("google_secret_manager_secret_iam_member")
    assert not [
        alert for alert in plan.of("google_monitoring_alert_policy") if "failed_job" in alert
    ]


def test_webhook_is_a_function_with_its_own_account_and_secret(full_plan: Plan) -> None:
    plan = full_plan
    functions = {
        function["name"]: function["service_config"][0] for function in plan.of(FUNCTION).values()
    }
    webhook = functions.pop("trainmaster-job-webhook")
    functions.pop("trainmaster-job-chat")
    assert webhook["environment_variables"]["CONSOLE_ADDRESS"] == "https://console.example.com"
    (secret,) = webhook["secret_environment_variables"]
    assert (secret["key"], secret["secret"], secret["version"]) == (
        "WEBHOOK_ADDRESS",
        "slack-webhook",
        "latest",
    )
    assert webhook["ingress_settings"] == "ALLOW_INTERNAL_ONLY"
    grants = plan.of("google_secret_manager_secret_iam_member").values()
    assert {grant["role"] for grant in grants} == {"roles/secretmanager.secretAccessor"}
    assert {grant["secret_id"] for grant in grants} == {"slack-webhook", "chat"}
    for function in functions.values():
        assert function["environment_variables"]["TRAINMASTER_NOTIFICATIONS"] == "true", (
            "the webhook implies it"
        )
        assert not function["secret_environment_variables"]
    subscriptions = {
        entry["name"]: entry for entry in plan.of("google_pubsub_subscription").values()
    }
    assert "FAILED" in subscriptions[topics.JOB_STATE]["filter"]
    assert not subscriptions["trainmaster-submit"]["filter"]
    assert subscriptions[f"{topics.JOB_STATE}-chat"]["filter"] == 'attributes.state = "FAILED"'
    (alert,) = (
        body
        for name, body in plan.of("google_monitoring_alert_policy").items()
        if "failed_job" in name
    )
    assert alert["documentation"][0]["subject"].startswith("Job ${log.extracted_label.job} failed")
    query = alert["conditions"][0]["condition_matched_log"][0]["filter"]
    assert 'jsonPayload.action="fail_job"' in query
    assert "jsonPayload.duplicate=false" in query


def test_archive_of_the_webhook_has_its_module_and_locked_requirements(
    archives: dict[str, Path],
) -> None:
    with zipfile.ZipFile(archives["sweep"].parent / "webhook.zip") as archive:
        assert set(archive.namelist()) == {"main.py", "requirements.txt"}
        assert archive.read("main.py") == WEBHOOK.read_bytes()


@dataclass
class Webhook:
    """A server in place of Slack's."""

    status: int = 200
    answer: str = "why"
    location: str = ""
    """Address to which it redirects."""
    received: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.paths.append(environ["PATH_INFO"])
        self.received.append(json.loads(Request(environ).get_data() or "null"))
        headers = {"Location": self.location} if self.location else {}
        return Response(self.answer, self.status, headers)(environ, start_response)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    server = Webhook()
    with serving(make_server("127.0.0.1", 0, server)) as address:
        monkeypatch.setenv("WEBHOOK_ADDRESS", f"{address}/services/secret")
        yield server


@pytest.fixture
def function() -> FlaskClient:
    app: Flask = functions_framework.create_app("post_notification", str(WEBHOOK), "http")
    return app.test_client()


def push(function: FlaskClient, message: JobStateMessage | bytes) -> int:
    data = message if isinstance(message, bytes) else encode_job_state(message)
    body = {
        "message": {"data": base64.b64encode(data).decode(), "messageId": "1"},
        "subscription": "s",
    }
    return function.post("/", json=body).status_code


def a_message(**changes: object) -> JobStateMessage:
    (queued, *_) = messages()
    return queued.model_copy(update=changes)


def test_webhook_posts_the_text_that_chat_systems_accept(
    function: FlaskClient, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSOLE_ADDRESS", "https://console.example.com/")
    failed = a_message(
        transition=Transition.FAILED,
        state=JobState.FAILED,
        attempt=2,
        error_message="worker 1 exited with status 1",
    )
    assert push(function, failed) == HTTPStatus.NO_CONTENT
    assert webhook.received == [
        {
            "text": "❌ digits_1: failed (FAILED, attempt 2)\nworker 1 exited with status 1\n"
            "https://console.example.com/jobs/digits_1"
        }
    ]


@pytest.mark.parametrize(
    ("error", "posted"),
    [
        ("<!channel> <@U123> <users/all>", "(!channel) ((at)U123) (users/all)"),
        ("@all look at @here", "(at)all look at (at)here"),
        ("<https://evil.example|the console>", "(https://evil.example|the console)"),
        ("[the console](https://evil.example)", "[the console] (https://evil.example)"),
        ("worker 1 exited\n✅ digits_2: succeeded\r\nhttps://evil.example", None),
        ("exited\u202egpj.\u2066\U000e0041\u200b\x1b[31m\x00", "exitedgpj.[31m"),
    ],
)
def test_text_of_a_program_mentions_no_one_and_hides_no_link(
    function: FlaskClient, webhook: Webhook, error: str, posted: str | None
) -> None:
    assert push(function, a_message(error_message=error)) == HTTPStatus.NO_CONTENT
    (_, *lines) = webhook.received[0]["text"].splitlines()
    assert lines == [posted or "worker 1 exited ✅ digits_2: succeeded https://evil.example"]


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE),
        (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE),
        (HTTPStatus.GONE, HTTPStatus.NO_CONTENT),
    ],
)
def test_webhook_is_called_again_only_where_that_may_help(
    function: FlaskClient, webhook: Webhook, status: int, answer: int
) -> None:
    webhook.status = status
    assert push(function, a_message()) == answer


def test_unreachable_webhook_is_called_again_and_its_address_is_not_logged(
    function: FlaskClient, monkeypatch: pytest.MonkeyPatch, caplog: CapturedLogs
) -> None:
    monkeypatch.setenv("WEBHOOK_ADDRESS", "http://127.0.0.1:9/services/secret")
    assert push(function, a_message()) == HTTPStatus.SERVICE_UNAVAILABLE
    assert "not reached" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirection_is_not_followed_and_counts_as_refused(
    function: FlaskClient, webhook: Webhook, status: int, caplog: CapturedLogs
) -> None:
    """The function may reach addresses that the webhook's server cannot, such as its metadata."""
    webhook.status, webhook.location = status, "/computeMetadata/v1/"
    assert push(function, a_message()) == HTTPStatus.NO_CONTENT
    assert webhook.paths == ["/services/secret"]
    assert f"refused the message: {status}" in caplog.text


def test_refusal_that_repeats_the_address_is_logged_without_it(
    function: FlaskClient, webhook: Webhook, caplog: CapturedLogs
) -> None:
    webhook.status = HTTPStatus.NOT_FOUND
    webhook.answer = "no hook at /services/secret\nforged line" + "x" * 1_000_000
    assert push(function, a_message()) == HTTPStatus.NO_CONTENT
    (logged,) = [record.message for record in caplog.records if record.name == "main"]
    assert "refused the message: 404 'no hook at /…/…" in logged
    assert "secret" not in logged
    assert "\nforged" not in logged
    assert len(logged) < 1000


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"job_id": "x"}'])
def test_message_of_another_shape_is_acknowledged_and_not_posted(
    function: FlaskClient, webhook: Webhook, data: bytes
) -> None:
    assert push(function, data) == HTTPStatus.NO_CONTENT
    assert webhook.received == []
