"""What goes to the serial console, and the copy of it that a log may take."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from shared.agent.control.vm_config import Key
from shared.agent.control.workspace import Place
from shared.agent.http.metadata_server import Google, Metadata
from shared.agent.program.program import Program
from shared.agent.reporting.publisher import Event, Lane, Publisher
from shared.agent.reporting.serial_console import Console, Stream

from .support.cloud import Cloud


class Copy:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[Stream, bytes]] = []
        self.steps: list[str] = []

    def put(self, stream: Stream, lines: bytes) -> None:
        self.lines.append((stream, lines))

    def flush(self, timeout: float) -> None:
        self.steps.append(f"flushed within {timeout:g} s")


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    return tmp_path / "serial"


def console_of(shown: Path) -> Console:
    return Console(os.open(shown, os.O_WRONLY | os.O_CREAT | os.O_APPEND))


def test_the_copy_has_every_line_with_where_it_comes_from_and_without_our_mark(shown: Path, tmp_path: Path) -> None:
    console, copy = console_of(shown), Copy()
    console.say("before")
    console.copy_to(copy)
    console.say("hello")
    source = "import sys; print('out'); print('err', file=sys.stderr)"
    Program([sys.executable, "-c", source], Place(tmp_path, {}, console), env={}, cwd=tmp_path).wait()
    assert sorted(copy.lines, key=str) == [
        (Stream.AGENT, b"hello\n"),
        (Stream.STDERR, b"err\n"),
        (Stream.STDOUT, b"out\n"),
    ]
    assert sorted(shown.read_bytes().splitlines()) == [b"[trainmaster] before", b"[trainmaster] hello", b"err", b"out"]


def test_a_complaint_is_the_agents_own_on_the_console_and_an_error_in_the_copy(shown: Path) -> None:
    console, copy = console_of(shown), Copy()
    console.copy_to(copy)
    console.complain("it failed")
    assert shown.read_bytes() == b"[trainmaster] it failed\n"
    assert copy.lines == [(Stream.STDERR, b"it failed\n")]


def test_a_line_that_the_runner_of_startup_scripts_could_not_read_is_broken_for_it_alone(shown: Path) -> None:
    """As Google's runner reads: it gives up at a line for which 64 KiB have no room, and nobody reads what follows."""
    console, copy = console_of(shown), Copy()
    console.copy_to(copy)
    bar = b"\r".join(b"step %06d" % step for step in range(20_000))
    console.write(Stream.STDOUT, b"before\n\n" + bar + b"\nafter\n")
    console.say("x" * (64 << 10))
    written = shown.read_bytes()
    assert max(len(line) for line in written.split(b"\n")) < (64 << 10) - 1
    assert written.replace(b"\n", b"") == b"before" + bar + b"after[trainmaster] " + b"x" * (64 << 10)
    assert written.startswith(b"before\n\nstep")
    assert b"\nafter\n[trainmaster] x" in written
    assert copy.lines[0] == (Stream.STDOUT, b"before\n\n" + bar + b"\nafter\n")


def test_the_log_comes_before_the_exit_and_holds_up_nothing_else(cloud: Cloud, shown: Path) -> None:
    console, copy = console_of(shown), Copy()
    console.copy_to(copy)
    metadata = Metadata(cloud.host)
    lane = Lane(Publisher(Google(cloud.host, "", metadata), metadata, console), console)
    threading.Thread(target=lane.carry, daemon=True).start()
    for topic, is_last_word in (("vm-ready", False), ("replica-exit", True)):
        topic_path = f"projects/p/topics/{topic}"
        lane.put(Event(topic_path, Key(1, 1), {}, "a", lambda t=topic: copy.steps.append(t), is_last_word))  # type: ignore[misc]
    assert lane.flush(20)
    assert copy.steps == ["vm-ready", "flushed within 3 s", "replica-exit"]


def test_without_a_copy_there_is_nothing_to_flush(shown: Path) -> None:
    console_of(shown).flush(0)
