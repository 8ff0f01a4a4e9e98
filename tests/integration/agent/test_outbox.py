"""The outbox: events are repeated until a directive of the control plane answers them, and a
refused event blocks no other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tests.integration.agent.test_serial_console import console_of
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.events import EXIT_REPEATS, HELD_REPEATS, RUNNING_REPEATS
from trainmaster.agent.reporting.publisher import Event, Outbox, repeat_intervals
from trainmaster.agent.reporting.serial_console import Console

FIRST, SECOND = IncarnationKey(1, 1), IncarnationKey(1, 2)
"""Two starts of the program in one attempt of the job."""
SPREAD = 0.2
"""Share by which an interval differs at random, so that VMs do not repeat in step."""


class Topic:
    """Accepts events in memory.

    It refuses those whose body it cannot take, as a topic with a schema does.
    """

    def __init__(self) -> None:
        self.accepted: list[str] = []

    def publish(self, event: Event) -> None:
        if event.body.get("malformed"):
            raise HttpError(400, "INVALID_ARGUMENT")
        self.accepted.append(event.topic)

    def wait_until(self, condition: Callable[[list[str]], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition(self.accepted):
            assert time.monotonic() < deadline, self.accepted
            time.sleep(0.01)


def event(
    topic: str, key: IncarnationKey = FIRST, *, repeat_s: float = 0.0, **body: object
) -> Event:
    return Event(
        topic,
        key,
        body,
        audience="a",
        accepted=lambda: None,
        is_final=topic == "exit",
        repeat_s=repeat_s,
        repeat_max_s=repeat_s,
    )


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return console_of(tmp_path / "serial")


def running_outbox(console: Console) -> tuple[Outbox, Topic]:
    topic = Topic()
    outbox = Outbox(topic, console, threading.Condition())  # type: ignore[arg-type]
    threading.Thread(target=outbox.run, daemon=True).start()
    return outbox, topic


def test_latest_event_is_repeated_until_a_later_directive_answers_it(console: Console) -> None:
    outbox, topic = running_outbox(console)
    outbox.put(event("ready", repeat_s=0.05))
    outbox.put(event("exit", repeat_s=0.05))
    topic.wait_until(lambda accepted: accepted.count("exit") >= 4)
    assert topic.accepted[:2] == ["ready", "exit"]
    assert topic.accepted.count("ready") == 1, "the exit took its place"
    outbox.drop_before(FIRST)  # a directive of the same incarnation does not answer its exit
    count = topic.accepted.count("exit")
    topic.wait_until(lambda accepted: accepted.count("exit") > count)
    outbox.drop_before(SECOND)
    time.sleep(0.1)
    count = len(topic.accepted)
    time.sleep(0.5)
    assert len(topic.accepted) == count
    outbox.put(event("ready", SECOND, repeat_s=0.05))
    topic.wait_until(lambda accepted: accepted.count("ready") >= 3)
    outbox.stop_repeating()
    time.sleep(0.1)
    count = len(topic.accepted)
    time.sleep(0.3)
    assert len(topic.accepted) == count


def test_event_is_not_repeated_without_an_interval(console: Console) -> None:
    outbox, topic = running_outbox(console)
    outbox.put(event("maintenance"))
    assert outbox.flush(20)
    time.sleep(0.3)
    assert topic.accepted == ["maintenance"]


def test_refused_event_does_not_block_later_events(console: Console) -> None:
    outbox, topic = running_outbox(console)
    outbox.put(event("ready", malformed=True))
    outbox.put(event("exit"))
    topic.wait_until(lambda accepted: accepted == ["exit"])


@pytest.mark.parametrize("repeats_s", [EXIT_REPEATS, RUNNING_REPEATS, HELD_REPEATS])
def test_repeats_become_rarer_up_to_a_limit(repeats_s: tuple[float, float]) -> None:
    first_s, max_s = repeats_s
    waits = list(islice(repeat_intervals(first_s, max_s), 50))
    assert waits[0] == pytest.approx(first_s, rel=SPREAD)
    assert all(wait == pytest.approx(max_s, rel=SPREAD) for wait in waits[6:])
    assert len(set(waits)) > 1, "VMs do not repeat in step"
