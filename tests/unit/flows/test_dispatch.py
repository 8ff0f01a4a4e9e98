"""The table of all flows: which topics it has, and what the flows read of their messages."""

from __future__ import annotations

import json
from datetime import timedelta

from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.flows.dispatch import AGENT_EVENTS, handlers_by_topic
from trainmaster.messaging import topics
from trainmaster.messaging.push import Message
from trainmaster_local.memory.bus import MemoryBus
from trainmaster_local.memory.objects import MemoryObjects

CHIEF = ReplicaId(TaskType.CHIEF, 0)
TOPICS = {value for name, value in vars(topics).items() if name.isupper()}
"""All topics."""
WITHOUT_FUNCTION = {topics.JOB_STATE, topics.DEAD_LETTER}
"""Topics whose subscribers are users and operators."""


def test_every_topic_of_a_function_has_a_handler(world: World) -> None:
    handlers = handlers_by_topic(
        lambda: world.deps,
        auth_deps=None,
        fleet_deps=lambda: world.fleet_deps,
        objects=MemoryObjects,
        suggester=lambda: world.suggester,
    )
    assert set(handlers) == TOPICS - WITHOUT_FUNCTION
    assert set(AGENT_EVENTS) < set(handlers)


def test_topics_whose_flow_lacks_a_port_have_no_handler(world: World) -> None:
    handlers = handlers_by_topic(lambda: world.deps, auth_deps=None)
    missing = {topics.PROVISION, topics.UPLOAD, topics.TUNE}
    assert set(handlers) == TOPICS - WITHOUT_FUNCTION - missing


def test_time_of_an_agent_is_cut_to_the_publish_time_of_its_message(world: World) -> None:
    world.submit()
    world.deliver()
    fields = world.message_fields(CHIEF)
    published_at = world.now
    fast = {**fields, "at": (published_at + timedelta(minutes=5)).isoformat()}
    message = Message(
        json.dumps(fast).encode(), attributes={}, message_id="1", published_at=published_at
    )
    world.handlers[topics.VM_READY](message)
    assert world.ledger[-1].event.at == published_at


def test_redelivered_message_keeps_its_id_and_publish_time(world: World) -> None:
    bus = MemoryBus(clock=lambda: world.now)
    bus.publish(topics.SWEEP, b"{}", {"a": "b"})
    bus.publish(topics.SWEEP, b"{}", {})
    first = bus.take()
    assert first is not None
    world.wait(60)
    bus.redeliver(first)
    second, again = bus.drain()
    assert again == first
    assert first.message_id != second.message_id
    assert first.published_at == second.published_at == world.now - timedelta(seconds=60)
