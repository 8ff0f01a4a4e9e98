"""The VM's serial console, where the agent's lines and the program's meet, and a second reader of both."""

from __future__ import annotations

import contextlib
import os
import threading
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class LogSink(Protocol):
        """Gets a copy of everything on the console, as Cloud Logging does. Neither call may raise."""

        def put(self, stream: Stream, lines: bytes) -> None:
            """One or more whole lines, each with its line end. Called on the thread that read them, one call at a
            time: it must not wait for anybody."""

        def flush(self, timeout: float) -> None:
            """Returns when all of what was put is delivered, or after so many seconds. From any thread."""


LINE_MAX = 60 << 10
"""A longer line is broken: Google's runner of startup scripts, which reads this, gives up for ever at one of 64 KiB. A
progress bar is one line until its end. Source: issues 149 and 215 of GoogleCloudPlatform/guest-agent."""


class Stream(Enum):
    """Where a line comes from."""

    AGENT = "agent"
    STDOUT = "stdout"
    STDERR = "stderr"


class Console:
    """The agent's stdout, which is the VM's serial console: whole lines, whoever writes them."""

    def __init__(self, file: int = 1) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._sink: LogSink | None = None

    def copy_to(self, sink: LogSink) -> None:
        """From now on; what was said before is on the serial console only."""
        self._sink = sink

    def say(self, text: str) -> None:
        """A line of the agent's own."""
        line = f"{text}\n".encode("utf-8", "backslashreplace")
        self._put(Stream.AGENT, line, b"[trainmaster] " + line)

    def complain(self, text: str) -> None:
        """A line of the agent's own that tells of an error."""
        line = f"{text}\n".encode("utf-8", "backslashreplace")
        self._put(Stream.STDERR, line, b"[trainmaster] " + line)

    def write(self, stream: Stream, lines: bytes) -> None:
        """Whole lines of a program."""
        self._put(stream, lines, lines)

    def flush(self, timeout: float) -> None:
        """Gives the copy so many seconds to be complete."""
        if self._sink is not None:
            self._sink.flush(timeout)

    def _put(self, stream: Stream, lines: bytes, shown: bytes) -> None:
        with self._lock:
            if self._sink is not None:
                self._sink.put(stream, lines)
            # A console that is gone must not end the training.
            with contextlib.suppress(OSError):
                view = memoryview(_broken(shown))
                while view:
                    view = view[os.write(self._file, view) :]


def _broken(lines: bytes) -> bytes:
    if len(lines) <= LINE_MAX:
        return lines
    pieces = (
        line[start : start + LINE_MAX]
        for line in lines.split(b"\n")[:-1]
        for start in range(0, max(len(line), 1), LINE_MAX)
    )
    return b"".join(piece + b"\n" for piece in pieces)
