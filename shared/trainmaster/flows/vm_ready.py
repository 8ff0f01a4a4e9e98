"""A replica is ready to start its program. If it is the last one of the attempt, the job is running."""

from __future__ import annotations

from trainmaster.core.events import VmReady
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, record
from trainmaster.ports import Loaded


def handle(event: VmReady, deps: Deps, loaded: Loaded | None = None) -> None:
    recorded = record(event, deps, loaded=loaded)
    start_if_all_ready(recorded.job, deps)
