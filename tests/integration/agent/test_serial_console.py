"""The serial console and its copy for the log."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.program.program import Program
from trainmaster.agent.reporting.publisher import PROBLEM_CHARS, Event, Outbox, Publisher
from trainmaster.agent.reporting.serial_console import (
    NO_LABELS,
    Console,
    Stream,
    Unlogged,
    never,
)
from trainmaster.agent.workspace import Workspace

from .support.cloud import Cloud


class Copy:
    """A log sink that records its calls."""

    def __init__(self) -> None:
        self.lines: list[tuple[Stream, bytes]] = []
        self.steps: list[str] = []
        self.lacks = Unlogged()

    def put(self, stream: Stream, lines: bytes, labels: Mapping[str, str] = NO_LABELS) -> None:
        self.lines.append((stream, lines))

    def flush(self, timeout: float, is_needless: Callable[[], bool] = never) -> None:
        assert not is_needless()
        self.steps.append(f"flushed within {timeout:g} s")

    def unlogged(self) -> Unlogged:
        return self.lacks

    def hurry(self) -> None:
        self.steps.append("hurried")

    def close(self, timeout: float) -> None:
        self.steps.append(f"closed within {timeout:g} s")


@pytest.fixture
def serial(tmp_path: Path) -> Path:
    return tmp_path / "serial"


def console_of(serial: Path) -> Console:
    return Console(os.open(serial, os.O_WRONLY | os.O_CREAT | os.O_APPEND))


def test_copy_has_every_line_with_its_stream_and_without_the_prefix(
    serial: Path, tmp_path: Path
) -> None:
    console, copy = console_of(serial), Copy()
    console.log("before")
    console.copy_to(copy)
    console.log("hello")
    source = "import sys; print('out'); print('err', file=sys.stderr)"
    Program(
        [sys.executable, "-c", source],
        Workspace(tmp_path, environ={}, console=console),
        env={},
        cwd=tmp_path,
    ).wait()
    assert sorted(copy.lines, key=str) == [
        (Stream.AGENT, b"hello\n"),
        (Stream.STDERR, b"err\n"),
        (Stream.STDOUT, b"out\n"),
    ]
    assert sorted(serial.read_bytes().splitlines()) == [
        b"[trainmaster] before",
        b"[trainmaster] hello",
        b"err",
        b"out",
    ]


def test_agents_error_has_the_prefix_and_is_an_error_in_the_copy(serial: Path) -> None:
    console, copy = console_of(serial), Copy()
    console.copy_to(copy)
    console.log("it failed", Stream.AGENT_ERROR)
    assert serial.read_bytes() == b"[trainmaster] it failed\n"
    assert copy.lines == [(Stream.AGENT_ERROR, b"it failed\n")]


def test_long_line_is_broken_on_the_console_but_not_in_the_copy(serial: Path) -> None:
    """Google's runner of startup scripts stops reading for ever at a line that does not fit into 64
    KiB.
    """
    console, copy = console_of(serial), Copy()
    console.copy_to(copy)
    bar = b"\r".join(b"step %06d" % step for step in range(20_000))
    console.write(Stream.STDOUT, b"before\n\n" + bar + b"\nafter\n")
    console.log("x" * (64 << 10))
    written = serial.read_bytes()
    assert max(len(line) for line in written.split(b"\n")) < (64 << 10) - 1
    assert written.replace(b"\n", b"") == b"before" + bar + b"after[trainmaster] " + b"x" * (
        64 << 10
    )
    assert written.startswith(b"before\n\nstep")
    assert b"\nafter\n[trainmaster] x" in written
    assert copy.lines[0] == (Stream.STDOUT, b"before\n\n" + bar + b"\nafter\n")


def test_log_is_flushed_before_an_exit_only(cloud: Cloud, serial: Path) -> None:
    console, copy = console_of(serial), Copy()
    console.copy_to(copy)
    metadata = MetadataServer(cloud.host)
    publisher = Publisher(GoogleApi(cloud.host, real="", metadata=metadata), metadata, console)
    outbox = Outbox(publisher, console, threading.Condition())
    threading.Thread(target=outbox.run, daemon=True).start()
    for topic, is_final in (("vm-ready", False), ("replica-exit", True)):
        topic_path = f"projects/p/topics/{topic}"
        outbox.put(
            Event(
                topic_path,
                IncarnationKey(1, 1),
                body={},
                audience="a",
                accepted=lambda t=topic: copy.steps.append(t),  # type: ignore[misc]
                is_final=is_final,
            )
        )
    assert outbox.flush(20)
    assert copy.steps == ["vm-ready", "flushed within 120 s", "replica-exit"]


@pytest.mark.parametrize("problem", ["", "HTTP 403: PERMISSION_DENIED " + "x" * 999])
def test_exit_has_the_lines_that_its_log_refuses(cloud: Cloud, serial: Path, problem: str) -> None:
    console, copy = console_of(serial), Copy()
    console.copy_to(copy)
    copy.lacks = Unlogged(12, problem)
    metadata = MetadataServer(cloud.host)
    publisher = Publisher(GoogleApi(cloud.host, real="", metadata=metadata), metadata, console)
    outbox = Outbox(publisher, console, threading.Condition())
    threading.Thread(target=outbox.run, daemon=True).start()
    for topic, is_final in (("vm-ready", False), ("replica-exit", True)):
        key = IncarnationKey(1, 1)
        outbox.put(
            Event(
                f"projects/p/topics/{topic}",
                key,
                body={},
                audience="a",
                accepted=lambda: None,
                is_final=is_final,
            )
        )
    assert outbox.flush(20)
    assert cloud.wait_for_message("vm-ready").body == {}
    body = cloud.wait_for_message("replica-exit").body
    refused = {"unlogged_lines": 12, "log_problem": problem[:PROBLEM_CHARS]}
    assert body == (refused if problem else {})


def test_flush_without_a_copy_does_nothing(serial: Path) -> None:
    console_of(serial).flush(0)
