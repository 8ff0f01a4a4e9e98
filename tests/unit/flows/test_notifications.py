"""Notifications of jobs: every transition is published at least once, and no error of the topic
stops a job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bench.counting import Counts, counting_store
from tests.support.jobs import CHIEF, WORKER_0, a_spec, a_tuning_spec
from tests.support.world import World
from trainmaster.core.transitions.change import Effect
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows import user_requests
from trainmaster.flows.commit import notify
from trainmaster.messaging import topics
from trainmaster_local.memory.bus import MemoryBus


class BrokenBus:
    """A topic that refuses every message until it is repaired."""

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.fails_for = ""
        """Id of a job whose messages fail in any case."""
        self.calls = 0
        self.working = MemoryBus()

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        self.calls += 1
        if self.error:
            raise self.error
        if attributes["job_id"] == self.fails_for:
            raise TemporaryError(f"messages of {self.fails_for} fail")
        self.working.publish(topic, data, attributes)

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        raise NotImplementedError(f"{topic}: notifications have attributes: {messages!r}")


@pytest.fixture
def world() -> World:
    """A world whose installation publishes notifications."""
    return World(notifications=MemoryBus())


def published(world: World) -> list[dict[str, Any]]:
    """Return the new notifications."""
    assert isinstance(world.notifications, MemoryBus)
    messages = world.notifications.drain()
    assert {message.topic for message in messages} <= {topics.JOB_STATE}
    return [json.loads(message.data) for message in messages]


def transitions(world: World) -> list[tuple[str, str, int]]:
    return [
        (message["transition"], message["state"], message["attempt"])
        for message in published(world)
    ]


def start(world: World, **training_input: object) -> None:
    world.submit(a_spec(**training_input))
    world.deliver()
    world.report_all_ready()
    world.deliver()


def test_each_transition_of_a_job_that_succeeds_is_published_once(world: World) -> None:
    start(world)
    world.exit_program(CHIEF, status=0)
    world.deliver()
    world.wait(120)
    world.sweep()
    assert transitions(world) == [
        ("queued", "QUEUED", 1),
        ("preparing", "PREPARING", 1),
        ("running", "RUNNING", 1),
        ("succeeded", "SUCCEEDED", 1),
    ]


def test_rerun_is_published_with_its_attempt_and_keeps_the_state(world: World) -> None:
    start(world)
    for _ in range(6):
        world.exit_program(WORKER_0)
        world.deliver()
        world.send("vm-ready", WORKER_0)
        world.wait(1000)
    assert ("rerun", "RUNNING", 2) in transitions(world)


def test_cancelled_job_is_published_with_its_error_message(world: World) -> None:
    start(world)
    published(world)
    user_requests.cancel_job(world.job_id, "ada", world.deps)
    (message,) = published(world)
    assert (message["state"], message["transition"]) == ("CANCELLED", "cancelled")
    assert message["error_message"] == world.job.error_message
    assert message["text"]


def test_attributes_hold_what_filters_of_subscriptions_need(world: World) -> None:
    world.submit({**a_spec(), "labels": {"team": "vision", "empty": ""}})
    assert isinstance(world.notifications, MemoryBus)
    message = world.notifications.take()
    assert message is not None
    assert message.attributes == {
        "job_id": "digits_1",
        "kind": "job",
        "transition": "queued",
        "state": "QUEUED",
        "attempt": "1",
        "label_team": "vision",
        "label_empty": "",
    }
    assert json.loads(message.data)["labels"] == [
        {"key": "empty", "value": ""},
        {"key": "team", "value": "vision"},
    ]


def test_tuning_job_and_its_trials_are_published_under_their_kinds(world: World) -> None:
    world.submit(a_tuning_spec(maxTrials=1, maxParallelTrials=1))
    world.deliver()
    messages = published(world)
    assert [(message["kind"], message["job_id"], message["state"]) for message in messages] == [
        ("tuning", "digits_1", "QUEUED"),
        ("trial", "digits_1-trial-1", "QUEUED"),
        ("trial", "digits_1-trial-1", "PREPARING"),
        ("tuning", "digits_1", "PREPARING"),
    ]
    assert {(message.get("tuning_job"), message.get("trial")) for message in messages} == {
        (None, None),
        ("digits_1", 1),
    }


def test_nothing_is_stored_or_published_where_the_installation_publishes_no_notifications() -> None:
    world = World()
    start(world)
    assert world.store.open_notifications(10) == ()
    assert not [
        entry for entry in world.store.ledger(world.job_id) if Effect.NOTIFY in entry.effects
    ]


def test_change_by_a_process_that_does_not_know_the_installation_is_published_by_the_sweep(
    world: World,
) -> None:
    """`trainmaster cancel` runs on a user's machine, without the settings of the functions."""
    start(world)
    published(world)
    shell = replace(world.deps, notifications=None, leaves_notifications=True)
    user_requests.cancel_job(world.job_id, "ada", shell)
    assert published(world) == []
    world.wait(60)
    world.sweep()
    assert transitions(world) == [("cancelled", "CANCELLED", 1)]


