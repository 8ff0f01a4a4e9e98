"""A node's states over time: each request and each fault is a thread that takes the node's transition_lock and walks it through.

Times are the Compute emulator's. A host that dies alone is repaired by itself, as Cloud TPU does it: the others run on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from emulators.compute.api_errors import ApiError
from emulators.compute.injected_faults import FaultInjector
from emulators.compute.instances import Instance
from emulators.compute.lifecycle import PREEMPTION_NOTICE_S, Timing
from emulators.tpu.api_errors import Json, TpuError
from emulators.tpu.hosts import SliceHosts, tell
from emulators.tpu.nodes import Node, NodeState
from emulators.tpu.operations import Operation, OperationStore

NODE_TYPE: Final = "type.googleapis.com/google.cloud.tpu.v2.Node"
EMPTY: Final[Json] = {"@type": "type.googleapis.com/google.protobuf.Empty"}

Forget = Callable[[Node], None]


class Lifecycle:
    """`forget` frees a node's name."""

    def __init__(
        self, operations: OperationStore, faults: FaultInjector, racks: SliceHosts, timing: Timing, forget: Forget
    ) -> None:
        self.operations, self.faults, self.racks, self.timing = operations, faults, racks, timing
        self._forget = forget

    # Requests

    def create(self, operation: Operation, node: Node, shortage: TpuError | None) -> None:
        self._spawn(operation, node, lambda: self._create(node, shortage))

    def delete(self, operation: Operation, node: Node) -> None:
        node.state = NodeState.DELETING
        self._spawn(operation, node, lambda: self._delete(node))

    def stop(self, operation: Operation, node: Node) -> None:
        node.state = NodeState.STOPPING
        self._spawn(operation, node, lambda: self._down(node, self.timing.shutdown_s, NodeState.STOPPED))

    def start(self, operation: Operation, node: Node) -> None:
        node.state = NodeState.STARTING
        self._spawn(operation, node, lambda: self._up(node))

    def update(self, operation: Operation, node: Node, metadata: dict[str, str]) -> None:
        """Takes effect at once; the operation follows."""
        node.metadata = metadata
        for number, host in enumerate(node.hosts):
            host.metadata = self.racks.attributes(node, number)
            if host.metadata_tree is not None:
                host.metadata_tree.put("instance/attributes", dict(host.metadata))
        self._spawn(operation, node, lambda: None)

    # Faults

    def preempt(self, node: Node, notice_s: float = PREEMPTION_NOTICE_S) -> None:
        """It stays as PREEMPTED, and its name is taken, until somebody deletes it."""
        tell(node, "instance/preempted", "TRUE")
        self._spawn(None, node, lambda: self._down(node, notice_s, NodeState.PREEMPTED), only_if=NodeState.READY)

    def maintain(self, node: Node, notice_s: float | None) -> None:
        tell(node, "instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
        notice = self.timing.maintenance_notice_s if notice_s is None else notice_s

        def step() -> None:
            node.health = "UNHEALTHY_MAINTENANCE"
            self._down(node, self.timing.shutdown_s, NodeState.TERMINATED)

        self._spawn(None, node, step, only_if=NodeState.READY, after_s=notice)

    def crash(self, node: Node, host: Instance) -> None:
        """One host is gone at once, and comes back: the slice is whole again, the program was not."""
        if host.vm is not None:
            host.vm.power_off()
        self._spawn(None, node, lambda: self._repair(node, host), only_if=NodeState.READY)

    # Steps, each on a thread of its own

    def _spawn(
        self,
        operation: Operation | None,
        node: Node,
        step: Callable[[], None],
        *,
        only_if: NodeState | None = None,
        after_s: float = 0,
    ) -> None:
        def walk() -> None:
            time.sleep(after_s)
            with node.transition_lock:
                result = self._walked(node, step) if only_if in (None, node.state) else EMPTY
            if operation is not None:
                self.operations.finish(operation, result)

        threading.Thread(target=walk, name="tpu-lifecycle", daemon=True).start()

    def _walked(self, node: Node, step: Callable[[], None]) -> Json | TpuError:
        """What the operation ends with; nothing is left to do where the node has gone meanwhile."""
        try:
            if not node.deleted:
                step()
        except TpuError as refused:
            return refused
        return EMPTY if node.deleted else {"@type": NODE_TYPE, **node.as_json()}

    def _pause(self) -> None:
        time.sleep(self.timing.step_s + self.faults.now.slow_s)

    def _create(self, node: Node, shortage: TpuError | None) -> None:
        self._pause()
        try:
            if shortage is not None:
                raise shortage
            node.hosts = self.racks.build(node)
            self._up(node)
        except (ApiError, OSError, TpuError) as failure:
            self.racks.off(node.hosts, 0)
            node.deleted = True
            self._forget(node)
            reason = f"The hosts could not be started: {failure}"
            raise failure if isinstance(failure, TpuError) else TpuError("INTERNAL", reason) from failure

    def _up(self, node: Node) -> None:
        if node.state not in (NodeState.CREATING, NodeState.STARTING):
            return  # deleted or stopped before its transition_lock came
        self._pause()
        self.racks.on(node, node.hosts, self._died(node))
        node.state, node.health = NodeState.READY, "HEALTHY"

    def _down(self, node: Node, grace_s: float, into: NodeState) -> None:
        self.racks.off(node.hosts, grace_s)
        self._pause()
        if node.state is not NodeState.DELETING:
            node.state = into

    def _delete(self, node: Node) -> None:
        self.racks.off(node.hosts, self.timing.shutdown_s)
        self._pause()
        for host in node.hosts:
            host.disk.destroy()
        node.deleted = True
        self._forget(node)

    def _repair(self, node: Node, host: Instance) -> None:
        node.state, node.health = NodeState.REPAIRING, "TIMEOUT"
        self.racks.off([host], 0)
        self._pause()
        self.racks.on(node, [host], self._died(node))
        node.state, node.health = NodeState.READY, "HEALTHY"

    def _died(self, node: Node) -> Callable[[Instance, int], None]:
        def died(host: Instance, boot: int) -> None:
            if host.boots == boot:
                self.crash(node, host)

        return died
