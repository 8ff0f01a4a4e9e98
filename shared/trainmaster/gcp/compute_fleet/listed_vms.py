"""VMs as listings of Compute Engine show them.

Listings ask for the fields that they need, and never for metadata values, which would be megabytes for a large job. So
a directive is read from the label that `ComputeFleet.write_directive` writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from google.cloud import compute_v1

from trainmaster.core.model.vm import LabelledVm, Vm, VmStatus
from trainmaster.core.model.vm_names import replica_id_from_vm_name
from trainmaster.gcp.vm_labels import LABEL_JOB, LABEL_VM_GENERATION, directive_of

log = logging.getLogger(__name__)

_FIELDS: Final = "(id,name,zone,status,labels,metadata/fingerprint,creationTimestamp,lastStartTimestamp)"
LISTED_FIELDS: Final = f"items/*/instances{_FIELDS},items/*/warning/code,unreachables,nextPageToken"
"""Field mask of a list of all zones, sent in the header `X-Goog-FieldMask`. Source: Google's "System parameters"."""
LISTED_FIELDS_OF_ZONE: Final = f"items{_FIELDS},warning/code,nextPageToken"

_STATUSES: Final = {
    VmStatus.RUNNING: {"RUNNING"},
    VmStatus.STOPPING: {"STOPPING", "PENDING_STOP", "SUSPENDING", "DEPROVISIONING"},
    VmStatus.STOPPED: {"TERMINATED", "STOPPED", "SUSPENDED"},
}


def is_unreachable(warning: Any) -> bool:
    """Whether this is the warning of a scope that Compute Engine cannot reach: it has no items, whatever it has."""
    return bool(warning.code == "UNREACHABLE")


def to_labelled_vms(instances: Iterable[compute_v1.Instance]) -> Iterator[LabelledVm]:
    """Yield the VMs of jobs."""
    for instance in instances:
        try:
            yield LabelledVm(_vm(instance), instance.labels[LABEL_JOB])
        except ValueError:
            log.warning("%s has a job's label, but a name that no replica has; it is ignored", instance.name)


def _vm(instance: compute_v1.Instance) -> Vm:
    return Vm(
        name=instance.name,
        zone=instance.zone.rpartition("/")[2],
        instance_id=str(instance.id),
        status=next((status for status, names in _STATUSES.items() if instance.status in names), VmStatus.CREATING),
        replica_id=replica_id_from_vm_name(instance.name),
        vm_generation=int(instance.labels.get(LABEL_VM_GENERATION, "0")),
        directive=directive_of(instance.labels),
        fingerprint=instance.metadata.fingerprint,
        created_at=_moment(instance.creation_timestamp),
        started_at=_moment(instance.last_start_timestamp),
    )


def _moment(text: str) -> datetime | None:
    """Parse RFC 3339 text. Empty: it has not happened."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
