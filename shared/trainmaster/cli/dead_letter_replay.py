"""Replay of agents' dead letters, which the command line judges itself.

`trainmaster dead-letters replay` calls `replay_agent_event` with each letter: a message that no
function could handle.

An agent's identity token expires after an hour, and is compared with the time at which Pub/Sub
accepted the event. A dead letter that is published again would get a new time and be rejected. It
is therefore judged here with its original time, which only functions and Pub/Sub can write into a
dead letter. The checks and the flow are those of the function; the caller needs permissions on
Firestore and on the topic of `provision`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainmaster.flows.dispatch import AGENT_EVENTS
from trainmaster.messaging.authenticate import AuthDeps
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
    flow = AGENT_EVENTS.get(letter.topic or "")
    if flow is None:
        return False
    message = Message(
        letter.data, letter.attributes, letter.id, letter.published_at, f"/{letter.topic}"
    )
    flow(message, core_services.deps(), _auth_deps())
    return True


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
