"""A replica exited: it restarts, is held, is replaced, or ends or reruns the job.

An exit that would end the job, but that the loss of a peer may still explain, is postponed: the message is redelivered
until the loss is reported, or for three minutes.
"""

from __future__ import annotations

from typing import Final

from trainmaster.core.events import ReplicaExited
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, record
from trainmaster.ports import Loaded

POSTPONED_PAUSE_S: Final = 2.0
"""Pause before a postponed exit is left to its redelivery. Without backoff, as on the local stack, Pub/Sub would
otherwise reach the limit of 100 deliveries in less than the three minutes."""


def handle(event: ReplicaExited, deps: Deps, loaded: Loaded | None = None) -> None:
    recorded = record(event, deps, loaded=loaded)
    decision = recorded.entry.decision
    if decision.is_postponed:
        deps.sleep(POSTPONED_PAUSE_S)
        raise TemporaryError(decision.text)
    if event.succeeded:
        # The exit may have overtaken the replica's own vm-ready message.
        start_if_all_ready(recorded.job, deps)
