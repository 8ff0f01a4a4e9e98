"""A replica exited: it restarts, is held, is replaced, or ends or reruns the job."""

from __future__ import annotations

from shared.core.events import ReplicaExited
from shared.flows.readiness import start_if_all_ready
from shared.flows.record import Deps, record
from shared.ports import Loaded


def handle(event: ReplicaExited, deps: Deps, loaded: Loaded | None = None) -> None:
    recorded = record(event, deps, loaded=loaded)
    if event.succeeded:
        # The exit may have overtaken the replica's own vm-ready message.
        start_if_all_ready(recorded.job, deps)
