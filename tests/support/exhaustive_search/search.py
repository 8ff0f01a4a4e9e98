"""Exhaustive search of a small world: a chief and a worker, and every possible order of events, up
to a bound.

    node ──► every possible action ──► node; nodes that differ only in times are visited once

There is no virtual time and no randomness. Messages may be delivered in any order and repeatedly, a
function may crash at any of its port calls, programs may complete or fail, and VMs may stop. An
allowance for each kind of fault bounds the search. The flows are the real ones. Function
invocations run one after another; the seeded histories cover the interleavings between them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final

from tests.support.exhaustive_search.canonical_state import canonical_digest
from tests.support.exhaustive_search.invocations import deliver, provision_request, run_sweep
from tests.support.exhaustive_search.node import (
    COMPLETED,
    EXITS,
    Action,
    Allowance,
    Exit,
    Key,
    Message,
    Node,
    SearchResult,
)
from trainmaster.core.ledger import replay
from trainmaster.core.model.job import RERUNS_MAX, RESTARTS_MAX
from trainmaster.core.model.members import recall
from trainmaster.core.model.vm import DirectiveAction, Vm, VmStatus
from trainmaster.messaging import topics
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.world.scheduler import START

MESSAGES_PER_SWEEP_MAX: Final = 10


class Search:
    """Searches everything that may happen after one submission."""

    def __init__(self, job_id: str, document: bytes, allowance: Allowance) -> None:
        self._job_id = job_id
        self._document = document
        self._allowance = allowance

    def run(self, states_max: int) -> SearchResult:
        """Search breadth first, so that a violation is found by one of the shortest paths.

        Raises ViolationError.
        """
        result = SearchResult()
        root = Node(
            MemoryStore(),
            MemoryFleet(),
            self._allowance,
            pending=((topics.SUBMIT, self._document.decode()),),
        )
        root.fleet.clock = lambda: START
        visited = {self._digest(root)}
        queue: deque[tuple[Node, tuple[Action, ...]]] = deque([(root, ())])
        while queue and result.states < states_max:
            node, path = queue.popleft()
            result.states += 1
            for action, successor in self._successors(node, path, result):
                result.actions += 1
                with _path_in_violation((*path, action)):
                    self._check(successor, node)
                digest = self._digest(successor)
                if digest not in visited:
                    visited.add(digest)
                    queue.append((successor, (*path, action)))
        result.is_complete = not queue
        return result

    def _digest(self, node: Node) -> bytes:
        other_state = (
            node.allowance,
            node.pending,
            *(sorted(part.items()) for part in (node.started, node.running, node.held, node.ended)),
        )
        now = START + timedelta(seconds=node.ticks)
        return canonical_digest(node.store, node.fleet, self._job_id, now, other_state)

    def _successors(
        self, node: Node, path: tuple[Action, ...], result: SearchResult
    ) -> Iterator[tuple[Action, Node]]:
        """Yield every possible action and the node it leads to."""
        has_successor = False
        for action, successor in self._actions(node):
            has_successor = True
            yield action, successor
        if not has_successor:
            with _path_in_violation(path):
                yield from self._sweep_or_end(node, result)

    def _sweep_or_end(self, node: Node, result: SearchResult) -> Iterator[tuple[Action, Node]]:
        """Run the sweep, or check that the job has ended properly (I1, I6, I8).

        Used if no other action is possible.
        """
        after = node.copy()
        run_sweep(after)
        for _ in range(MESSAGES_PER_SWEEP_MAX):  # a message may lead to further ones
            if after.pending:
                deliver(after, after.pending[0])
        if self._digest(after) != self._digest(node):
            yield ("sweep",), after
            return
        loaded = node.store.load_attempt(self._job_id)
        if (
            loaded is None
            or not loaded.state.job.state.is_terminal
            or node.fleet.list_vms(self._job_id)
        ):
            raise ViolationError(
                f"I1: stuck: {loaded and loaded.state}, {node.fleet.list_vms(self._job_id)}"
            )
        result.ended += 1
        result.outcomes.add(loaded.state.job.state.value)

    def _actions(self, node: Node) -> Iterator[tuple[Action, Node]]:
        for message in node.pending:
            yield from self._deliveries(node, message)
        for vm in node.fleet.list_vms(self._job_id):
            if vm.status is VmStatus.RUNNING:
                yield from self._vm_actions(node, vm)
        if node.allowance.sweeps and node.pending != (provision_request(self._job_id),):
            after = node.copy()
            after.allowance = replace(node.allowance, sweeps=node.allowance.sweeps - 1)
            run_sweep(after)
            yield ("sweep",), after

    def _deliveries(self, node: Node, message: Message) -> Iterator[tuple[Action, Node]]:
        """Yield a delivery that is handled; handled but not acknowledged; or cut off before some
        port call.
        """
        after = node.copy()
        calls = deliver(after, message)
        yield ("deliver", *message), after
        if node.allowance.duplicates:
            duplicate = after.copy()
            duplicate.allowance = replace(node.allowance, duplicates=node.allowance.duplicates - 1)
            duplicate.add_pending(message)
            yield ("deliver and keep", *message), duplicate
        if node.allowance.crashes:
            # Before the first call nothing has happened yet; after the last it is "deliver and
            # keep".
            for call in range(2, calls + 1):
                crashed = node.copy()
                crashed.allowance = replace(node.allowance, crashes=node.allowance.crashes - 1)
                deliver(crashed, message, crash_before=call)
                yield (f"crash before call {call}", *message), crashed

    def _vm_actions(self, node: Node, vm: Vm) -> Iterator[tuple[Action, Node]]:
        """Yield what may happen on one VM: its agent follows the directive, its program ends, the
        VM stops.
        """
        directive, vm_id = vm.directive, f"{vm.name}/{vm.vm_generation}"
        if directive is None:
            return
        key = (directive.attempt, directive.incarnation)
        running = node.running.get(vm_id)
        is_new = key > node.started.get(vm_id, (0, 0)) and (
            directive.action is DirectiveAction.RUN or node.held.get(vm_id) != key
        )
        if is_new:
            yield (
                ("follow directive", vm_id, str(key), directive.action),
                self._follow(node, vm, vm_id, key),
            )
        if running:
            for name, exit_ in EXITS.items():
                if exit_ is not COMPLETED and not node.allowance.failures:
                    continue
                after = node.copy()
                failures = node.allowance.failures - (exit_ is not COMPLETED)
                after.allowance = replace(node.allowance, failures=failures)
                del after.running[vm_id]
                after.ended[vm_id] = (running, name)
                after.add_pending((topics.REPLICA_EXIT, self._event(vm, running, exit_)))
                yield (vm_id, name), after
        if node.allowance.losses:
            after = node.copy()
            after.allowance = replace(node.allowance, losses=node.allowance.losses - 1)
            after.running.pop(vm_id, None)
            after.fleet.stop(vm.name, zone=vm.zone)
            yield ("lose", vm_id), after

    def _follow(self, node: Node, vm: Vm, vm_id: str, key: Key) -> Node:
        """Return the node after the agent has read a directive: it ends an older program, reports,
        and may start.
        """
        after = node.copy()
        after.running.pop(vm_id, None)
        if after.held.get(vm_id) != key:
            details: Exit = {}
            if (ended := after.ended.get(vm_id)) is not None:
                (attempt, incarnation), name = ended
                at = START.isoformat()
                details["ended"] = {
                    "attempt": attempt,
                    "incarnation": incarnation,
                    "at": at,
                    **EXITS[name],
                }
            after.add_pending((topics.VM_READY, self._event(vm, key, details)))
        if vm.directive and vm.directive.action is DirectiveAction.RUN:
            after.started[vm_id] = after.running[vm_id] = key
            after.ended.pop(vm_id, None)
        else:
            after.held[vm_id] = key
        return after

    def _event(self, vm: Vm, key: Key, details: Exit) -> str:
        body = {
            "version": 1,
            "job_id": self._job_id,
            "attempt": key[0],
            "task_type": vm.replica_id.task_type,
            "task_index": vm.replica_id.index,
            "incarnation": key[1],
            "vm_generation": vm.vm_generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
            "at": START.isoformat(),
        }
        return json.dumps({**body, **details})

    def _check(self, node: Node, predecessor: Node) -> None:
        """Check I3, I5 and I9.

        The predecessor has passed, so its state is the fold of its ledger.
        """
        loaded, before = (
            node.store.load_attempt(self._job_id),
            predecessor.store.load_attempt(self._job_id),
        )
        if loaded is None:
            return
        ledger = node.store.ledger(self._job_id)
        state = before.state if before else None
        for entry in ledger[len(predecessor.store.ledger(self._job_id)) :]:
            state = replay(state, entry)
        if state is None or recall(state) != loaded.state:
            raise ViolationError("I9: the ledger's fold is not the stored state")
        if loaded.state.job.budgets.reruns_used > RERUNS_MAX:
            raise ViolationError(f"I3: {loaded.state.job.budgets}")
        if any(replica.restarts_used > RESTARTS_MAX for replica in loaded.state.replicas):
            raise ViolationError(f"I3: {loaded.state.replicas}")
        if len(set(node.running.values())) > 1:
            raise ViolationError(f"F1: programs of two rounds run: {node.running}")
        running_vms = [vm_id.rpartition("/")[0] for vm_id in node.running]
        if len(set(running_vms)) != len(running_vms):
            raise ViolationError(f"I5: two programs of one replica: {node.running}")
        for vm in node.fleet.list_vms(self._job_id):
            replica = loaded.state.find(loaded.state.job.attempt, vm.replica_id)
            is_current = replica is not None and replica.vm_generation == vm.vm_generation
            runs = f"{vm.name}/{vm.vm_generation}" in node.running
            if replica and is_current and runs and replica.instance_id != vm.instance_id:
                raise ViolationError(f"F1: a program runs on a VM that is not known: {vm}")


@contextmanager
def _path_in_violation(path: tuple[Action, ...]) -> Iterator[None]:
    """Add the path that led to a violation to its text."""
    try:
        yield
    except ViolationError as error:
        lines = "\n".join(" ".join(action)[:200] for action in path)
        raise ViolationError(f"{error}\nafter\n{lines}") from error
