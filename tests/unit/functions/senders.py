"""Senders of agents' events, with tokens of the emulator's issuer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import functions_framework
from flask.testing import FlaskClient

from tests.support.jobs import WORKER_0
from tests.support.world import World
from trainmaster.agent.reporting.publisher import split_token
from trainmaster.core.model.replica import ReplicaState
from trainmaster.messaging import topics
from trainmaster_emulators.machines.vm_tokens import TokenIssuer, VmIdentity

FUNCTIONS = Path(__file__).parents[3] / "functions"
ACCOUNT = "trainmaster-worker@my-project.iam.gserviceaccount.com"
NOW = datetime.now(UTC).replace(microsecond=0)


@dataclass
class Sender:
    """Sends events of worker 0 to the functions.

    The chief and the workers of the job wait for their VMs.
    """

    world: World
    issuer: TokenIssuer
    name: str = "vm_ready"
    """The function that gets the events."""
    clients: dict[str, FlaskClient] = field(default_factory=dict)

    def token(
        self,
        *,
        issuer: TokenIssuer | None = None,
        at: datetime = NOW,
        audience: str = "",
        **identity: object,
    ) -> str:
        """Return the identity token of worker 0's VM for its running program. `identity`: what the
        token says otherwise of the VM.
        """
        subject = self.world.message_fields(WORKER_0)
        vm = self.world.vm(WORKER_0)
        vm_identity = VmIdentity(
            ACCOUNT, "my-project", 1234, vm.zone, int(vm.instance_id), vm.name, NOW
        )
        incarnation = f"{subject['attempt']}/worker/0/{subject['incarnation']}"
        own_audience = f"trainmaster/my-project/digits_1/{incarnation}"
        return (issuer or self.issuer).identity_token(
            replace(vm_identity, **identity),  # type: ignore[arg-type]
            audience or own_audience,
            full=True,
            now=at,
        )

    def send(
        self,
        token: str | None,
        *,
        published_at: datetime = NOW,
        subscription: str = "s",
        attributes: Mapping[str, str] | None = None,
        **body: object,
    ) -> int:
        """Push an event of worker 0 with this token, and return the HTTP status. `body`: fields of
        the event.
        """
        data = json.dumps({**self.world.message_fields(WORKER_0), **body}).encode()
        return self.post(data, token, published_at, subscription, attributes or {})

    def post(
        self,
        data: bytes,
        token: str | None,
        published_at: datetime,
        subscription: str,
        attributes: Mapping[str, str] | None = None,
    ) -> int:
        """Push this data to the function, and return the HTTP status."""
        if self.name not in self.clients:
            app = functions_framework.create_app(
                self.name, str(FUNCTIONS / f"{self.name}.py"), "http"
            )
            self.clients[self.name] = app.test_client()
        message = {
            "data": base64.b64encode(data).decode(),
            "attributes": {**(attributes or {}), **split_token(token or "")},
            "messageId": "17",
            "publishTime": published_at.isoformat().replace("+00:00", "Z"),
        }
        envelope = {"message": message, "subscription": f"projects/p/subscriptions/{subscription}"}
        return self.clients[self.name].post("/", json=envelope).status_code

    @property
    def state(self) -> ReplicaState:
        """State of worker 0."""
        return self.world.replica(WORKER_0).state

    def reasons(self) -> list[str]:
        """Remove all published messages, and return the reasons of the dead letters among them."""
        messages = self.world.bus.drain()
        return [
            message.attributes["reason"]
            for message in messages
            if message.topic == topics.DEAD_LETTER
        ]
