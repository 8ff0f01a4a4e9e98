"""Listings of TPU nodes, and of the queued resources without a node.

Queued resources are listed first: one that is ACTIVE, and has no node in the later list, has lost
it. Listings ask for the fields that they need, without metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

from google.api_core import exceptions
from google.cloud import tpu_v2

from trainmaster.core.model.vm import LabelledVm
from trainmaster.errors import TemporaryError
from trainmaster.gcp.retries import masked
from trainmaster.gcp.tpu_fleet.errors import has_no_tpus, problem_of
from trainmaster.gcp.tpu_fleet.nodes import log_health, vm_of
from trainmaster.gcp.tpu_fleet.queued_resources import QueuedResources
from trainmaster.gcp.vm_labels import job_key, labelled

PAGE_SIZE: Final = 200
LISTED_FIELDS: Final = (
    "nodes(name,id,state,labels,createTime,health,healthDescription,symptoms,networkEndpoints,"
    "queuedResource),nextPageToken,unreachable"
)
ALL_ZONES: Final = "-"

_log = logging.getLogger(__name__)


class Listing:
    """Lists what has a job's label, in any zone of the project. Thread-safe.

    Methods raise the errors of Google's client, which `TpuFleet` translates.
    """

    def __init__(
        self, project: str, client: tpu_v2.TpuClient, queued_resources: QueuedResources
    ) -> None:
        self._project = project
        self._client = client
        self._queued_resources = queued_resources

    def in_zone(self, zone: str) -> list[LabelledVm]:
        """Return what one zone has.

        A zone without TPUs has nothing; one that cannot be reached is an error, because the nodes
        of an empty zone would count as lost.
        """
        try:
            listed, unreachable = self._list(zone)
        except exceptions.GoogleAPICallError as error:
            if has_no_tpus(problem_of(error)):
                return []
            raise
        if unreachable:
            raise TemporaryError(f"Cloud TPU cannot reach {', '.join(unreachable)}")
        return listed

    def in_all_zones(self) -> tuple[list[LabelledVm], list[str]]:
        """Return what all zones have, and the zones that cannot be reached."""
        return self._list(ALL_ZONES)

    def _list(self, zone: str) -> tuple[list[LabelledVm], list[str]]:
        """Return the nodes and the queued resources without a node, and the zones that cannot be
        reached.
        """
        unreachable: set[str] = set()
        queued = self._list_queued(zone, unreachable)
        nodes = list(self._list_nodes(zone, unreachable))
        with_node = {(node.vm.name, node.vm.zone) for node in nodes}
        without_node = [item for item in queued if (item.vm.name, item.vm.zone) not in with_node]
        return nodes + without_node, sorted(name.rpartition("/")[2] for name in unreachable)

    def _list_queued(self, zone: str, unreachable: set[str]) -> list[LabelledVm]:
        """Return the queued resources with a job's label.

        If those of all zones cannot be listed, return none: the nodes count more. Zones that cannot
        be reached are added to `unreachable`.
        """
        try:
            return list(self._queued_resources.list_labelled(self._parent(zone), unreachable))
        except exceptions.GoogleAPICallError as error:
            if zone != ALL_ZONES:
                raise
            _log.warning(
                "Queued resources cannot be listed in zone %s: %s", zone, problem_of(error).message
            )
            return []

    def _list_nodes(self, zone: str, unreachable: set[str]) -> Iterator[LabelledVm]:
        """Yield the nodes with a job's label.

        Zones that cannot be reached are added to `unreachable`.
        """
        request = tpu_v2.ListNodesRequest(parent=self._parent(zone), page_size=PAGE_SIZE)
        for page in masked(partial(self._client.list_nodes, request), LISTED_FIELDS).pages:
            unreachable |= set(page.unreachable)
            for node in page.nodes:
                if job_key() in node.labels:
                    log_health(node)
            yield from labelled(page.nodes, vm_of)

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"
