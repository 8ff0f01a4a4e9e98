"""The Bus on Google's Pub/Sub emulator, and on a Pub/Sub that fails."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.api_core.exceptions import PermissionDenied
from google.pubsub_v1.types import PublishRequest, PublishResponse

from tests.support.load import is_quick
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.gcp import clients, pubsub_bus
from trainmaster.gcp.pubsub_bus import PubsubBus
from trainmaster.gcp.retries import CALL_S, retry_options
from trainmaster_emulators.services.pubsub import PubSub

OUTAGE_S = 20.0


@pytest.fixture
def project() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def pubsub(pubsub_emulator: str, project: str, monkeypatch: pytest.MonkeyPatch) -> PubSub:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_emulator)
    made = PubSub(pubsub_emulator, project)
    made.create_topic("trainmaster-submit")
    made.create_pull("trainmaster-submit", "trainmaster-submit")
    return made


@pytest.fixture
def bus(pubsub: PubSub, project: str) -> Iterator[PubsubBus]:
    made = PubsubBus(clients.publisher(), project)
    yield made
    made.close()


def test_published_message_arrives_with_its_bytes_and_attributes(
    pubsub: PubSub, bus: PubsubBus
) -> None:
    messages = {b"\x00\xff not text": {"source": "gs://b/jobs/ä.yaml#1"}, b"{}": {}}
    for data, attributes in messages.items():
        bus.publish("trainmaster-submit", data, attributes)
    received = {
        message["data"]: message["attributes"] for message in pubsub.pull("trainmaster-submit")
    }
    assert received == messages


def test_messages_of_all_batches_arrive(
    pubsub: PubSub, bus: PubsubBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub_bus, "BATCH_MAX", 2)
    bus.publish_all("trainmaster-submit", [b"1", b"2", b"3"])
    bus.publish_all("trainmaster-submit", [])
    assert sorted(message["data"] for message in pubsub.pull("trainmaster-submit")) == [
        b"1",
        b"2",
        b"3",
    ]


def test_publishing_to_a_missing_topic_is_refused_until_it_exists(bus: PubsubBus) -> None:
    with pytest.raises(RefusedError, match=r"publish to no-such-topic: 404.*terraform apply"):
        bus.publish("no-such-topic", b"{}", {})


class FailingPubSub(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers with these statuses one after the other, then with the last one for ever."""

    def __init__(self, *statuses: grpc.StatusCode) -> None:
        self.statuses = list(statuses)
        self.messages: list[int] = []
        """Number of messages of each request."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def publish(request: PublishRequest, context: grpc.ServicerContext) -> PublishResponse:
            self.messages.append(len(request.messages))
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            if status is not grpc.StatusCode.OK:
                context.abort(status, "as the test says")
            return PublishResponse(message_ids=["1"])

        return grpc.unary_unary_rpc_method_handler(
            publish, PublishRequest.deserialize, PublishResponse.serialize
        )


def served_pubsub(
    port: int, handler: grpc.GenericRpcHandler | None = None
) -> tuple[grpc.Server, int]:
    """Start a server at the port; 0: at any. Return its port as well."""
    server = grpc.server(
        ThreadPoolExecutor(1), handlers=[handler or FailingPubSub(grpc.StatusCode.OK)]
    )
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FailingPubSub, PubsubBus]]:
    monkeypatch.setattr(pubsub_bus, "CALL", retry_options(1.5))
    handler = FailingPubSub(grpc.StatusCode.OK)
    server, port = served_pubsub(0, handler)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{port}")
    bus = PubsubBus(clients.publisher(), "p")
    yield handler, bus
    bus.close()
    server.stop(None).wait()


def test_many_messages_are_published_in_batches(failing: tuple[FailingPubSub, PubsubBus]) -> None:
    """One request per message would take the sweep of thousands of jobs longer than until the next
    sweep.
    """
    pubsub, bus = failing
    bus.publish_all("trainmaster-provision", [b"{}"] * 2001)
    assert pubsub.messages == [1000, 1000, 1]


@pytest.mark.parametrize(
    "status",
    [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE],
)
def test_short_failure_of_pubsub_is_retried_until_it_is_over(
    failing: tuple[FailingPubSub, PubsubBus], status: grpc.StatusCode
) -> None:
    pubsub, bus = failing
    pubsub.statuses = [status, status, grpc.StatusCode.OK]
    bus.publish("trainmaster-submit", b"{}", {})
    assert pubsub.statuses == [grpc.StatusCode.OK]


@pytest.mark.parametrize(
    "status",
    [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED],
)
def test_lasting_failure_of_pubsub_is_a_temporary_error(
    failing: tuple[FailingPubSub, PubsubBus], status: grpc.StatusCode
) -> None:
    pubsub, bus = failing
    pubsub.statuses = [status]
    with pytest.raises(TemporaryError, match=r"publish to trainmaster-submit: .*as the test says"):
        bus.publish("trainmaster-submit", b"{}", {})


def test_missing_permission_to_publish_keeps_the_event_in_pubsub(
    failing: tuple[FailingPubSub, PubsubBus],
) -> None:
    pubsub, bus = failing
    pubsub.statuses = [grpc.StatusCode.PERMISSION_DENIED]
    with pytest.raises(PermissionDenied):
        bus.publish("trainmaster-submit", b"{}", {})


def restart_pubsub(port: int) -> tuple[grpc.Server, int]:
    time.sleep(OUTAGE_S)
    return served_pubsub(port)


@pytest.mark.slow
def test_message_is_published_after_pubsub_was_down_for_20_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outage ends all connections, so the client's channel has to reconnect."""
    server, port = served_pubsub(0)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{port}")
    bus = PubsubBus(clients.publisher(), "p")
    bus.publish("trainmaster-submit", b"before", {})
    server.stop(None).wait()
    began = time.monotonic()
    errors = 0
    with ThreadPoolExecutor(1) as pool:
        restart = pool.submit(restart_pubsub, port)
        while True:
            try:
                bus.publish("trainmaster-submit", b"during", {})
                break
            except TemporaryError:
                # Pub/Sub would redeliver the event that this message follows from.
                errors += 1
    took_s = time.monotonic() - began
    assert took_s > OUTAGE_S - 1
    assert is_quick(took_s, OUTAGE_S + CALL_S)
    assert errors <= 2
    bus.publish("trainmaster-submit", b"after", {})
    bus.close()
    restart.result()[0].stop(None).wait()


def test_unreachable_pubsub_is_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:9")
    monkeypatch.setattr(pubsub_bus, "CALL", retry_options(0.5))
    bus = PubsubBus(clients.publisher(), "p")
    with pytest.raises(TemporaryError, match="publish to trainmaster-submit"):
        bus.publish("trainmaster-submit", b"{}", {})
    bus.close()
