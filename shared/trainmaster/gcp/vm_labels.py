"""Labels, the directive and guest attributes of a job's VMs and TPU nodes.

Documented in docs/interfaces.md, sections 3 and 4.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

from trainmaster.core.model.installation import name_in_installation
from trainmaster.core.model.job import Job
from trainmaster.core.model.label_rules import LABELS_MAX, is_legal_job_label
from trainmaster.core.model.vm import Directive, DirectiveAction, LabelledVm, Vm
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.steps import Create

_log = logging.getLogger(__name__)

LABEL_TASK: Final = "trainmaster-task"
LABEL_ATTEMPT: Final = "trainmaster-attempt"
LABEL_VM_GENERATION: Final = "trainmaster-vm-generation"
LABEL_ROUND: Final = "trainmaster-round"
"""Placement round of a queued resource: a failure in an earlier round does not concern the current
one.
"""
LABEL_DIRECTIVE: Final = "trainmaster-directive"
"""The directive in the metadata, as `ATTEMPT-INCARNATION-ACTION`, for listings, which show labels
and no metadata. It is written after the metadata, so it may be behind, but never ahead. On a VM
that another job has used before, `TENURE_` precedes it, the number of the job.
"""
DIRECTIVE_KEY: Final = "trainmaster-directive"
"""Metadata key of the directive, the order of the control plane to the agent, as JSON."""
HEARTBEAT: Final = "trainmaster/heartbeat"
"""Guest attribute to which each agent writes the time. docs/interfaces.md, section 3."""
METRIC: Final = "trainmaster/metric"
"""Guest attribute to which the agent of a trial writes its measurements. docs/interfaces.md,
section 3.
"""


def job_key() -> str:
    """Return the key of the label with the job: no list of one installation has the VMs of another
    one.
    """
    return name_in_installation("trainmaster-job")


def labels(job: Job, create: Create) -> dict[str, str]:
    """Return the job's own labels, which billing reports show, and ours.

    Attempt and VM generation are the current ones.
    """
    ours = {
        job_key(): job_label(job.set_id),
        LABEL_TASK: create.group.task_type.value,
        LABEL_ATTEMPT: str(create.directive.attempt),
        LABEL_VM_GENERATION: str(create.vm_generation),
        LABEL_DIRECTIVE: directive_label(create.directive),
    }
    if create.group.purchase.is_queued:
        ours[LABEL_ROUND] = str(create.round)
    legal = [label for label in job.labels if is_legal_job_label(label.key, label.value)]
    kept = legal[: LABELS_MAX - len(ours)]
    return {**{label.key: label.value for label in kept}, **ours}


def labelled(
    resources: Iterable[Any],
    vm_of: Callable[[Any], Vm],
    labels_of: Callable[[Any], Mapping[str, str]] = attrgetter("labels"),
) -> Iterator[LabelledVm]:
    """Yield the VMs of jobs among resources.

    `vm_of` raises ValueError for a name that no replica has.
    """
    for resource in resources:
        label = labels_of(resource).get(job_key())
        if label is None:
            continue
        try:
            vm = vm_of(resource)
        except ValueError:
            _log.warning(
                "%s has a job's label, but a name that no replica has; it is ignored",
                resource.name,
            )
        else:
            yield LabelledVm(vm, label)


def directive_label(directive: Directive) -> str:
    """Return the value of `LABEL_DIRECTIVE`."""
    tenure = f"{directive.tenure}_" if directive.tenure > 1 else ""
    return f"{tenure}{directive.attempt}-{directive.incarnation}-{directive.action}"


def directive_of(labels: Mapping[str, str]) -> Directive | None:
    """Return the directive that a VM's label shows, without the addresses of slices.

    None: no label, or unreadable.

    The label is read with `get`, because `[]` would add a missing key to a map of protobuf.
    """
    try:
        attempt, incarnation, action = labels.get(LABEL_DIRECTIVE, "").split("-")
        tenure, _, attempt = attempt.rpartition("_")
        return Directive(
            int(attempt), int(incarnation), DirectiveAction(action), tenure=int(tenure or 1)
        )
    except ValueError:
        return None


def parse_directive(text: str | None) -> Directive | None:
    """Return the directive; None if there is none, or if it is unreadable: it will be
    overwritten.
    """
    try:
        return Directive.from_metadata(json.loads(text or ""))
    except (ValueError, TypeError, KeyError):
        return None


def directive_json(directive: Directive) -> str:
    """Return the value of `DIRECTIVE_KEY`."""
    return json.dumps(directive.to_metadata())


def parse_heartbeat(text: str) -> datetime | None:
    """Return the time in a heartbeat.

    None: it is not a time, because a program on the VM wrote it.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):  # in UTC, the time is in a year that Python does not have
        return None
