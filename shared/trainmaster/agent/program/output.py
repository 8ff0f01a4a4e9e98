"""The output of a program, for `program.py`: cut into whole lines, and the end of it kept."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator

LINE_MAX = 256 * 1024
"""In bytes; longer lines are broken. Source: Cloud Logging's limit for one entry."""
HELD_MAX_S = 10.0
"""How long an incomplete line is held back: a progress bar ends its line when it is full."""


class Tail:
    """The last bytes of an output. May be used from any thread."""

    def __init__(self, size: int) -> None:
        """`size`: in bytes."""
        self._size = size
        self._lock = threading.Lock()
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        """Append what the program has printed."""
        with self._lock:
            self._bytes += data
            if len(self._bytes) > 2 * self._size:
                del self._bytes[: -self._size]

    def text(self) -> str:
        """Return the last `size` bytes as text, which may begin within a line."""
        with self._lock:
            return bytes(self._bytes[-self._size :]).decode("utf-8", "replace")

    def whole_lines(self) -> str:
        """Return the text from its first whole line on. A carriage return ends a line, too."""
        text = self.text()
        if len(self._bytes) < self._size:
            return text  # nothing is cut off: the first line is whole
        return "".join(re.split(r"([\r\n])", text, maxsplit=1)[1:])


def whole_lines(
    read: Callable[[float | None], bytes | None], clock: Callable[[], float] = time.monotonic
) -> Iterator[bytes]:
    """Yield pieces of whole lines as soon as they are complete.

    `read` waits for at most the given number of seconds. It returns the next bytes, empty bytes at
    the end, and None if the time is over. The bytes are unchanged, except that a line end is added
    to a line that is longer than LINE_MAX, that is not complete after HELD_MAX_S (a progress bar, a
    question), or that is the last one.
    """
    rest = b""
    held_since = 0.0
    was_cut = False
    while True:
        data = read(max(0.0, held_since + HELD_MAX_S - clock()) if rest else None)
        if data == b"":
            break
        if data:
            if was_cut and data.startswith(b"\n"):
                data = data[1:]  # the line has its end already
            was_cut = False
            end = data.rfind(b"\n") + 1
            if end or not rest:
                held_since = clock()
            if end:
                yield rest + data[:end]
                rest = b""
            rest += data[end:]
            while len(rest) >= LINE_MAX:
                yield rest[:LINE_MAX] + b"\n"
                rest = rest[LINE_MAX:]
        if rest and clock() - held_since >= HELD_MAX_S:
            yield rest + b"\n"
            rest = b""
            was_cut = True
    if rest:
        yield rest + b"\n"
