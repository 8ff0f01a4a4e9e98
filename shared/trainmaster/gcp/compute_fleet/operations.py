"""Following Compute Engine's long-running operations, for a bounded time.

The operation objects that the client's calls return always poll Google's own endpoint, whatever
endpoint the client has. This module calls the `wait` method of the operations instead. Source:
InstancesRestTransport._zone_operations_client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from google.cloud import compute_v1

from trainmaster.gcp import clients
from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.compute_fleet.errors import is_cause, problems_in
from trainmaster.gcp.errors import TIMEOUTS
from trainmaster.gcp.retries import FLEET_READ


class Operations:
    """The long-running operations of one project. `endpoint` empty: Google's.

    Methods raise the errors of Google's client: callers have `compute_errors` around them.
    """

    def __init__(self, project: str, endpoint: str) -> None:
        self._zones = clients.rest_client(compute_v1.ZoneOperationsClient, endpoint)
        self._regions = clients.rest_client(compute_v1.RegionOperationsClient, endpoint)
        self._project = project

    def close(self) -> None:
        self._zones.transport.close()
        self._regions.transport.close()

    def in_zone(
        self, zone: str, operation: compute_v1.Operation, wait_s: float
    ) -> compute_v1.Operation | None:
        """Return the operation when it is DONE; None if it is not within `wait_s`."""
        wait = partial(self._zones.wait, project=self._project, zone=zone)
        return _follow(operation, wait_s, wait)

    def in_region(
        self, region: str, operation: compute_v1.Operation, wait_s: float
    ) -> compute_v1.Operation | None:
        """Do as `in_zone`, for an operation of a region."""
        wait = partial(self._regions.wait, project=self._project, region=region)
        return _follow(operation, wait_s, wait)

    def causes(self, zone: str, operation: compute_v1.Operation) -> list[Problem]:
        """Return why the operation failed, the first cause first. Empty: it succeeded.

        The error of a bulk insert may only mean that it gave up. Then the operations of its VMs,
        which have the same group id, have the causes.
        """
        problems = list(problems_in(operation))
        if not problems:
            return []
        causes = [problem for problem in problems if is_cause(problem)]
        return causes or self._causes_in_group(zone, operation) or problems

    def _causes_in_group(self, zone: str, operation: compute_v1.Operation) -> list[Problem]:
        request = compute_v1.ListZoneOperationsRequest(
            project=self._project,
            zone=zone,
            filter=f'operationGroupId="{operation.operation_group_id}"',
        )
        causes: list[Problem] = []
        for member in self._zones.list(request, **FLEET_READ):
            causes.extend(filter(is_cause, problems_in(member)))
        return causes


def _follow(
    operation: compute_v1.Operation, wait_s: float, wait: Callable[..., compute_v1.Operation]
) -> compute_v1.Operation | None:
    deadline = time.monotonic() + wait_s
    while operation.status != compute_v1.Operation.Status.DONE:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        try:
            operation = wait(operation=operation.name, retry=None, timeout=left_s)
        except TIMEOUTS:
            return None
    return operation
