"""A VM is going or gone: its replica starts on another one with the same hostname."""

from __future__ import annotations

from shared.core.events import VmLost
from shared.flows.record import Deps, record


def handle(event: VmLost, deps: Deps) -> None:
    record(event.life.job_id, event, deps)
