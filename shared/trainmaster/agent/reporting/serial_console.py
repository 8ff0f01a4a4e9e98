"""The VM's serial console, which shows the lines of the agent and of the program, and an optional
copy of it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

LINE_BYTES_MAX = 60 << 10
"""Longer lines are broken: Google's runner of startup scripts, which reads the agent's stdout,
stops reading for good at a line of 64 KiB. A progress bar is one line until its end. Source: issues
149 and 215 of GoogleCloudPlatform/guest-agent.
"""


NO_LABELS: Mapping[str, str] = {}


class Loss(Enum):
    """A kind of lines that did not arrive, by the label that counts them in the log.

    `trainmaster why` adds the counts up.
    """

    LINES = "trainmaster/missing_lines"
    """Lines of the log."""
    MEASUREMENTS = "trainmaster/missing_measurements"
    """Values of a trial's metric."""
    REPORTS = "trainmaster/missing_reports"
    """Reports of a machine's use and of the program's progress, one a minute."""

    def labels(self, count: int) -> Mapping[str, str]:
        """Return the label of an entry that counts this loss."""
        return {self.value: str(count)}


def never() -> bool:
    """Return False: the `is_needless` of callers that wait in any case."""
    return False


class Unlogged(NamedTuple):
    """Lines that the copy does not have yet.

    It may still get them. Lines that it has given up are counted in the copy itself.
    """

    lines: int = 0
    problem: str = ""
    """Why Cloud Logging does not accept them; empty: it is only slow."""


class LogSink(Protocol):
    """Receives a copy of everything on the console, as Cloud Logging does.

    No method may raise.
    """

    def put(self, stream: Stream, lines: bytes, labels: Mapping[str, str] = NO_LABELS) -> None:
        """Take one or more whole lines, each with its line end; `labels` are for all of them.

        Called on the thread that read the lines, one call at a time. It must not block.
        """

    def flush(self, timeout: float, is_needless: Callable[[], bool] = never) -> None:
        """Return when all lines are delivered, when no more are accepted, when `is_needless`
        returns True, or after `timeout` seconds.

        May be called from any thread.
        """

    def unlogged(self) -> Unlogged:
        """Return what is not delivered now. May be called from any thread."""

    def hurry(self) -> None:
        """Deliver the newest lines first from now on: there may be no time for all of them.

        May be called from any thread.
        """

    def close(self, timeout: float) -> None:
        """Deliver what can be delivered within `timeout` seconds, and then how much is missing."""


class Stream(Enum):
    """The source of a line."""

    AGENT = "agent"
    AGENT_WARNING = "agent warning"
    AGENT_ERROR = "agent error"
    STDOUT = "stdout"
    STDERR = "stderr"


class Console:
    """The agent's stdout, which is the VM's serial console.

    May be used from any thread; lines are never mixed.
    """

    def __init__(self, file: int = 1) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._sink: LogSink | None = None

    def copy_to(self, sink: LogSink) -> None:
        """Copy all lines from now on to `sink`."""
        self._sink = sink

    def log(self, text: str, stream: Stream = Stream.AGENT) -> None:
        """Write one line of the agent. With `Stream.AGENT_ERROR`, the copy shows it as an
        error.
        """
        self._log(stream, text, NO_LABELS)

    def log_loss(self, loss: Loss, count: int, text: str) -> None:
        """Write one line of the agent about what does not arrive; the copy has its number as a
        label.
        """
        self._log(Stream.AGENT_WARNING, text, loss.labels(count))

    def write(self, stream: Stream, lines: bytes) -> None:
        """Write whole lines of a program."""
        self._put(stream, lines, lines, NO_LABELS)

    def flush(self, timeout: float, is_needless: Callable[[], bool] = never) -> None:
        """Wait at most `timeout` seconds until the copy is complete, or `is_needless()` is True."""
        if self._sink is not None:
            self._sink.flush(timeout, is_needless)

    def unlogged(self) -> Unlogged:
        """Return what the copy lacks now."""
        return Unlogged() if self._sink is None else self._sink.unlogged()

    def hurry(self) -> None:
        """Copy the newest lines first from now on."""
        if self._sink is not None:
            self._sink.hurry()

    def close(self, timeout: float) -> None:
        """Complete the copy as far as `timeout` seconds allow, and count there what is missing."""
        if self._sink is not None:
            self._sink.close(timeout)

    def _log(self, stream: Stream, text: str, labels: Mapping[str, str]) -> None:
        line = f"{text}\n".encode("utf-8", "backslashreplace")
        self._put(stream, line, b"[trainmaster] " + line, labels)

    def _put(
        self, stream: Stream, lines: bytes, console_lines: bytes, labels: Mapping[str, str]
    ) -> None:
        with self._lock:
            if self._sink is not None:
                self._sink.put(stream, lines, labels)
            # A console that cannot be written must not end the training.
            with contextlib.suppress(OSError):
                view = memoryview(_break_long_lines(console_lines))
                while view:
                    view = view[os.write(self._file, view) :]


def _break_long_lines(lines: bytes) -> bytes:
    if len(lines) <= LINE_BYTES_MAX:
        return lines
    broken = bytearray()
    for line in lines.split(b"\n")[:-1]:
        for start in range(0, max(len(line), 1), LINE_BYTES_MAX):  # an empty line is one piece
            broken += line[start : start + LINE_BYTES_MAX] + b"\n"
    return bytes(broken)
