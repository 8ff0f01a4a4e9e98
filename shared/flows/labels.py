"""A user changes a job's labels, all at once, whether it has ended or not."""

from __future__ import annotations

from collections.abc import Mapping

from shared.core.decisions import SetLabels
from shared.core.events import LabelsChanged
from shared.core.model.job import Label
from shared.flows.record import Deps, record


def handle(job_id: str, labels: Mapping[str, str], change: str, seen: int | None, deps: Deps) -> bool:
    """False: somebody else changed them since `seen`. `change` names the request: told twice, it is done once.

    Raises PermanentError where there is no such job.
    """
    desired = tuple(Label(key, value) for key, value in sorted(labels.items()))
    recorded = record(job_id, LabelsChanged(job_id, desired, change, deps.clock(), seen), deps)
    return isinstance(recorded.entry.decision, SetLabels)
