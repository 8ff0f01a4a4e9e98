"""A replica exited: the judge says whether it restarts, waits, is replaced, or ends or reruns the job."""

from __future__ import annotations

from shared.core.events import ReplicaExited
from shared.flows.record import Deps, record
from shared.flows.vm_ready import begin_running


def handle(event: ReplicaExited, deps: Deps) -> None:
    record(event.subject.job_id, event, deps)
    if event.succeeded:
        begin_running(event.subject.job_id, deps)
