"""The methods of the nodes API. Each checks the request, then `lifecycle` carries it out.

A failed check is an error of the call. A later failure is an error of the operation.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Final

from trainmaster_emulators.machines.injected_faults import FaultInjector
from trainmaster_emulators.machines.vm_transitions import Timing
from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.tpu import catalog
from trainmaster_emulators.tpu.hosts import SliceHosts, addresses
from trainmaster_emulators.tpu.lifecycle import Lifecycle
from trainmaster_emulators.tpu.nodes import (
    NODE_ID,
    Node,
    NodeSpec,
    NodeState,
    parse_labels,
    parse_metadata,
    parse_node_spec,
)
from trainmaster_emulators.tpu.operations import Operation, OperationStore
from trainmaster_emulators.tpu.tpu_errors import (
    already_exists,
    bad_request,
    no_reservation,
    not_found,
    not_while,
    quota_exceeded,
    stockout,
)

UPDATABLE: Final = frozenset({"metadata", "labels"})
"""Fields that this emulator can change.

Google also allows description, tags and external addresses.
"""
# States of a node that can be updated
_SETTLED: Final = (NodeState.READY, NodeState.STOPPED)
_ALLOWED: Final = {
    "delete": frozenset(NodeState) - {NodeState.CREATING, NodeState.DELETING},
    "start": {NodeState.STOPPED},
    "stop": {NodeState.READY},
}
"""Call → states of the node in which it is allowed."""


class TpuCloud:
    """One project's nodes. Thread-safe.

    The methods that change a node return the operation that carries it out. All of them raise
    StatusError with Google's message: for an unknown zone or node, a name in use, a malformed body,
    an exhausted quota, or a node whose state does not allow the call.
    """

    def __init__(self, hosts: SliceHosts, faults: FaultInjector, timing: Timing) -> None:
        self.project = hosts.power.project
        self.faults = faults
        self.operations = OperationStore()
        self.lifecycle = Lifecycle(self.operations, faults, hosts, timing, self._forget)
        self._lock = threading.RLock()
        self._nodes: dict[str, Node] = {}

    # Reading

    def get(self, zone: str, node_id: str) -> Node:
        catalog.check_zone(zone)
        path = f"{self.parent(zone)}/nodes/{node_id}"
        with self._lock:
            if path not in self._nodes:
                raise not_found(path)
            return self._nodes[path]

    def list_all(self) -> Sequence[Node]:
        with self._lock:
            return [self._nodes[path] for path in sorted(self._nodes)]

    def find(self, node_id: str) -> Node | None:
        """Return the node of that id in any zone, of several the youngest; None if
        there is none.
        """
        matches = [node for node in self.list_all() if node.name == node_id]
        return max(matches, key=lambda node: node.created_at, default=None)

    # Changing

    def create(self, zone: str, node_id: str, body: Json, queued: str = "") -> Operation:
        """Create a node. `queued`: path of the queued resource that requests it, empty for none."""
        catalog.check_zone(zone)
        if not NODE_ID.fullmatch(node_id):
            raise bad_request(f"Invalid node id '{node_id}': must match {NODE_ID.pattern}.")
        spec = parse_node_spec(body, zone, self.project.default_account)
        path = f"{self.parent(zone)}/nodes/{node_id}"
        with self._lock:
            if path in self._nodes:
                raise already_exists(path)
            quota_error = self._quota_error(zone, spec)
            if quota_error:
                raise quota_error
            node = Node(
                path=path,
                zone=zone,
                id=_new_numeric_id(),
                spec=spec,
                addresses=addresses(spec.slice.hosts),
                metadata=dict(spec.metadata),
                labels=dict(spec.labels),
                queued=queued,
            )
            self._nodes[path] = node
            operation = self._begin(node, "create")
            self.lifecycle.create(operation, node, self._shortage(zone, spec))
            return operation

    def transition(self, verb: str, zone: str, node_id: str) -> Operation:
        """Delete, start or stop a node, as `verb` says."""
        begin: Callable[[Operation, Node], None] = getattr(self.lifecycle, verb)
        return self._act(verb, zone, node_id, begin, lambda node: node.state in _ALLOWED[verb])

    def update(self, zone: str, node_id: str, mask: set[str], body: Json) -> Operation:
        if not mask or mask - UPDATABLE:
            raise bad_request(f"Cannot update {', '.join(sorted(mask)) or 'nothing'}.")
        metadata = parse_metadata(body.get("metadata") or {})
        labels = parse_labels(body.get("labels") or {})

        def change(operation: Operation, node: Node) -> None:
            if "labels" in mask:
                node.labels = labels
            new_metadata = metadata if "metadata" in mask else node.metadata
            self.lifecycle.update(operation, node, new_metadata)

        return self._act("update", zone, node_id, change, lambda node: node.state in _SETTLED)

    def _act(
        self,
        verb: str,
        zone: str,
        node_id: str,
        act: Callable[[Operation, Node], None],
        is_allowed: Callable[[Node], bool],
    ) -> Operation:
        with self._lock:
            node = self.get(zone, node_id)
            if not is_allowed(node):
                raise not_while(verb, node.state)
            operation = self._begin(node, verb)
            act(operation, node)
            return operation

    def _begin(self, node: Node, verb: str) -> Operation:
        return self.operations.begin(self.parent(node.zone), node.path, verb)

    def _quota_error(self, zone: str, spec: NodeSpec) -> StatusError | None:
        """Return the error of the call, if the region's quota is exhausted."""
        region = zone.rpartition("-")[0]
        if region not in self.faults.now.quota_regions:
            return None
        return quota_exceeded(spec.slice.kind, region)

    def _shortage(self, zone: str, spec: NodeSpec) -> StatusError | None:
        """Return the later error of the operation, if the zone has no capacity."""
        if zone not in self.faults.now.stockout_zones:
            return None
        return no_reservation() if spec.reserved else stockout(zone)

    def _forget(self, node: Node) -> None:
        with self._lock:
            if self._nodes.get(node.path) is node:
                del self._nodes[node.path]

    def parent(self, zone: str) -> str:
        return f"projects/{self.project.id}/locations/{zone}"


def _new_numeric_id() -> int:
    """Return a random id of 63 bits: its top bit is set, so that it has as many digits as Google's
    ids.
    """
    return secrets.randbits(62) | 1 << 62
