"""What every machine of a job carries, whichever service made it: labels that say whose it is, and the directive.

docs/interfaces.md sections 3 and 4.
"""

from __future__ import annotations

import json
import re
from typing import Final

from shared.core.model.job import Job
from shared.core.reconcile.plan import Create, Directive, DirectiveAction, job_label

LABEL_JOB: Final = "trainmaster-job"
LABEL_TASK: Final = "trainmaster-task"
LABEL_ATTEMPT: Final = "trainmaster-attempt"
LABEL_VM_GENERATION: Final = "trainmaster-vm-generation"
LABEL_ROUND: Final = "trainmaster-round"
"""Of what waits in Cloud TPU's queue, the search that asked: an answer to an earlier one is no answer to this one."""
OWN_LABELS: Final = "trainmaster-"
LABELS_MAX: Final = 64
"""Of one resource. Source: Compute Engine "Labels overview"."""
DIRECTIVE_KEY: Final = "trainmaster-directive"

_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")


def labels(job: Job, create: Create) -> dict[str, str]:
    """The job's own, for the bill, and ours. Attempt and machine are those of now."""
    ours = {
        LABEL_JOB: job_label(job.job_id),
        LABEL_TASK: create.group.task_type.value,
        LABEL_ATTEMPT: str(create.directive.attempt),
        LABEL_VM_GENERATION: str(create.vm_generation),
    }
    if create.group.tpu is not None and create.group.tpu.queue is not None:
        ours[LABEL_ROUND] = str(create.round)
    legal = [
        (label.key, label.value)
        for label in job.labels
        if _LABEL.fullmatch(f"{label.key}={label.value}") and not label.key.startswith(OWN_LABELS)
    ]
    return {**dict(legal[: LABELS_MAX - len(ours)]), **ours}


def parse_directive(text: str | None) -> Directive | None:
    """None: there is none, or nobody of ours wrote it; it will be written anew."""
    try:
        said = json.loads(text or "")
        action = DirectiveAction(said["action"])
        return Directive(int(said["attempt"]), int(said["incarnation"]), action, tuple(said.get("slices", ())))
    except (ValueError, TypeError, KeyError):
        return None


def directive_json(directive: Directive) -> str:
    return json.dumps(directive.said)
