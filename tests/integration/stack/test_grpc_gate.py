"""The IAM of Pub/Sub and Firestore: each function has what infra/ grants, and a refusal names the
permission.

A gate is a server before an emulator. It serves one account, a function or a VM, and passes only
calls that the account may make on Google Cloud: the emulators themselves check no permission.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.cloud.firestore_v1.types import CommitRequest, RunQueryRequest
from google.pubsub_v1.types import PublishRequest, PubsubMessage

from tests.support.refusals import read_refusals
from trainmaster_emulators.realism.call_access import FIRESTORE, PUBSUB, TABLE, granted_access
from trainmaster_emulators.services.grpc_gate import OPTIONS, Gate, listen

COMMIT = "/google.firestore.v1.Firestore/Commit"
QUERY = "/google.firestore.v1.Firestore/RunQuery"
PUBLISH = "/google.pubsub.v1.Publisher/Publish"


class Upstream(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Returns each request; queries return it twice."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method == QUERY:
            return grpc.unary_stream_rpc_method_handler(lambda request, _: iter([request, request]))
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Upstream()], options=OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def call(
    account: str,
    upstream: str,
    method: str,
    request: bytes,
    table: str | None = None,
    timeout: float | None = 5,
) -> Any:
    """Make a call through the account's gate; return the response, or the error."""
    grants = granted_access(account, TABLE.read_text(encoding="utf-8") if table is None else table)
    gate = Gate(account, grants, {FIRESTORE: upstream, PUBSUB: upstream})
    server, address = listen(gate)
    try:
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            if method == QUERY:
                return list(channel.unary_stream(method)(request, timeout=timeout))
            return channel.unary_unary(method)(request, timeout=timeout)
    except grpc.RpcError as error:
        return error
    finally:
        server.stop(None)


def publish(topic: str) -> bytes:
    return bytes(
        PublishRequest.serialize(PublishRequest(topic=f"projects/p/topics/trainmaster-{topic}"))
    )


def test_message_above_pubsubs_limits_is_refused_as_by_google(upstream: str) -> None:
    message = PubsubMessage(data=b"x", attributes={f"a{number}": "" for number in range(101)})
    request = PublishRequest(
        topic="projects/p/topics/trainmaster-submit", messages=[PubsubMessage(data=b"x"), message]
    )
    error = call("upload", upstream, PUBLISH, bytes(PublishRequest.serialize(request)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "more than 100 attributes" in error.details()


def commit() -> bytes:
    return bytes(CommitRequest.serialize(CommitRequest(database="projects/p/databases/(default)")))


@pytest.mark.parametrize(
    ("account", "method", "request_"),
    [
        ("upload", PUBLISH, publish("submit")),
        ("upload", PUBLISH, publish("dead-letter")),
        ("submit", COMMIT, commit()),
    ],
)
def test_granted_call_reaches_the_emulator(
    account: str, method: str, request_: bytes, upstream: str
) -> None:
    assert call(account, upstream, method, request_) == request_


def test_granted_query_returns_every_response(upstream: str) -> None:
    request = RunQueryRequest.serialize(
        RunQueryRequest(parent="projects/p/databases/(default)/documents")
    )
    assert call("upload", upstream, QUERY, request) == [request, request]


@pytest.mark.parametrize(
    ("account", "method", "request_", "permission"),
    [
        ("upload", PUBLISH, publish("provision"), "pubsub.topics.publish on topic provision"),
        ("upload", COMMIT, commit(), "datastore.entities.create on project"),
    ],
)
def test_refusal_names_account_and_permission_and_is_printed(
    account: str,
    method: str,
    request_: bytes,
    permission: str,
    upstream: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = call(account, upstream, method, request_)
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert error.details() == f"{account} does not have the permission {permission}"
    assert read_refusals(capsys.readouterr().out) == {error.details(): 1}


@pytest.mark.parametrize(
    ("row", "method", "request_"),
    [
        ("function submit,roles/datastore.user,project,own database only\n", COMMIT, commit()),
        (
            "function submit,roles/pubsub.publisher,topic tune,\n",
            PUBLISH,
            publish("tune"),
        ),
    ],
)
def test_call_is_refused_without_its_grant(
    row: str, method: str, request_: bytes, upstream: str
) -> None:
    table = TABLE.read_text(encoding="utf-8")
    assert row in table
    error = call("submit", upstream, method, request_, table.replace(row, ""))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED


def test_unknown_method_is_refused_with_the_remedy(upstream: str) -> None:
    error = call("submit", upstream, "/google.pubsub.v1.Publisher/DeleteTopic", request=b"")
    assert "add the permissions of /google.pubsub.v1.Publisher/DeleteTopic" in error.details()


def test_message_above_the_default_limit_of_grpc_passes(upstream: str) -> None:
    message = PubsubMessage(data=bytes(5 << 20))
    request = PublishRequest(topic="projects/p/topics/trainmaster-submit", messages=[message])
    data = bytes(PublishRequest.serialize(request))
    assert call("upload", upstream, PUBLISH, data) == data


def test_call_without_a_deadline_reaches_the_emulator(upstream: str) -> None:
    assert call("submit", upstream, COMMIT, commit(), timeout=None) == commit()
