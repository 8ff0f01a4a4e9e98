"""Errors of Google's clients become ours: TemporaryError (Pub/Sub delivers the event again),
RefusedError (the same, and an operator can repair it), PermanentError and ConflictError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from google.cloud.firestore import Client

from tests.support.jobs import START, a_job
from trainmaster.core.events import JobSubmitted
from trainmaster.core.ledger import LedgerEntry, counters
from trainmaster.core.model.job import JobState
from trainmaster.core.rules.judge import judge
from trainmaster.core.transitions.change import Change
from trainmaster.errors import ConflictError, PermanentError, RefusedError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.errors import explain, google_errors
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.ports import Rejection

NO_INDEX = (
    "The query requires an index. You can create it here: https://console.firebase.google.com/…"
)
NO_DATABASE = (
    "The database (default) does not exist for project p Please visit https://console.cloud.google.com/…",
    "Project 'p' or database '(default)' does not exist.",
    "The project p does not exist or it does not contain an active Cloud Firestore database.",
)
"""Google's messages: they have changed, and differ between its protocols."""
NO_DOCUMENT = "No document to update: projects/p/databases/(default)/documents/jobs/digits_1"


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ServiceUnavailable("down"),
        exceptions.InternalServerError("broken"),
        exceptions.DeadlineExceeded("slow"),
        exceptions.TooManyRequests("quota of calls"),
        exceptions.Aborted("contention"),
        exceptions.RetryError("in vain", cause=exceptions.ServiceUnavailable("down")),
        exceptions.from_http_status(408, "request timeout"),
        requests.ConnectionError("refused"),
        requests.ReadTimeout("slow"),
        TransportError("no metadata server"),
        RefreshError("try again", retryable=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_may_pass_is_temporary_and_names_the_action(error: Exception) -> None:
    with pytest.raises(TemporaryError, match=r"^delete vm: ") as raised, google_errors("delete vm"):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        exceptions.InvalidArgument("bad"),
        exceptions.NotFound("no topic"),
        exceptions.FailedPrecondition("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_will_not_pass_is_permanent(error: Exception) -> None:
    with pytest.raises(PermanentError, match=r"^publish: 40"), google_errors("publish"):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        exceptions.PermissionDenied("no role"),
        exceptions.Unauthenticated("no token"),
        DefaultCredentialsError("none"),
        RefreshError("revoked"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_an_operator_can_repair_is_passed_on_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, google_errors("publish"):
        raise error
    assert raised.value is error


@pytest.fixture
def firestore(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    client = clients.firestore_client("test-errors")
    yield client
    client.close()


@pytest.fixture
def an_entry() -> LedgerEntry:
    event = JobSubmitted(a_job(JobState.QUEUED), START)
    decision = judge(None, event, START)
    none = counters(None, None)
    return LedgerEntry(
        "digits_1", event.key, START, event, decision, none, none, job_state=JobState.QUEUED
    )


def failing(error: Exception) -> Callable[..., Any]:
    """Return a function that raises the error, whatever its arguments are."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_missing_index_stays_in_pubsub_and_says_how_to_create_it(
    firestore: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        firestore._firestore_api, "run_query", failing(exceptions.FailedPrecondition(NO_INDEX))
    )
    with pytest.raises(RefusedError, match=r"requires an index.*terraform apply"):
        FirestoreStore(firestore).jobs_with_pending()


@pytest.mark.parametrize("message", NO_DATABASE)
@pytest.mark.parametrize(
    ("method", "action"),
    [
        ("batch_get_documents", lambda store: store.load("digits_1")),
        (
            "commit",
            lambda store: store.reject(Rejection("k", "s", job_id=None, problems=(), at=START)),
        ),
    ],
    ids=["read", "commit"],
)
def test_missing_database_stays_in_pubsub_and_says_how_to_create_it(
    method: str,
    action: Callable[[FirestoreStore], object],
    message: str,
    firestore: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(firestore._firestore_api, method, failing(exceptions.NotFound(message)))
    with pytest.raises(RefusedError, match=r"does not exist.*terraform apply"):
        action(FirestoreStore(firestore))


@pytest.mark.parametrize(
    "error",
    [
        exceptions.FailedPrecondition("older"),
        exceptions.Aborted("contention"),
        exceptions.NotFound(NO_DOCUMENT),
    ],
    ids=lambda error: type(error).__name__,
)
def test_commit_prevented_by_another_writer_is_a_conflict(
    error: Exception, firestore: Client, monkeypatch: pytest.MonkeyPatch, an_entry: LedgerEntry
) -> None:
    monkeypatch.setattr(firestore._firestore_api, "commit", failing(error))
    with pytest.raises(ConflictError):
        FirestoreStore(firestore).commit(None, an_entry, Change())


def test_commit_that_fails_otherwise_is_a_permanent_error(
    firestore: Client, monkeypatch: pytest.MonkeyPatch, an_entry: LedgerEntry
) -> None:
    monkeypatch.setattr(
        firestore._firestore_api,
        "commit",
        failing(exceptions.InvalidArgument("document too large")),
    )
    with pytest.raises(PermanentError, match="too large"):
        FirestoreStore(firestore).commit(None, an_entry, Change())


@pytest.fixture
def default_credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Exception], None]]:
    """Make google-auth fail with the given error."""
    clients.credentials.cache_clear()
    yield lambda error: monkeypatch.setattr("google.auth.default", failing(error))
    clients.credentials.cache_clear()


def test_missing_credentials_are_a_permanent_error_on_the_command_line(
    default_credentials: Callable[[Exception], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("K_SERVICE", raising=False)
    default_credentials(DefaultCredentialsError("none found"))
    with pytest.raises(PermanentError, match="none found") as raised:
        clients.credentials()
    assert "gcloud auth application-default login" in str(explain(raised.value.__cause__))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [TransportError("no route"), RefreshError("busy", retryable=True)], ids=str
)
def test_unreachable_token_server_is_a_temporary_error(
    error: Exception,
    default_credentials: Callable[[Exception], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("K_SERVICE", raising=False)
    default_credentials(error)
    with pytest.raises(TemporaryError, match=str(error)):
        clients.credentials()


def test_any_failure_of_credentials_in_a_function_is_a_temporary_error(
    default_credentials: Callable[[Exception], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K_SERVICE", "submit")
    default_credentials(RefreshError("metadata server: 404"))
    with pytest.raises(TemporaryError, match="404"):
        clients.credentials()
