"""The Bus on Google's Pub/Sub emulator, and on a Pub/Sub that fails."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.api_core.exceptions import PermissionDenied
from google.pubsub_v1.types import PublishRequest, PublishResponse

from emulators.services.pubsub import PubSub
from shared.errors import PermanentError, TemporaryError
from shared.gcp import clients, pubsub_bus
from shared.gcp.pubsub_bus import PubsubBus
from shared.gcp.retries import repeated

Status = grpc.StatusCode


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


def test_a_published_message_arrives_with_its_bytes_and_attributes(pubsub: PubSub, bus: PubsubBus) -> None:
    messages = {b"\x00\xff not text": {"source": "gs://b/jobs/ä.yaml#1"}, b"{}": {}}
    for data, attributes in messages.items():
        bus.publish("trainmaster-submit", data, attributes)
    received = {message["data"]: message["attributes"] for message in pubsub.pull("trainmaster-submit")}
    assert received == messages


def test_publishing_to_a_missing_topic_is_a_permanent_error(bus: PubsubBus) -> None:
    with pytest.raises(PermanentError, match="publish to no-such-topic: 404"):
        bus.publish("no-such-topic", b"{}", {})


class FailingPubSub(grpc.GenericRpcHandler):
    """Answers with these statuses one after the other, then with the last one for ever."""

    def __init__(self, *statuses: Status) -> None:
        self.statuses = list(statuses)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def publish(request: PublishRequest, context: grpc.ServicerContext) -> PublishResponse:
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            if status is not Status.OK:
                context.abort(status, "as the test says")
            return PublishResponse(message_ids=["1"])

        return grpc.unary_unary_rpc_method_handler(publish, PublishRequest.deserialize, PublishResponse.serialize)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FailingPubSub, PubsubBus]]:
    monkeypatch.setattr(pubsub_bus, "CALL", repeated(deadline_s=1.5))
    handler = FailingPubSub(Status.OK)
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    bus = PubsubBus(clients.publisher(), "p")
    yield handler, bus
    bus.close()
    server.stop(None).wait()


@pytest.mark.parametrize("status", [Status.RESOURCE_EXHAUSTED, Status.INTERNAL, Status.UNAVAILABLE])
def test_a_short_failure_of_pubsub_is_repeated_until_it_is_over(
    failing: tuple[FailingPubSub, PubsubBus], status: Status
) -> None:
    pubsub, bus = failing
    pubsub.statuses = [status, status, Status.OK]
    bus.publish("trainmaster-submit", b"{}", {})
    assert pubsub.statuses == [Status.OK]


@pytest.mark.parametrize("status", [Status.RESOURCE_EXHAUSTED, Status.UNAVAILABLE, Status.ABORTED])
def test_a_lasting_failure_of_pubsub_is_a_temporary_error(
    failing: tuple[FailingPubSub, PubsubBus], status: Status
) -> None:
    pubsub, bus = failing
    pubsub.statuses = [status]
    with pytest.raises(TemporaryError, match="publish to trainmaster-submit: .*as the test says"):
        bus.publish("trainmaster-submit", b"{}", {})


def test_a_missing_permission_is_passed_on_so_that_the_event_stays_in_pubsub(
    failing: tuple[FailingPubSub, PubsubBus],
) -> None:
    pubsub, bus = failing
    pubsub.statuses = [Status.PERMISSION_DENIED]
    with pytest.raises(PermissionDenied):
        bus.publish("trainmaster-submit", b"{}", {})


def test_a_pubsub_that_does_not_answer_is_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:9")
    monkeypatch.setattr(pubsub_bus, "CALL", repeated(deadline_s=0.5))
    bus = PubsubBus(clients.publisher(), "p")
    with pytest.raises(TemporaryError, match="publish to trainmaster-submit"):
        bus.publish("trainmaster-submit", b"{}", {})
    bus.close()
