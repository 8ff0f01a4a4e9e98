"""The states of nodes over time. Each request and each fault runs on its own thread.

A thread holds the node's `transition_lock` during its transition. The timing is the Compute
emulator's. When one host ends, it is repaired while the others keep running, as in Cloud TPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Final

from trainmaster_emulators.machines.compute_errors import ApiError
from trainmaster_emulators.machines.field_mask import select
from trainmaster_emulators.machines.injected_faults import FaultInjector
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.lifecycle import PREEMPTION_NOTICE_S
from trainmaster_emulators.machines.vm_transitions import Timing
from trainmaster_emulators.realism.profile import Profile
from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.tpu.fields import NODE, V2
from trainmaster_emulators.tpu.hosts import SliceHosts, put_metadata
from trainmaster_emulators.tpu.nodes import Node, NodeState
from trainmaster_emulators.tpu.operations import Operation, OperationStore
from trainmaster_emulators.tpu.tpu_errors import not_while, stockout

NODE_TYPE: Final = "type.googleapis.com/google.cloud.tpu.v2.Node"
EMPTY: Final[Json] = {"@type": "type.googleapis.com/google.protobuf.Empty"}

Forget = Callable[[Node], None]


class Lifecycle:
    """Changes of nodes: by requests (`cloud`, `resource_queue`), and by faults (`control`).

    Public methods return at once; the operation ends when the thread has done the work. `forget`
    frees a node's name.
    """

    def __init__(
        self,
        operations: OperationStore,
        faults: FaultInjector,
        hosts: SliceHosts,
        timing: Timing,
        forget: Forget,
    ) -> None:
        self.operations = operations
        self.faults = faults
        self.hosts = hosts
        self.timing = timing
        self._forget = forget
        self._random = Random()  # noqa: S311 - durations, not secrets
        self._profile: Profile | None = None

    def behave_like(self, profile: Profile) -> None:
        """Take as long as on Google Cloud, and let some creations fail at their end."""
        self._profile = profile

    # Requests

    def create(self, operation: Operation, node: Node, shortage: StatusError | None) -> None:
        self._spawn(operation, node, lambda: self._create(node, shortage))

    def delete(self, operation: Operation, node: Node) -> None:
        node.state = NodeState.DELETING
        self._spawn(operation, node, lambda: self._delete(node))

    def stop(self, operation: Operation, node: Node) -> None:
        node.state = NodeState.STOPPING
        self._spawn(
            operation,
            node,
            lambda: self._shut_down(node, self.timing.shutdown_s, NodeState.STOPPED),
        )

    def start(self, operation: Operation, node: Node) -> None:
        node.state = NodeState.STARTING
        self._spawn(operation, node, lambda: self._start_up(node))

    def update(self, operation: Operation, node: Node, metadata: dict[str, str]) -> None:
        """Replace the metadata at once; the operation ends later."""
        node.metadata = metadata
        for number, host in enumerate(node.hosts):
            host.metadata = self.hosts.attributes(node, number)
            if host.metadata_tree is not None:
                host.metadata_tree.put("instance/attributes", dict(host.metadata))
        self._spawn(operation, node, lambda: None)

    # Faults

    def preempt(self, node: Node, notice_s: float = PREEMPTION_NOTICE_S) -> None:
        """Preempt a node.

        It stays in the state PREEMPTED, and keeps its name, until it is deleted. The creation of a
        node that is not ready yet fails.
        """
        node.is_preempted = node.state is NodeState.CREATING
        put_metadata(node, "instance/preempted", "TRUE")
        self._spawn(
            operation=None,
            node=node,
            step=lambda: self._shut_down(node, notice_s, NodeState.PREEMPTED),
            only_if=NodeState.READY,
        )

    def maintain(self, node: Node, notice_s: float | None) -> None:
        """Announce maintenance, which ends a node: Cloud TPU migrates none."""
        put_metadata(node, "instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
        notice = self.timing.maintenance_notice_s if notice_s is None else notice_s

        def step() -> None:
            node.health = "UNHEALTHY_MAINTENANCE"
            self._shut_down(node, self.timing.shutdown_s, NodeState.TERMINATED)

        self._spawn(operation=None, node=node, step=step, only_if=NodeState.READY, after_s=notice)

    def crash(self, node: Node, host: Instance) -> None:
        """Power off one host at once, then repair it. Meanwhile the program of the slice fails."""
        if host.vm is not None:
            host.vm.power_off()
        self._spawn(
            operation=None,
            node=node,
            step=lambda: self._repair(node, host),
            only_if=NodeState.READY,
        )

    # On threads

    def _spawn(
        self,
        operation: Operation | None,
        node: Node,
        step: Callable[[], None],
        *,
        only_if: NodeState | None = None,
        after_s: float = 0,
    ) -> None:
        """Run a step under the node's lock, after `after_s` seconds.

        `only_if`: the state in which the node must be then; otherwise nothing happens.
        """

        def transition() -> None:
            time.sleep(after_s)
            with node.transition_lock:
                is_possible = only_if in (None, node.state)
                result = self._run_step(node, step) if is_possible else EMPTY
            if operation is not None:
                self.operations.finish(operation, result)

        threading.Thread(target=transition, name="tpu-lifecycle", daemon=True).start()

    def _run_step(self, node: Node, step: Callable[[], None]) -> Json | StatusError:
        """Run a step unless the node has been deleted. Return the result of the operation."""
        try:
            if not node.deleted:
                step()
        except StatusError as error:
            return error
        if node.deleted:
            return EMPTY
        return {"@type": NODE_TYPE, **select(node.as_json(), NODE[V2])}

    def _pause(self) -> None:
        time.sleep(self.timing.step_s + self.faults.now.slow_s)

    def _create(self, node: Node, shortage: StatusError | None) -> None:
        self._pause()
        try:
            if shortage is not None:
                raise shortage
            if self._profile:
                time.sleep(self._profile.tpu_create.draw(self._random))
                if self._random.random() < self._profile.tpu_stockouts:
                    raise stockout(node.zone)
            node.hosts = self.hosts.build(node)
            self._start_up(node)
        except (ApiError, OSError, StatusError) as failure:
            if node.state is NodeState.PREEMPTED:
                raise  # the node stays, although its creation has failed
            self.hosts.power_off(node.hosts, grace_s=0)
            node.deleted = True
            self._forget(node)
            if isinstance(failure, StatusError):
                raise
            reason = f"The hosts could not be started: {failure}"
            raise StatusError("INTERNAL", reason) from failure

    def _start_up(self, node: Node) -> None:
        if node.state not in (NodeState.CREATING, NodeState.STARTING):
            return  # deleted or stopped before this thread got the lock
        self._pause()
        if node.is_preempted:
            node.state = NodeState.PREEMPTED
            raise not_while("create", node.state)
        self.hosts.power_on(node, node.hosts, self._on_unexpected_end(node))
        node.state = NodeState.READY
        node.health = "HEALTHY"

    def _shut_down(self, node: Node, grace_s: float, target: NodeState) -> None:
        self.hosts.power_off(node.hosts, grace_s)
        self._pause()
        if node.state is not NodeState.DELETING:
            node.state = target

    def _delete(self, node: Node) -> None:
        self.hosts.power_off(node.hosts, self.timing.shutdown_s)
        self._pause()
        if self._profile:
            time.sleep(self._profile.tpu_delete.draw(self._random))
        for host in node.hosts:
            host.disk.destroy()
        node.deleted = True
        self._forget(node)

    def _repair(self, node: Node, host: Instance) -> None:
        node.state = NodeState.REPAIRING
        node.health = "TIMEOUT"
        self.hosts.power_off([host], grace_s=0)
        self._pause()
        self.hosts.power_on(node, [host], self._on_unexpected_end(node))
        node.state = NodeState.READY
        node.health = "HEALTHY"

    def _on_unexpected_end(self, node: Node) -> Callable[[Instance, int], None]:
        def crash(host: Instance, boot: int) -> None:
            if host.boots == boot:
                self.crash(node, host)

        return crash
