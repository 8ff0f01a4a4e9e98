"""Following Compute's operations: the server answers when it knows, and nobody waits longer than told.

The operation objects that the client's calls return poll Google's own endpoint whatever the options say, so operations
are followed by hand. Source: InstancesRestTransport._zone_operations_client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import requests
from google.api_core import exceptions
from google.cloud import compute_v1

from shared.gcp.compute_fleet.refusals import CONSEQUENCES, Problem, problems

CALL_TIMEOUT_S: Final = 30.0


class Operations:
    """Of one project. `options` as for any client of Compute's."""

    def __init__(self, project: str, options: dict[str, Any]) -> None:
        self._zones = compute_v1.ZoneOperationsClient(**options)
        self._regions = compute_v1.RegionOperationsClient(**options)
        self._project = project

    def in_zone(self, zone: str, operation: compute_v1.Operation, wait_s: float) -> compute_v1.Operation | None:
        """The operation once it is DONE; None when it is not within `wait_s`."""

        def wait(name: str, left_s: float) -> compute_v1.Operation:
            return self._zones.wait(project=self._project, zone=zone, operation=name, timeout=left_s)

        return _followed(operation, wait_s, wait)

    def in_region(self, region: str, operation: compute_v1.Operation, wait_s: float) -> compute_v1.Operation | None:
        """As `in_zone`."""

        def wait(name: str, left_s: float) -> compute_v1.Operation:
            return self._regions.wait(project=self._project, region=region, operation=name, timeout=left_s)

        return _followed(operation, wait_s, wait)

    def causes(self, zone: str, operation: compute_v1.Operation) -> list[Problem]:
        """Why it failed, first cause first; empty: it did not. A bulk insert may only say that it gave up: then its
        VMs' own operations, under the same group id, say why."""
        every = list(problems(operation))
        found = [each for each in every if each.code not in CONSEQUENCES]
        return found or (self._in_group(zone, operation) if every else []) or every

    def _in_group(self, zone: str, operation: compute_v1.Operation) -> list[Problem]:
        request = compute_v1.ListZoneOperationsRequest(
            project=self._project, zone=zone, filter=f'operationGroupId="{operation.operation_group_id}"'
        )
        operations = self._zones.list(request, timeout=CALL_TIMEOUT_S)
        return [found for each in operations for found in problems(each) if found.code not in CONSEQUENCES]


def _followed(
    operation: compute_v1.Operation, wait_s: float, wait: Callable[[str, float], compute_v1.Operation]
) -> compute_v1.Operation | None:
    deadline = time.monotonic() + wait_s
    while operation.status != compute_v1.Operation.Status.DONE:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        try:
            operation = wait(operation.name, left_s)
        except (requests.Timeout, exceptions.GatewayTimeout):
            return None
    return operation
