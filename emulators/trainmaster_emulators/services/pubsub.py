"""Google's Pub/Sub emulator as a service of the stack, and the topics and subscriptions of
`docs/interfaces.md`.

The calls are plain REST: importing the client library would add a third of a second to the start of
a stack.
"""

from __future__ import annotations

import base64
import http
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainmaster_emulators.process import container_service
from trainmaster_emulators.process.backends import JVM_OPTIONS, Backend, BackendKind
from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.process.processes import LOOPBACK, split_address
from trainmaster_emulators.process.service import Service

NAME: Final = "pubsub"
PREFIX: Final = "trainmaster-"
DEAD_LETTER: Final = "trainmaster-dead-letter"
JOB_STATE: Final = "trainmaster-job-state"
"""Notifications of jobs. A subscription of the user's gets them: docs/notifications.md."""
SYSTEM_EVENTS: Final = "trainmaster-system-events"
SYSTEM_EVENTS_FUNCTION: Final = "maintenance"
"""The function that gets Compute's system-event log, in addition to its own topic."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery policy of a push subscription."""

    attempts_max: int
    """Attempts after which Pub/Sub forwards the message to the dead-letter topic."""
    ack_deadline_s: int = 60


DELIVERY: Final = Delivery(attempts_max=100)
"""The maximum that Pub/Sub allows.

The emulator redelivers every second (measured), so a message survives 100 seconds of failures.
While a function restarts, the message waits in the function's socket. Messages that can never
succeed do not wait for that: the functions publish them to the dead-letter topic with the reason.
"""
DELIVERY_BY_FUNCTION: Final = {"provision": Delivery(attempts_max=100, ack_deadline_s=120)}
"""`provision` makes calls that take longer."""


def service(backend: Backend, address: str, folder: Path) -> Service:
    """Return the service. It reads a table of hosts in `folder`.

    The emulator forwards REST calls to its own gRPC port on `localhost`, even if it listens on
    another address. Source: PubsubGrpcServerAdapter in its archive. In the table, `localhost` is
    the address on which it listens.
    """
    host, port = split_address(address)
    if backend.kind is BackendKind.CONTAINERS:
        start = ["gcloud", "beta", "emulators", NAME, "start", f"--host-port={address}", "--quiet"]
        return Service(
            NAME,
            container_service.command(container_service.GOOGLE, start, localhost=host),
            address=address,
        )
    hosts = folder / "hosts"
    hosts.write_text(f"{host} localhost\n", encoding="utf-8")
    start = [
        backend.java,
        *JVM_OPTIONS,
        f"-Djdk.net.hosts.file={hosts}",
        "-jar",
        str(backend.pubsub_jar),
    ]
    return Service(NAME, [*start, f"--host={host}", f"--port={port}"], address=address)


def topic_of(function: str) -> str:
    """Return the topic of a function: `trainmaster-vm-ready` for `vm_ready`."""
    return PREFIX + function.replace("_", "-")


class PubSub:
    """The Pub/Sub calls that a stack needs.

    Creating a topic or a subscription that exists is not an error.
    """

    def __init__(self, host: str, project: str) -> None:
        self._host = host
        self._project = project

    def create_topic(self, topic: str) -> None:
        self._call("PUT", f"/topics/{topic}", {})

    def create_pull(self, topic: str, subscription: str) -> None:
        self._call(
            "PUT",
            f"/subscriptions/{subscription}",
            {**self._unexpiring(topic), "ackDeadlineSeconds": 60},
        )

    def create_push(
        self, topic: str, port: int, delivery: Delivery, *, dead_letter: str = DEAD_LETTER
    ) -> None:
        """Push the topic's messages to that port. The subscription has the topic's name.

        The endpoint's path holds the topic because functions-framework derives a CloudEvent's
        source from it.

        The subscription has no retry policy, unlike the one in infra/: the emulator (0.8.20) never
        delivers a message again after a few failed pushes if there is one, whatever its backoff.
        Measured with four failures of each push: 116 of 120 such messages were lost with a retry
        policy, and none of 60 without. Google Cloud loses none.
        """
        body = {
            **self._unexpiring(topic),
            "ackDeadlineSeconds": delivery.ack_deadline_s,
            "pushConfig": {"pushEndpoint": f"http://{LOOPBACK}:{port}/{self._topic(topic)}"},
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
        """Take and acknowledge at most ten pending messages: `{"data": bytes, "attributes": {…},
        …}`. Does not wait.
        """
        response = self._call(
            "POST",
            f"/subscriptions/{subscription}:pull",
            {"maxMessages": 10, "returnImmediately": True},
        )
        received = response.get("receivedMessages", [])
        if received:
            ack_ids = [item["ackId"] for item in received]
            self._call("POST", f"/subscriptions/{subscription}:acknowledge", {"ackIds": ack_ids})
        messages = [item["message"] for item in received]
        return [
            {"attributes": {}, **message, "data": base64.b64decode(message.get("data", ""))}
            for message in messages
        ]

    def _unexpiring(self, topic: str) -> dict[str, Any]:
        """Return the fields of a subscription that never expires, as in infra/."""
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


def create_topics_and_subscriptions(pubsub: PubSub, functions: dict[str, int]) -> None:
    """Create the dead-letter topic, and a topic with a push subscription for each function (name to
    port).
    """
    pubsub.create_topic(JOB_STATE)
    pubsub.create_topic(DEAD_LETTER)
    pubsub.create_pull(DEAD_LETTER, DEAD_LETTER)
    for function, port in functions.items():
        topic = topic_of(function)
        pubsub.create_topic(topic)
        pubsub.create_push(topic, port, DELIVERY_BY_FUNCTION.get(function, DELIVERY))
        if function == SYSTEM_EVENTS_FUNCTION:
            pubsub.create_topic(SYSTEM_EVENTS)
            pubsub.create_push(SYSTEM_EVENTS, port, DELIVERY)