def test_event_repeated_after_a_crash_before_the_publication_publishes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(world.notifications, "publish", crash)
        with pytest.raises(Crashed):
            world.submit()
    world.submit()
    assert transitions(world) == [("queued", "QUEUED", 1)]
    assert world.store.open_notifications(10) == ()


def test_repetition_after_a_crash_behind_the_publication_has_the_same_id_and_content(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "confirm_notification", crash)
        with pytest.raises(Crashed):
            world.submit()
    world.wait(60)
    world.sweep()
    first, second = published(world)
    assert first == second
    world.wait(60)
    world.sweep()
    assert published(world) == []


class Crashed(BaseException):
    """The function instance ended."""


def crash(*_: object) -> None:
    raise Crashed


def test_broken_topic_delays_no_job_and_the_sweep_publishes_when_it_is_repaired() -> None:
    bus = BrokenBus(TemporaryError("the topic does not exist"))
    world = World(notifications=bus)
    start(world)
    assert world.state == "RUNNING"
    assert world.store.jobs_with_pending() == ()
    assert len(world.store.open_notifications(10)) == 3
    bus.error = None
    world.wait(60)
    world.sweep()
    assert [json.loads(message.data)["state"] for message in bus.working.drain()] == [
        "QUEUED",
        "PREPARING",
        "RUNNING",
    ]
    assert world.store.open_notifications(10) == ()


def test_bug_while_publishing_is_raised() -> None:
    world = World(notifications=BrokenBus(PermanentError("a message of the wrong shape")))
    with pytest.raises(PermanentError):
        world.submit()


def test_sweep_leaves_a_young_notification_to_its_own_event() -> None:
    bus = BrokenBus(TemporaryError("down"))
    world = World(notifications=bus)
    world.submit()
    bus.error = None
    world.wait(notify.OPEN_MIN.total_seconds() - 1)
    world.sweep()
    assert bus.working.drain() == []


def test_sweep_stops_after_some_failures_and_one_failure_stops_no_other_notification(
    world: World,
) -> None:
    bus = BrokenBus(TemporaryError("down"))
    world.notifications = bus
    for number in range(6):
        world.job_id = f"digits_{number}"
        world.submit(source=f"gs://b/jobs/digits.yaml#{number}")
    world.wait(60)
    bus.calls = 0
    world.sweep()
    assert bus.calls == notify.FAILURES_MAX
    bus.error, bus.fails_for = None, "digits_0"
    world.sweep()
    assert [json.loads(message.data)["job_id"] for message in bus.working.drain()] == [
        f"digits_{number}" for number in range(1, 6)
    ]
    assert [entry.job_id for entry in world.store.open_notifications(10)] == ["digits_0"]


def test_notification_older_than_a_day_is_dropped() -> None:
    bus = BrokenBus(TemporaryError("down"))
    world = World(notifications=bus)
    world.submit()
    bus.error = None
    world.now += notify.OPEN_MAX + timedelta(seconds=1)
    world.sweep()
    assert bus.working.drain() == []
    assert world.store.open_notifications(10) == ()


def test_store_that_cannot_be_queried_stops_no_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(world, scheduling={"maxRunningTime": "3600s"})

    def unavailable(_: int) -> None:
        raise TemporaryError("the index is being built")

    monkeypatch.setattr(world.store, "open_notifications", unavailable)
    world.wait(3700)
    world.sweep()
    assert world.state == "CANCELLED"


def costs(world: World, act: Callable[[World], object]) -> dict[str, int]:
    """Return the calls of the store for one delivery."""
    counts = Counts()
    store = world.store
    world.store = counting_store(store, counts)  # type: ignore[assignment]
    act(world)
    world.store = store
    return dict(counts.calls)


def test_transition_costs_one_more_write_and_no_read() -> None:
    with_notifications, without = (
        costs(World(notifications=bus), lambda world: world.submit()) for bus in (MemoryBus(), None)
    )
    assert with_notifications == {**without, "confirm_notification": 1}


def test_event_without_a_transition_costs_the_same(world: World) -> None:
    start(world)
    quiet = World()
    start(quiet)
    assert costs(world, lambda world: world.exit_program(WORKER_0)) == costs(
        quiet, lambda world: world.exit_program(WORKER_0)
    )


def test_sweep_costs_one_query_more(world: World) -> None:
    start(world)
    quiet = World()
    start(quiet)
    assert costs(world, lambda world: world.sweep()) == {
        **costs(quiet, lambda world: world.sweep()),
        "open_notifications": 1,
    }
