"""Replay of agents' dead letters, which the command line judges itself.

An agent's identity token expires after an hour, and is compared with the time at which Pub/Sub
accepted the event. A dead letter that is published again would get a new time and be rejected. It
is therefore judged here with its original time, which only functions and Pub/Sub can write into a
dead letter. The checks and the flow are those of the function; the caller needs permissions on
Firestore and on the topic of `provision`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trainmaster.flows import maintenance, replica_exit, vm_ready
from trainmaster.messaging import topics
from trainmaster.messaging.agent_messages import decode_replica_exit, decode_vm_ready
from trainmaster.messaging.authenticate import AuthDeps, authenticate, authenticate_loss
from trainmaster.messaging.google_events import decode_maintenance
from trainmaster.messaging.push import Message
from trainmaster.settings import settings
from trainmaster.wiring import authentication, core_services
from trainmaster.wiring.installation import worker_account_of

if TYPE_CHECKING:
    from trainmaster.gcp.tools.dead_letter_box import DeadLetter


def replay_agent_event(letter: DeadLetter) -> bool:
    """Judge the dead letter if it is an agent's event.

    Return False if it is not: it must be published again. Raises PermanentError if it still cannot
    be handled.
    """
    handle = HANDLERS.get(letter.topic or "")
    if handle is None:
        return False
    handle(
        Message(letter.data, letter.attributes, letter.id, letter.published_at, f"/{letter.topic}")
    )
    return True


def _handle_vm_ready(message: Message) -> None:
    event = decode_vm_ready(message.data, message.published_at)
    authenticated = authenticate(event.subject, message, _auth_deps())
    vm_ready.handle(
        replace(event, host_vm=authenticated.machine), core_services.deps(), authenticated.loaded
    )


def _handle_replica_exit(message: Message) -> None:
    event = decode_replica_exit(message.data, message.published_at)
    authenticated = authenticate(event.subject, message, _auth_deps())
    replica_exit.handle(event, core_services.deps(), authenticated.loaded)


def _handle_maintenance(message: Message) -> None:
    event = decode_maintenance(message.data, message.published_at)
    authenticated = authenticate_loss(event, message, _auth_deps())
    maintenance.handle(event, core_services.deps(), authenticated.loaded)


HANDLERS: Final[dict[str, Callable[[Message], None]]] = {
    topics.VM_READY: _handle_vm_ready,
    topics.REPLICA_EXIT: _handle_replica_exit,
    topics.MAINTENANCE: _handle_maintenance,
}


def _auth_deps() -> AuthDeps:
    """Return the dependencies of the authentication, as in the functions.

    If the setting of the VMs' service account is missing, they have the account that infra/
    creates.
    """
    values = settings()
    auth_deps = authentication.auth_deps()
    if "worker_service_account" in values.model_fields_set:
        return auth_deps
    return replace(auth_deps, account=worker_account_of(values.project))
