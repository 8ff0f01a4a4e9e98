"""Which jobs may start before all of their VMs exist: `gang: false`. Rule: `core.model.gang`."""

from __future__ import annotations

from trainmaster.core.model.gang import required_replicas
from trainmaster.core.model.plan import Plan
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.document_kinds import EXTENSION

_PATH: FieldPath = (EXTENSION, "gang")


def check_gang(plan: Plan, problems: Problems) -> None:
    """Add a problem to a job with `gang: false` that has TPU slices, or whose replicas all need each other."""
    if plan.gang or not plan.groups:
        return
    if any(group.tpu for group in plan.groups):
        problems.add_text(_PATH, "cannot be false for a job with TPU slices, which start together", "gang: true")
    elif len(required_replicas(plan)) == len(plan.replica_ids):
        problem = (
            "cannot be false for this job, which has neither parameter servers nor evaluators: its workers train "
            "synchronously and wait for each other, so VMs that came first would be paid for without any progress"
        )
        problems.add_text(_PATH, problem, "independentReplicas: true, if no replica waits for another")
