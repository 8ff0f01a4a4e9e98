"""Small scope, every order: one chief, one worker, and all interleavings of what may happen to them, up to a bound.

    state ──► every enabled action ──► state, once: what is the same up to names of moments is visited only once

No time and no chance: messages may be delivered in any order, again, or to a function that dies at any of its port
calls; programs may end well or badly, VMs may stop. Each of these evils has an allowance, so that the search ends. The
flows are the real ones; a function runs alone, because its interleavings with others are what the histories are for.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from shared.core.decisions import ReactivateReplica
from shared.core.ledger import fold
from shared.core.model.job import RERUNS_MAX, RESTARTS_MAX
from shared.core.reconcile.plan import DirectiveAction, Vm, VmStatus
from shared.errors import TemporaryError
from shared.flows import provision, replica_exit, submit, sweep, vm_ready
from shared.flows.record import Deps
from shared.memory.bus import MemoryBus
from shared.memory.fleet import MemoryFleet
from shared.memory.store import MemoryStore
from shared.messaging import codec, topics
from shared.ports import Bus, Fleet, Store
from simulator.invariants.job_invariants import ViolationError
from simulator.search.canonical_state import canonical
from simulator.search.search_state import DONE, ENDINGS, Action, Allowance, Found, Json, Key, Message, Node
from simulator.world.functions import Addresses, Died, Interposed, in_turn
from simulator.world.scheduler import START


class Search:
    """All that can become of this submission."""

    def __init__(self, job_id: str, document: bytes, allowance: Allowance) -> None:
        self._job_id, self._document, self._allowance = job_id, document, allowance

    def run(self, states_max: int) -> Found:
        """Breadth first, so that a violation is told with a shortest way to it."""
        found = Found()
        root = Node(MemoryStore(), MemoryFleet(), self._allowance, waiting=((topics.SUBMIT, self._document.decode()),))
        root.fleet.clock = lambda: START
        seen = {self._mark(root)}
        queue: deque[tuple[Node, tuple[Action, ...]]] = deque([(root, ())])
        while queue and found.states < states_max:
            node, way = queue.popleft()
            found.states += 1
            for action, after in self._next(node, way, found):
                found.actions += 1
                mark = self._mark(after)
                if mark not in seen:
                    seen.add(mark)
                    queue.append((after, (*way, action)))
        found.is_complete = not queue
        return found

    def _mark(self, node: Node) -> bytes:
        rest = (node.left, node.waiting, sorted(node.incarnations.items()), sorted(node.running.items()))
        return canonical(node.store, node.fleet, self._job_id, rest)

    def _next(self, node: Node, way: tuple[Action, ...], found: Found) -> Iterator[tuple[Action, Node]]:
        """What may follow, checked."""
        anything = False
        for action, after in self._steps(node):
            anything = True
            with _told_after((*way, action)):
                self._check(after)
            yield action, after
        if not anything:
            with _told_after(way):
                yield from self._last_resort(node, found)

    def _last_resort(self, node: Node, found: Found) -> Iterator[tuple[Action, Node]]:
        """Nothing happens by itself any more: it is over, or the sweep finds what is left to do (I1, I6, I8)."""
        after = node.copy()
        self._sweep(after)
        for message in after.waiting:
            self._deliver(after, message)
        if self._mark(after) != self._mark(node):
            yield ("sweep",), after
            return
        loaded = node.store.load_attempt(self._job_id)
        if loaded is None or not loaded.state.job.state.is_terminal or node.fleet.list_vms(self._job_id):
            raise ViolationError(f"I1: stuck: {loaded and loaded.state}, {node.fleet.list_vms(self._job_id)}")
        found.ended += 1
        found.outcomes.add(loaded.state.job.state.value)

    def _steps(self, node: Node) -> Iterator[tuple[Action, Node]]:
        for message in node.waiting:
            yield from self._deliveries(node, message)
        for vm in node.fleet.list_vms(self._job_id):
            if vm.status is VmStatus.RUNNING:
                yield from self._happenings(node, vm)
        if node.left.sweeps and node.waiting != (_provision_of(self._job_id),):
            after = node.copy()
            after.left = replace(node.left, sweeps=node.left.sweeps - 1)
            self._sweep(after)
            yield ("sweep",), after

    def _deliveries(self, node: Node, message: Message) -> Iterator[tuple[Action, Node]]:
        """Handled; handled and still there; or handled as far as the nth port call, and still there."""
        after = node.copy()
        calls = self._deliver(after, message)
        yield ("deliver", *message), after
        if node.left.duplicates:
            again = after.copy()
            again.left = replace(node.left, duplicates=node.left.duplicates - 1)
            again.waiting = _with(again.waiting, message)
            yield ("deliver and keep", *message), again
        if node.left.crashes:
            for nth in range(2, calls + 1):  # before the first call nothing has happened; after the last: "and keep"
                dead = node.copy()
                dead.left = replace(node.left, crashes=node.left.crashes - 1)
                self._deliver(dead, message, dies_before=nth)
                yield (f"die before call {nth}", *message), dead

    def _happenings(self, node: Node, vm: Vm) -> Iterator[tuple[Action, Node]]:
        """To one VM: its agent obeys, its program ends, it stops."""
        directive, who = vm.directive, f"{vm.name}/{vm.vm_generation}"
        if directive is None:
            return
        key = (directive.attempt, directive.incarnation)
        running = node.running.get(who)
        if key > node.incarnations.get(who, (0, 0)) and (directive.action is DirectiveAction.RUN or running):
            after = node.copy()
            after.running.pop(who, None)
            if directive.action is DirectiveAction.RUN:
                after.incarnations[who] = after.running[who] = key
                after.waiting = _with(after.waiting, (topics.VM_READY, self._told(vm, key, {})))
            yield ("obey", who, str(key), directive.action), after
        if running:
            for name, how in ENDINGS.items():
                if how is not DONE and not node.left.failures:
                    continue
                after = node.copy()
                after.left = replace(node.left, failures=node.left.failures - (how is not DONE))
                del after.running[who]
                after.waiting = _with(after.waiting, (topics.REPLICA_EXIT, self._told(vm, running, how)))
                yield (who, name), after
        if node.left.losses:
            after = node.copy()
            after.left = replace(node.left, losses=node.left.losses - 1)
            after.running.pop(who, None)
            after.fleet.stop(vm.name)
            yield ("lose", who), after

    def _told(self, vm: Vm, key: Key, fact: Json) -> str:
        body = {
            "version": 1,
            "job_id": self._job_id,
            "attempt": key[0],
            "task_type": vm.replica_id.task_type,
            "task_index": vm.replica_id.index,
            "incarnation": key[1],
            "vm_generation": vm.vm_generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": str(vm.vm_generation)},
            "at": START.isoformat(),
        }
        return json.dumps({**body, **fact})

    def _sweep(self, node: Node) -> None:
        bus = MemoryBus()
        sweep.handle(self._deps(node, bus, lambda _, call: call()))
        self._take(node, bus)

    def _deliver(self, node: Node, message: Message, dies_before: int = 0) -> int:
        """Hands it to its function; how many port calls that took. It stays unless it was acknowledged."""
        calls = 0

        def step(_: str, call: Callable[[], Any]) -> Any:
            nonlocal calls
            calls += 1
            if calls == dies_before:
                raise Died
            return call()

        bus = MemoryBus()
        deps = self._deps(node, bus, step)
        topic, data = message[0], message[1].encode()
        node.waiting = tuple(each for each in node.waiting if each != message)
        try:
            match topic:
                case topics.SUBMIT:
                    submit.handle(data, "gs://b/jobs/j.yaml#1", deps)
                case topics.VM_READY:
                    vm_ready.handle(codec.vm_ready(data), deps)
                case topics.REPLICA_EXIT:
                    replica_exit.handle(codec.replica_exit(data), deps)
                case _:
                    fleet = cast("Fleet", Interposed(node.fleet, step))
                    machines = provision.Machines(fleet, Addresses(), "p", {}, in_turn)
                    provision.handle(codec.provision(data), machines, deps)
        except (Died, TemporaryError):
            node.waiting = _with(node.waiting, message)
        self._take(node, bus)
        return calls

    def _deps(self, node: Node, bus: MemoryBus, step: Callable[[str, Callable[[], Any]], Any]) -> Deps:
        node.ticks += 1
        now = START + timedelta(seconds=node.ticks)
        store = cast("Store", Interposed(node.store, step))
        return Deps(store, cast("Bus", Interposed(bus, step)), clock=lambda: now, sleep=lambda _: None)

    def _take(self, node: Node, bus: MemoryBus) -> None:
        """What was published waits from now on; the search for orphans finds none here and is left out."""
        for message in bus.drain():
            if message.data != codec.encode_orphan_search():
                node.waiting = _with(node.waiting, (message.topic, message.data.decode()))

    def _check(self, node: Node) -> None:
        """I2, I3, I5, I9, in every state."""
        loaded = node.store.load_attempt(self._job_id)
        if loaded is None:
            return
        if fold(node.store.ledger(self._job_id)) != loaded.state:
            raise ViolationError("I9: the ledger's fold is not what is stored")
        if loaded.state.job.budgets.reruns_used > RERUNS_MAX:
            raise ViolationError(f"I3: {loaded.state.job.budgets}")
        decisions = [entry.decision for entry in node.store.ledger(self._job_id)]
        called = Counter(decision.replica for decision in decisions if isinstance(decision, ReactivateReplica))
        for replica in loaded.state.replicas:
            incarnations = 1 + replica.restarts_used + replica.collateral + replica.replaced + called[replica.key]
            if replica.incarnation != incarnations or replica.restarts_used > RESTARTS_MAX:
                raise ViolationError(f"I3: {replica}")
        replica_ids = [who.rpartition("/")[0] for who in node.running]
        if len(set(replica_ids)) != len(replica_ids):
            raise ViolationError(f"I5: two programs in one replica: {node.running}")


@contextmanager
def _told_after(way: tuple[Action, ...]) -> Iterator[None]:
    """A violation says how it was come by."""
    try:
        yield
    except ViolationError as error:
        told = "\n".join(" ".join(each)[:200] for each in way)
        raise ViolationError(f"{error}\nafter\n{told}") from error


def _with(waiting: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    """A set: the same message twice is what `duplicates` are for."""
    return tuple(sorted({*waiting, message}))


def _provision_of(job_id: str) -> Message:
    return topics.PROVISION, codec.encode_provision(job_id).decode()
