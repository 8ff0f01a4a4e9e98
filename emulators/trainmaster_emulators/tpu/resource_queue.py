"""The states of Cloud TPU's queued resources (requests for TPU nodes that wait for capacity) over
time.

Each resource has a thread, from its creation until its node has ended.

    the zone has no capacity (a fault)   it waits; after its valid-until time ──► FAILED
    the zone has capacity                its node is created by an ordinary call ──► ACTIVE
    the node is preempted                SUSPENDED; the node stays in the state PREEMPTED
    the node is deleted                  SUSPENDED
    its run limit is over                the node is deleted ──► SUSPENDED

It is unconfirmed whether Cloud TPU keeps the preempted node of a queued resource. This emulator
keeps it, which is the stricter case: the control plane must delete the node itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from trainmaster_emulators.machines.field_mask import select
from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.tpu import catalog
from trainmaster_emulators.tpu.cloud import TpuCloud
from trainmaster_emulators.tpu.fields import QUEUED, V2
from trainmaster_emulators.tpu.lifecycle import EMPTY
from trainmaster_emulators.tpu.nodes import Node, NodeState, parse_node_spec
from trainmaster_emulators.tpu.operations import Operation
from trainmaster_emulators.tpu.queued_resource import (
    QUEUED_TYPE,
    QueuedResource,
    QueueState,
    check_name,
    parse_queue_request,
)
from trainmaster_emulators.tpu.tpu_errors import already_exists, not_found, not_while

DELETABLE: Final = (QueueState.WAITING, QueueState.FAILED, QueueState.SUSPENDED)
"""States in which a resource with a node can be deleted without force.

