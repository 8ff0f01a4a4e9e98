"""What each status of Google's answers means for the calls of Firestore, Pub/Sub, Cloud Storage,
Cloud Logging, Cloud Monitoring, and of the look-ups of what a job names.

    done       the answer is not needed, or says that there is nothing
    unknown    nothing is known, and nothing follows from that
    later      TemporaryError: Pub/Sub delivers the event again
    kept       an error that an operator can repair: Pub/Sub delivers the event again, and an alert
               tells the operator
    race       another invocation was faster: the event is judged again
    refused    an error with the name of the resource that a job names
    final      PermanentError: the same call would fail again, and the event is a dead letter

`tests/contract/test_call_statuses.py` has the calls of the fleets, of which none is final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from http.server import ThreadingHTTPServer
from typing import Any, Final

import pytest
from google.api_core import exceptions

from tests.contract.call_statuses import STATUSES
from tests.support.jobs import START
from tests.support.serving import JsonHandler, serving
from trainmaster.core.intake.registry_images import RegistryImage
from trainmaster.core.reporting.job_log import ServiceLine, Severity
from trainmaster.errors import ConflictError, PermanentError, RefusedError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.gcp.job_log import CloudJobLog
from trainmaster.gcp.log_entries import LogEntries
from trainmaster.gcp.monitoring_metrics import MonitoringMetrics
from trainmaster.gcp.pubsub_bus import PubsubBus
from trainmaster.gcp.resource_lookup import GoogleResources
from trainmaster.gcp.storage_objects import StorageObjects
from trainmaster.messaging import topics
from trainmaster.ports import (
    BucketForbiddenError,
    Existence,
    ObjectForbiddenError,
    Rejection,
)
from trainmaster.ports.metrics import Metric, MetricQuery, MetricsDeniedError

MEANINGS: Final = """
                             400      403      404      409      412      429      500      503
