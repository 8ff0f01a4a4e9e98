"""Function invocations of the exhaustive search: the real flows over a node's store and fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from tests.support.exhaustive_search.node import Message, Node
from trainmaster.errors import TemporaryError
from trainmaster.flows.dispatch import handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.delivery import LEASE_S
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import internal_requests, push, topics
from trainmaster.ports import Bus, Fleet, Store
from trainmaster_local.memory.bus import MemoryBus
from trainmaster_local.simulator.world.function_ports import (
    FunctionCrashed,
    InterceptedPort,
    SimAddressBook,
    run_sequentially,
)
from trainmaster_local.simulator.world.scheduler import START

Intercept = Callable[[str, Callable[[], Any]], Any]


def run_sweep(node: Node) -> None:
    """Run the sweep on this node, after the leases of crashed functions have expired."""
    node.ticks += int(LEASE_S) + 1
    bus = MemoryBus()
    _handle(node, bus, lambda _, call: call(), (topics.SWEEP, "{}"))
    _collect(node, bus)


def deliver(node: Node, message: Message, crash_before: int = 0) -> int:
    """Deliver a message to its function and return the number of port calls that the function made.

    The function crashes before its port call number `crash_before`; 0 means that it does not. The
    message stays pending unless it is acknowledged.
    """
    calls = 0

    def intercept(_: str, call: Callable[[], Any]) -> Any:
        nonlocal calls
        calls += 1
        if calls == crash_before:
            raise FunctionCrashed
        return call()

    bus = MemoryBus()
    node.remove_pending(message)
    try:
        _handle(node, bus, intercept, message)
    except (FunctionCrashed, TemporaryError):
        node.add_pending(message)
    _collect(node, bus)
    return calls


def provision_request(job_id: str) -> Message:
    """Return the message that asks `provision` to look at this job."""
    return topics.PROVISION, internal_requests.encode_provision(
        internal_requests.ProvisionRequest(job_id)
    ).decode()


def _handle(node: Node, bus: MemoryBus, intercept: Intercept, message: Message) -> None:
    """Handle a message that is published at the time of its invocation."""
    topic, data = message
    deps = _deps(node, bus, intercept)
    fleet = cast("Fleet", InterceptedPort(node.fleet, intercept))
    fleet_deps = FleetDeps(fleet, SimAddressBook(), "p", agent_files={}, run_all=run_sequentially)
    handlers = handlers_by_topic(lambda: deps, auth_deps=None, fleet_deps=lambda: fleet_deps)
    attributes = {"source": "gs://b/jobs/j.yaml#1"} if topic == topics.SUBMIT else {}
    handlers[topic](push.Message(data.encode(), attributes, "", deps.clock()))


def _deps(node: Node, bus: MemoryBus, intercept: Intercept) -> CreationDeps:
    node.ticks += 1
    now = START + timedelta(seconds=node.ticks)
    store = cast("Store", InterceptedPort(node.store, intercept))
    return CreationDeps(
        store, cast("Bus", InterceptedPort(bus, intercept)), clock=lambda: now, sleep=lambda _: None
    )


def _collect(node: Node, bus: MemoryBus) -> None:
    for message in bus.drain():
        is_provision = message.topic == topics.PROVISION
        node.add_pending(
            _without_entry(message.data) if is_provision else (message.topic, message.data.decode())
        )


def _without_entry(data: bytes) -> Message:
    """Return the provision request as the sweep sends it.

    A request per ledger entry would multiply the states.
    """
    request = internal_requests.decode_provision(data)
    return (
        provision_request(request.job_id)
        if isinstance(request, internal_requests.ProvisionRequest)
        else (topics.PROVISION, data.decode())
    )
