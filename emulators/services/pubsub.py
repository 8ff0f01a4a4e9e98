"""Google's Pub/Sub emulator as a service of the stack, and the topics and subscriptions of `docs/interfaces.md`.

Plain REST, not the client library: its import costs a third of a second that nobody has while a stack starts.
"""

from __future__ import annotations

import base64
import http
from dataclasses import dataclass
from typing import Any, Final

from emulators.stack import container_service
from emulators.stack.backends import JVM_OPTIONS, Backend, BackendKind
from emulators.stack.loopback import CallError, call
from emulators.stack.processes import LOOPBACK
from emulators.stack.service import Service

NAME: Final = "pubsub"
PREFIX: Final = "trainmaster-"
DEAD_LETTER: Final = "trainmaster-dead-letter"
SYSTEM_EVENTS: Final = "trainmaster-system-events"
OF_SYSTEM_EVENTS: Final = "maintenance"
"""The function that reads Compute's log, besides its own topic."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How Pub/Sub repeats what a function did not acknowledge."""

    attempts_max: int
    ack_deadline_s: int = 60
    backoff_min_s: int = 1
    backoff_max_s: int = 10  # production waits longer; a person at a terminal does not


# As many attempts as Pub/Sub allows. The emulator repeats every three seconds whatever the policy says [measured], so
# this is five minutes without a function that answers. What can never succeed does not wait for it: the functions put
# it into the dead letter themselves, with its reason.
DELIVERY: Final = Delivery(attempts_max=100)
DELIVERY_OF: Final = {"provision": Delivery(attempts_max=100, ack_deadline_s=120)}  # its calls take longer


def service(backend: Backend, port: int) -> Service:
    if backend.kind is BackendKind.CONTAINERS:
        start = ["gcloud", "beta", "emulators", NAME, "start", f"--host-port={LOOPBACK}:{port}", "--quiet"]
        return Service(NAME, container_service.command(container_service.GOOGLE, start), port=port)
    start = [backend.java, *JVM_OPTIONS, "-jar", str(backend.pubsub_jar)]
    return Service(NAME, [*start, f"--host={LOOPBACK}", f"--port={port}"], port=port)


def topic_of(function: str) -> str:
    """`vm_ready` reacts to `trainmaster-vm-ready`."""
    return PREFIX + function.replace("_", "-")


class PubSub:
    """The few calls a stack makes. Creating what exists is no error."""

    def __init__(self, host: str, project: str) -> None:
        self._host = host
        self._project = project

    def create_topic(self, topic: str) -> None:
        self._call("PUT", f"/topics/{topic}", {})

    def create_pull(self, topic: str, subscription: str) -> None:
        self._call("PUT", f"/subscriptions/{subscription}", {**self._lasting(topic), "ackDeadlineSeconds": 60})

    def create_push(self, topic: str, port: int, delivery: Delivery, *, dead_letter: str = DEAD_LETTER) -> None:
        """Deliver the topic to that port, under a subscription of the topic's name.

        The topic stands in the address because functions-framework takes a CloudEvent's source from there.
        """
        body = {
            **self._lasting(topic),
            "ackDeadlineSeconds": delivery.ack_deadline_s,
            "pushConfig": {"pushEndpoint": f"http://{LOOPBACK}:{port}/{self._topic(topic)}"},
            "retryPolicy": {
                "minimumBackoff": f"{delivery.backoff_min_s}s",
                "maximumBackoff": f"{delivery.backoff_max_s}s",
            },
            "deadLetterPolicy": {
                "deadLetterTopic": self._topic(dead_letter),
                "maxDeliveryAttempts": delivery.attempts_max,
            },
        }
        self._call("PUT", f"/subscriptions/{topic}", body)

    def publish(self, topic: str, data: bytes, **attributes: str) -> None:
        message = {"data": base64.b64encode(data).decode("ascii"), "attributes": attributes}
        self._call("POST", f"/topics/{topic}:publish", {"messages": [message]})

    def pull(self, subscription: str) -> list[dict[str, Any]]:
        """What waits there now (at most ten messages), acknowledged: `{"data": bytes, "attributes": {…}, …}`."""
        answer = self._call(
            "POST", f"/subscriptions/{subscription}:pull", {"maxMessages": 10, "returnImmediately": True}
        )
        received = answer.get("receivedMessages", [])
        if received:
            self._call(
                "POST", f"/subscriptions/{subscription}:acknowledge", {"ackIds": [each["ackId"] for each in received]}
            )
        return [
            {"attributes": {}, **each["message"], "data": base64.b64decode(each["message"].get("data", ""))}
            for each in received
        ]

    def _lasting(self, topic: str) -> dict[str, Any]:
        """A subscription that does not expire, as infra/ makes it."""
        return {"topic": self._topic(topic), "expirationPolicy": {}}

    def _topic(self, topic: str) -> str:
        return f"projects/{self._project}/topics/{topic}"

    def _call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return call(self._host, method, f"/v1/projects/{self._project}{path}", body)
        except CallError as error:
            if error.status == http.HTTPStatus.CONFLICT and method == "PUT":
                return {}
            raise


def create_all(pubsub: PubSub, functions: dict[str, int]) -> None:
    """The dead letter, and for each function (name to port) its topic and the push subscription that delivers to it."""
    pubsub.create_topic(DEAD_LETTER)
    pubsub.create_pull(DEAD_LETTER, DEAD_LETTER)
    for function, port in functions.items():
        topic = topic_of(function)
        pubsub.create_topic(topic)
        pubsub.create_push(topic, port, DELIVERY_OF.get(function, DELIVERY))
        if function == OF_SYSTEM_EVENTS:
            pubsub.create_topic(SYSTEM_EVENTS)
            pubsub.create_push(SYSTEM_EVENTS, port, DELIVERY)
