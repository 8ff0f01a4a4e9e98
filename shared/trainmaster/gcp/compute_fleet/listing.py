"""Listings of VMs: of all zones in one call, or zone by zone while Google cannot do that.

Listings ask for the fields that they need, and never for metadata values, which would be megabytes
for a large job. So a directive is read from the label that `ComputeFleet.write_directive` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

# Imported for its exceptions only: Google's REST clients do not translate them.
import requests
from google.api_core import exceptions
from google.cloud import compute_v1

from trainmaster.core.model.vm import LabelledVm, Vm, VmStatus
from trainmaster.core.model.vm_names import replica_id_from_vm_name
from trainmaster.gcp.errors import is_outage
from trainmaster.gcp.retries import masked
from trainmaster.gcp.vm_labels import LABEL_VM_GENERATION, directive_of, labelled

PAGE_SIZE: Final = 500
"""The most that Compute allows."""
_FIELDS: Final = (
    "(id,name,zone,status,labels,metadata/fingerprint,creationTimestamp,lastStartTimestamp)"
)
LISTED_FIELDS: Final = f"items/*/instances{_FIELDS},items/*/warning/code,unreachables,nextPageToken"
"""Field mask of a list of all zones, sent in the header `X-Goog-FieldMask`.

Source: Google's "System parameters".
"""
LISTED_FIELDS_OF_ZONE: Final = f"items{_FIELDS},warning/code,nextPageToken"

_STATUSES: Final = {
    "RUNNING": VmStatus.RUNNING,
    "STOPPING": VmStatus.STOPPING,
    "PENDING_STOP": VmStatus.STOPPING,
    "SUSPENDING": VmStatus.STOPPING,
    "DEPROVISIONING": VmStatus.STOPPING,
    "TERMINATED": VmStatus.STOPPED,
    "STOPPED": VmStatus.STOPPED,
    "SUSPENDED": VmStatus.STOPPED,
}
"""With any other status, the VM is being created."""


def is_unreachable(warning: Any) -> bool:
    """Whether this is the warning of a scope that Compute Engine cannot reach. Then the response
    lacks the scope's items.
    """
    return bool(warning.code == "UNREACHABLE")


class Listing:
    """Lists what has a job's label. Thread-safe. Raises Google's errors."""

    def __init__(self, project: str, instances: compute_v1.InstancesClient) -> None:
        self._project = project
        self._instances = instances

    def find(self, condition: str, zones: Sequence[str]) -> tuple[list[LabelledVm], list[str]]:
        """Return the VMs that match a filter, and the zones that cannot be reached.

        Google documents two behaviours of the one call for all zones: it names the zones that it
        cannot reach, or it fails. If it fails, `zones` are listed one by one.
        """
        request = compute_v1.AggregatedListInstancesRequest(
            project=self._project, filter=condition, max_results=PAGE_SIZE
        )
        listed: list[LabelledVm] = []
        unreachable: set[str] = set()
        list_all = partial(self._instances.aggregated_list, request)
        try:
            for page in masked(list_all, LISTED_FIELDS).pages:
                for name, scope in page.items.items():
                    listed += labelled(scope.instances, _vm)
                    if is_unreachable(scope.warning):
                        unreachable.add(name)
                unreachable.update(page.unreachables)
        except (exceptions.GoogleAPIError, requests.Timeout) as error:
            if not zones or not is_outage(error):
                raise
            return self._list_zones(condition, zones)
        return listed, sorted(name.rpartition("/")[2] for name in unreachable)

    def _list_zones(
        self, condition: str, zones: Iterable[str]
    ) -> tuple[list[LabelledVm], list[str]]:
        listed: list[LabelledVm] = []
        unreachable: list[str] = []
        for zone in zones:
            try:
                listed += self.in_zone(condition, zone)
            except (exceptions.GoogleAPIError, requests.Timeout) as error:
                if not is_outage(error):
                    raise
                unreachable.append(zone)
        return listed, unreachable

    def in_zone(self, condition: str, zone: str) -> list[LabelledVm]:
        """Return the VMs of one zone that match a filter.

        Raises ServiceUnavailable if Compute Engine cannot reach the zone.
        """
        request = compute_v1.ListInstancesRequest(
            project=self._project, zone=zone, filter=condition, max_results=PAGE_SIZE
        )
        listed: list[LabelledVm] = []
        for page in masked(partial(self._instances.list, request), LISTED_FIELDS_OF_ZONE).pages:
            if is_unreachable(page.warning):
                raise exceptions.ServiceUnavailable(f"Compute Engine cannot reach {zone}")
            listed += labelled(page.items, _vm)
        return listed


def _vm(instance: compute_v1.Instance) -> Vm:
    return Vm(
        name=instance.name,
        zone=instance.zone.rpartition("/")[2],
        instance_id=str(instance.id),
        status=_STATUSES.get(instance.status, VmStatus.CREATING),
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
