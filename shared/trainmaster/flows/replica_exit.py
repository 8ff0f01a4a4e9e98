"""A replica exited: it restarts or is replaced, its round stops, or the job is rerun or ends.

A round is one common run of the members of a synchronous job.
"""

from __future__ import annotations

from trainmaster.core.events import ReplicaExited
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, record
from trainmaster.messaging import agent_messages
from trainmaster.messaging.authenticate import AuthDeps, authenticate
from trainmaster.messaging.push import Message
from trainmaster.ports import Loaded


def handle(event: ReplicaExited, deps: Deps, loaded: Loaded | None = None) -> None:
    recorded = record(event, deps, loaded=loaded)
    if event.succeeded:
        # The exit may have overtaken the replica's own vm-ready message.
        start_if_all_ready(recorded.job, deps)


def on_message(message: Message, deps: Deps, auth_deps: AuthDeps | None) -> None:
    """Authenticate the sender before the rest of the message is decoded."""
    subject = agent_messages.decode_subject(message.data)
    authenticated = authenticate(subject, message, auth_deps)
    event = agent_messages.decode_replica_exit(message.data, message.published_at)
    handle(event, deps, authenticated.loaded)
