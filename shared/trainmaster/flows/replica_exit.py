"""A replica exited: it restarts or is replaced, its round stops, or the job is rerun or ends."""

from __future__ import annotations

from trainmaster.core.events import ReplicaExited
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, record
from trainmaster.ports import Loaded


def handle(event: ReplicaExited, deps: Deps, loaded: Loaded | None = None) -> None:
    recorded = record(event, deps, loaded=loaded)
    if event.succeeded:
        # The exit may have overtaken the replica's own vm-ready message.
        start_if_all_ready(recorded.job, deps)
