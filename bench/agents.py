"""The messages that the agents of a job send, with identity tokens as Google signs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from trainmaster.agent.reporting.publisher import split_token
from trainmaster.core.model.vm import Vm
from trainmaster.gcp.identity_tokens import IdentityTokens
from trainmaster.messaging.authenticate import AuthDeps
from trainmaster.messaging.push import Message
from trainmaster.ports import Store
from trainmaster_emulators.machines.vm_tokens import TokenIssuer, VmIdentity
from trainmaster_emulators.rest.server import in_background
from trainmaster_emulators.services.http_servers import key_server
from trainmaster_local.simulator.world.event_sender import event_body

ACCOUNT: Final = "trainmaster-worker@my-project.iam.gserviceaccount.com"


@dataclass(frozen=True, slots=True)
class Agents:
    """Makes messages as the agents of a project's VMs send them."""

    project: str
    issuer: TokenIssuer
    keys_url: str

    def auth(self, store: Store) -> AuthDeps:
        """Return what a function needs to authenticate these agents."""
        return AuthDeps(IdentityTokens(self.keys_url), store, self.project, ACCOUNT)

    def message(self, job_id: str, vm: Vm, key: str = "", **fields: object) -> Message:
        """Return a message about the incarnation in the VM's directive.

        `key`: secret of a job that keeps its machines. `fields` are added to the common ones.
        """
        if vm.directive is None:
            raise ValueError(f"{vm.name} has no directive")
        attempt = vm.directive.attempt
        incarnation = vm.directive.incarnation
        now = datetime.now(UTC)
        run = (attempt, incarnation)
        document = event_body(vm, job_id, host=None, key=run, at=now, details=fields)
        task = f"{vm.replica_id.task_type}/{vm.replica_id.index}"
        identity = VmIdentity(
            ACCOUNT,
            self.project,
            project_number=1,
            zone=vm.zone,
            instance_id=int(vm.instance_id),
            instance_name=vm.name,
            created_at=now,
        )
        audience = f"trainmaster/{self.project}/{job_id}/{attempt}/{task}/{incarnation}"
        if key:
            audience = f"{audience}/{key}"
        token = self.issuer.identity_token(identity, audience, full=True, now=now)
        return Message(json.dumps(document).encode(), split_token(token), "1", now)


@contextmanager
def agents(project: str) -> Iterator[Agents]:
    """Serve the public keys of the tokens for the length of the block."""
    issuer = TokenIssuer()
    server = key_server(issuer.certificates)
    with in_background(server):
        yield Agents(project, issuer, f"http://127.0.0.1:{server.server_port}")