get documents                final    kept     final    later    final    later    later    later
query documents              final    kept     final    later    final    later    later    later
commit                       final    kept     race     race     race     later    later    later
publish                      final    kept     kept     later    final    later    later    later
read an object               final    kept     done     final    final    later    later    later
find an object               final    refused  done     final    final    later    later    later
write an object              final    kept     final    final    final    later    later    later
delete an object             final    done     done     final    final    later    later    later
list objects                 final    refused  done     final    final    later    later    later
find a bucket                final    refused  done     final    final    later    later    later
write log entries            later    later    later    later    later    later    later    later
read log entries             final    kept     final    final    final    later    later    later
read time series             final    refused  done     final    final    later    later    later
find an account              final    unknown  done     final    final    later    later    later
find a secret                final    unknown  done     final    final    later    later    later
find an image                final    unknown  done     final    final    later    later    later
"""
GRPC: Final[dict[int, type[exceptions.GoogleAPICallError]]] = {
    400: exceptions.InvalidArgument,
    403: exceptions.PermissionDenied,
    404: exceptions.NotFound,
    409: exceptions.Aborted,
    412: exceptions.FailedPrecondition,
    429: exceptions.ResourceExhausted,
    500: exceptions.InternalServerError,
    503: exceptions.ServiceUnavailable,
}
"""Status → what the clients of gRPC raise. Source: google.api_core.exceptions."""
SHORT_S: Final = 0.1
"""Deadline of a call with its repetitions: an error that is repeated must not take long here."""


@dataclass
class Google:
    """Services that answer every call with one status."""

    status: int = 503
    message: str = "refused"
    endpoint: str = ""

    def handler(self) -> type[JsonHandler]:
        google = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                error = {"code": google.status, "message": google.message, "errors": []}
                self.answer(google.status, {"error": error})

            do_POST = do_PUT = do_DELETE = do_GET

        return Handler

    def fail(self, *_: object, **__: object) -> None:
        """Raise what a client of gRPC raises for the status."""
        raise GRPC[self.status](self.message)


@pytest.fixture(scope="module")
def google() -> Iterator[Google]:
    google = Google()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), google.handler())) as google.endpoint:
        yield google


@pytest.fixture
def calls(google: Google, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], object]]:
    """Return the calls by name, on the real adapters and clients."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", google.endpoint.removeprefix("http://"))
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", google.endpoint.removeprefix("http://"))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.endpoint)
    firestore = clients.firestore_client("p")
    for method in ("batch_get_documents", "run_query", "commit"):
        monkeypatch.setattr(firestore._firestore_api, method, google.fail)
    store = FirestoreStore(firestore)
    publisher = clients.publisher()
    monkeypatch.setattr(publisher, "publish", google.fail)
    bus = PubsubBus(publisher, "p")
    objects = StorageObjects(clients.storage_client(), deadline_s=SHORT_S)
    line = ServiceLine("digits_1", "key", START, Severity.INFO, "text")
    log = CloudJobLog("p", google.endpoint)
    entries = LogEntries("p", google.endpoint)
    metrics = MonitoringMetrics("p", google.endpoint)
    hour = MetricQuery("digits_1", Metric.CPU, START, START + timedelta(hours=1))
    resources = GoogleResources("p", google.endpoint, google.endpoint, google.endpoint)
    image = RegistryImage("p", "us", "r", "image", "latest")
    return {
        "get documents": lambda: store.load("digits_1"),
        "query documents": store.jobs_with_pending,
        "commit": lambda: store.reject(Rejection("k", "s", job_id=None, problems=(), at=START)),
        "publish": lambda: bus.publish(topics.PROVISION, b"{}", {}),
        "read an object": lambda: objects.read("gs://b/o", max_bytes=9),
        "find an object": lambda: objects.generation("gs://b/o"),
        "write an object": lambda: objects.write("gs://b/o", b"x", content_type="text/plain"),
        "delete an object": lambda: objects.delete("gs://b/o"),
        "list objects": lambda: objects.created("gs://b/o", 9),
        "find a bucket": lambda: objects.bucket_place("b"),
        "write log entries": lambda: log.write([line]),
        "read log entries": lambda: entries.page("text"),
        "read time series": lambda: metrics.read(hour),
        "find an account": lambda: resources.service_account("a@p.iam.gserviceaccount.com"),
        "find a secret": lambda: resources.secret_version("projects/p/secrets/s/versions/1"),
        "find an image": lambda: resources.image(image),
    }


def outcome(call: Callable[[], object]) -> str:
    try:
        answer = call()
    except ConflictError:
        return "race"
    except (BucketForbiddenError, ObjectForbiddenError, MetricsDeniedError):
        return "refused"
    except (RefusedError, exceptions.ClientError):
        return "kept"
    except TemporaryError:
        return "later"
    except PermanentError:
        return "final"
    found: Any = answer[0] if isinstance(answer, tuple) and answer else answer
    return "unknown" if found is Existence.UNKNOWN else "done"


def parse(table: str) -> dict[str, list[str]]:
    """Return the words of each row after the name of its call."""
    rows = [line.rsplit(maxsplit=len(STATUSES)) for line in table.strip("\n").splitlines()[1:]]
    return {name: words for name, *words in rows}


@pytest.mark.parametrize("name", parse(MEANINGS))
def test_status_means_what_the_table_says(
    name: str, google: Google, calls: dict[str, Callable[[], object]]
) -> None:
    found = []
    for google.status in STATUSES:
        found.append(outcome(calls[name]))
    assert found == parse(MEANINGS)[name]


def test_table_has_each_call(calls: dict[str, Callable[[], object]]) -> None:
    assert list(parse(MEANINGS)) == list(calls)


POLICY: Final = "Constraint constraints/gcp.restrictServiceUsage violated for project 123"


@pytest.mark.parametrize("name", parse(MEANINGS))
def test_policy_of_an_organisation_makes_no_dead_letter(
    name: str, google: Google, calls: dict[str, Callable[[], object]]
) -> None:
    """An operator can have it lifted, whatever the status is. A commit that it forbids is judged
    again as a lost race is.
    """
    google.message = POLICY
    try:
        for google.status in (400, 403, 412):
            assert outcome(calls[name]) != "final"
    finally:
        google.message = "refused"