Source: Cloud TPU, queuedResources.delete.
"""
_LOST: Final = (NodeState.PREEMPTED, NodeState.TERMINATED)
POLL_S: Final = 0.05
"""Interval at which threads look for a change."""


class TpuQueue:
    """The queued resources of one project. `cloud` has their nodes."""

    def __init__(self, cloud: TpuCloud) -> None:
        self._cloud = cloud
        self._lock = threading.Lock()
        self._queued: dict[str, QueuedResource] = {}

    def get(self, zone: str, name: str) -> QueuedResource:
        catalog.check_zone(zone)
        path = self._path(zone, name)
        with self._lock:
            if path not in self._queued:
                raise not_found(path)
            return self._queued[path]

    def list_all(self) -> Sequence[QueuedResource]:
        with self._lock:
            return [self._queued[path] for path in sorted(self._queued)]

    def create(self, zone: str, name: str, body: Json) -> Operation:
        catalog.check_zone(zone)
        check_name(name)
        request = parse_queue_request(body, self._cloud.parent(zone))
        parse_node_spec(request.node, zone, self._cloud.project.default_account)
        queued = QueuedResource(self._path(zone, name), zone, request)
        with self._lock:
            if queued.path in self._queued:
                raise already_exists(queued.path)
            self._queued[queued.path] = queued
        operation = self._begin(queued, "create")
        self._spawn(lambda: self._run(queued, operation))
        return operation

    def delete(self, zone: str, name: str, *, force: bool) -> Operation:
        queued = self.get(zone, name)
        with queued.transition_lock:
            node = self._node(queued)
            if queued.state in (QueueState.DELETING, QueueState.PROVISIONING, QueueState.CREATING):
                raise not_while("delete", queued.state)
            if node is not None and not force and queued.state not in DELETABLE:
                raise not_while("delete", queued.state)
            queued.state = QueueState.DELETING
            queued.error = None
        operation = self._begin(queued, "delete")
        self._spawn(lambda: self._remove(queued, operation, with_node=force))
        return operation

    # On threads

    def _run(self, queued: QueuedResource, operation: Operation) -> None:
        """Lead the resource through all of its states. The operation ends with the first one."""
        self._pause()
        self._enter(queued, QueueState.WAITING, only_if=QueueState.CREATING)
        response = {"@type": QUEUED_TYPE, **select(queued.as_json(), QUEUED[V2])}
        self._cloud.operations.finish(operation, response)
        try:
            self._wait_for_capacity(queued)
            node = self._create_node(queued)
        except StatusError as failure:
            queued.error = failure
            self._enter(queued, QueueState.FAILED)
            return
        if node is not None:
            self._watch(queued, node)

    def _wait_for_capacity(self, queued: QueuedResource) -> None:
        """Return when the zone has capacity, or the resource is being deleted.

        Raises the error of a resource whose time limit has passed.
        """
        until = queued.request.valid_until
        while queued.state is QueueState.WAITING:
            if queued.zone not in self._cloud.faults.now.stockout_zones:
                return
            if until is not None and datetime.now(UTC) >= until:
                raise StatusError(
                    "DEADLINE_EXCEEDED",
                    "The resources were not available before the valid-until time.",
                )
            time.sleep(POLL_S)

    def _create_node(self, queued: QueuedResource) -> Node | None:
        """Create the node and return it when it is READY. Return None if the request was deleted
        meanwhile.
        """
        if not self._enter(queued, QueueState.PROVISIONING, only_if=QueueState.WAITING):
            return None
        operation = self._cloud.create(
            queued.zone, queued.request.node_id, queued.request.node, queued.path
        )
        while operation.ended_at is None:
            time.sleep(POLL_S)
        if operation.error is not None:
            raise operation.error
        self._enter(queued, QueueState.ACTIVE, only_if=QueueState.PROVISIONING)
        return self._cloud.get(queued.zone, queued.request.node_id)

    def _watch(self, queued: QueuedResource, node: Node) -> None:
        """Wait until the node ends or its run limit is over, then suspend the resource."""
        ends_at = datetime.now(UTC) + queued.request.max_run if queued.request.max_run else None
        while not node.deleted and node.state not in (*_LOST, NodeState.DELETING):
            if ends_at is not None and datetime.now(UTC) >= ends_at:
                self._delete_node(queued)
            time.sleep(POLL_S)
        # A node with a run limit is taken to have been deleted at its end, even by a user.
        is_deleted_by_user = node.state is NodeState.DELETING and ends_at is None
        queued.initiator = "USER" if is_deleted_by_user else "SERVICE"
        if self._enter(queued, QueueState.SUSPENDING, only_if=QueueState.ACTIVE):
            while node.state is NodeState.DELETING and not node.deleted:
                time.sleep(POLL_S)
            self._pause()
            self._enter(queued, QueueState.SUSPENDED, only_if=QueueState.SUSPENDING)

    def _remove(self, queued: QueuedResource, operation: Operation, *, with_node: bool) -> None:
        """Remove the resource, after its node if `with_node`."""
        self._pause()
        while with_node and self._node(queued) is not None:
            self._delete_node(queued)
            time.sleep(POLL_S)
        with self._lock:
            self._queued.pop(queued.path, None)
        self._cloud.operations.finish(operation, EMPTY)

    def _delete_node(self, queued: QueuedResource) -> None:
        try:
            self._cloud.transition("delete", queued.zone, queued.request.node_id)
        except StatusError:
            return  # it is being deleted, or has been

    def _node(self, queued: QueuedResource) -> Node | None:
        """Return the resource's own node, not another one of the same name; None if it does not
        exist.
        """
        try:
            node = self._cloud.get(queued.zone, queued.request.node_id)
        except StatusError:
            return None
        return node if node.queued == queued.path else None

    def _enter(
        self, queued: QueuedResource, state: QueueState, *, only_if: QueueState | None = None
    ) -> bool:
        """Enter a state; return whether it was entered. Never leave DELETING, nor a state other
        than `only_if`, if given.
        """
        with queued.transition_lock:
            if queued.state is QueueState.DELETING or only_if not in (None, queued.state):
                return False
            queued.state = state
            return True

    def _pause(self) -> None:
        """Wait as long as a step takes, with the delay of a fault."""
        time.sleep(self._cloud.lifecycle.timing.step_s + self._cloud.faults.now.slow_s)

    def _begin(self, queued: QueuedResource, verb: str) -> Operation:
        return self._cloud.operations.begin(self._cloud.parent(queued.zone), queued.path, verb)

    def _path(self, zone: str, name: str) -> str:
        return f"{self._cloud.parent(zone)}/queuedResources/{name}"

    def _spawn(self, step: Callable[[], None]) -> None:
        threading.Thread(target=step, name="tpu-queue", daemon=True).start()
