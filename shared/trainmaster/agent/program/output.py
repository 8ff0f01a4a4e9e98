"""The output of a program: cut into whole lines, and the end of it kept."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINE_MAX = 256 * 1024  # in bytes; longer lines are broken. Source: Cloud Logging's limit for one entry


class Tail:
    """The last bytes of an output. May be used from any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        with self._lock:
            self._bytes += data
            if len(self._bytes) > 2 * self._size:
                del self._bytes[: -self._size]

    def text(self) -> str:
        with self._lock:
            return bytes(self._bytes[-self._size :]).decode("utf-8", "replace")


def whole_lines(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield pieces of whole lines as soon as they are complete.

    `read` returns the next bytes, and empty bytes at the end. The bytes are unchanged, except that a line longer than
    LINE_MAX is broken and a missing last line end is added.
    """
    rest = b""
    while True:
        data = read()
        if not data:
            break
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
        while len(rest) >= LINE_MAX:
            yield rest[:LINE_MAX] + b"\n"
            rest = rest[LINE_MAX:]
    if rest:
        yield rest + b"\n"
