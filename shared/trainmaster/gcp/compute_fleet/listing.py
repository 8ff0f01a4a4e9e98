"""Listings of VMs: of all zones in one call, or zone by zone while Google cannot do that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

# Imported for its exceptions only: Google's REST clients do not translate them.
import requests
from google.api_core import exceptions
from google.cloud import compute_v1

from trainmaster.core.model.vm import LabelledVm
from trainmaster.gcp.compute_fleet.listed_vms import (
    LISTED_FIELDS,
    LISTED_FIELDS_OF_ZONE,
    is_unreachable,
    to_labelled_vms,
)
from trainmaster.gcp.errors import is_outage
from trainmaster.gcp.retries import masked

PAGE_SIZE: Final = 500
"""The most that Compute allows."""


class Listing:
    """Lists what has a job's label. Thread-safe. Raises Google's errors."""

    def __init__(self, project: str, instances: compute_v1.InstancesClient) -> None:
        self._project, self._instances = project, instances

    def find(self, condition: str, zones: Sequence[str]) -> tuple[list[LabelledVm], list[str]]:
        """Return the VMs that match a filter, and the zones that cannot be reached.

        Google documents two behaviours of the one call for all zones: it names such zones, or it fails. Then `zones`
        are listed one by one.
        """
        request = compute_v1.AggregatedListInstancesRequest(
            project=self._project, filter=condition, max_results=PAGE_SIZE
        )
        listed, unreachable = [], set()
        try:
            for page in masked(partial(self._instances.aggregated_list, request), LISTED_FIELDS).pages:
                scopes = page.items.items()
                listed += [vm for _, scope in scopes for vm in to_labelled_vms(scope.instances)]
                unreachable |= {name for name, scope in scopes if is_unreachable(scope.warning)}
                unreachable |= set(page.unreachables)
        except (exceptions.GoogleAPIError, requests.Timeout) as error:
            if not zones or not is_outage(error):
                raise
            return self._list_zones(condition, zones)
        return listed, sorted(name.rpartition("/")[2] for name in unreachable)

    def _list_zones(self, condition: str, zones: Iterable[str]) -> tuple[list[LabelledVm], list[str]]:
        listed, unreachable = [], []
        for zone in zones:
            try:
                listed += self.in_zone(condition, zone)
            except (exceptions.GoogleAPIError, requests.Timeout) as error:
                if not is_outage(error):
                    raise
                unreachable.append(zone)
        return listed, unreachable

    def in_zone(self, condition: str, zone: str) -> list[LabelledVm]:
        request = compute_v1.ListInstancesRequest(
            project=self._project, zone=zone, filter=condition, max_results=PAGE_SIZE
        )
        listed: list[LabelledVm] = []
        for page in masked(partial(self._instances.list, request), LISTED_FIELDS_OF_ZONE).pages:
            if is_unreachable(page.warning):
                raise exceptions.ServiceUnavailable(f"Compute Engine cannot reach {zone}")
            listed += to_labelled_vms(page.items)
        return listed
