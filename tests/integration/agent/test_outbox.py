"""The outbox: events are repeated until they are answered, and a refused event blocks no other."""

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
from trainmaster.agent.reporting.publisher import REPEATS_RARE, Event, Outbox, repeat_intervals
from trainmaster.agent.reporting.serial_console import Console

FIRST, SECOND = IncarnationKey(1, 1), IncarnationKey(1, 2)


class Topic:
    """Accepts events in memory. It refuses those whose body it cannot take, as a topic with a schema does."""

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


def event(topic: str, key: IncarnationKey = FIRST, *, is_final: bool = False, **body: object) -> Event:
    return Event(topic, key, body, "a", lambda: None, is_final)


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return console_of(tmp_path / "serial")


def running_outbox(console: Console, repeat_s: float | None) -> tuple[Outbox, Topic]:
    topic = Topic()
    outbox = Outbox(topic, console, repeat_s)  # type: ignore[arg-type]
    threading.Thread(target=outbox.run, daemon=True).start()
    return outbox, topic


def test_latest_event_is_repeated_until_a_later_directive_answers_it(console: Console) -> None:
    outbox, topic = running_outbox(console, 0.05)
    outbox.put(event("ready"))
    outbox.put(event("exit", is_final=True))
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
    outbox.put(event("ready", SECOND))
    topic.wait_until(lambda accepted: accepted.count("ready") >= 2)


def test_event_is_not_repeated_without_an_interval(console: Console) -> None:
    outbox, topic = running_outbox(console, None)
    outbox.put(event("maintenance"))
    assert outbox.flush(20)
    time.sleep(0.3)
    assert topic.accepted == ["maintenance"]


def test_refused_event_does_not_block_later_events(console: Console) -> None:
    outbox, topic = running_outbox(console, None)
    outbox.put(event("ready", malformed=True))
    outbox.put(event("exit", is_final=True))
    topic.wait_until(lambda accepted: accepted == ["exit"])


def test_exit_is_repeated_steadily_and_ready_more_and_more_rarely() -> None:
    exits = list(islice(repeat_intervals(600, event("exit", is_final=True)), 50))
    assert all(480 <= wait <= 720 for wait in exits)
    assert len(set(exits)) > 1
    readies = list(islice(repeat_intervals(600, event("ready")), 50))
    assert 480 <= readies[0] <= 720
    assert all(wait >= 0.8 * REPEATS_RARE * 600 for wait in readies[6:])
    assert max(readies) <= 1.2 * REPEATS_RARE * 600
