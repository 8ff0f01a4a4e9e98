"""Lines on their way to Cloud Logging: bounded, in order, each with a time of its own.

``put`` is called by whoever reads the program's output and costs next to nothing: lines stay in the chunks they came
in until a batch of them is taken.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.agent.control.vm_config import Key
    from shared.agent.reporting.serial_console import Stream

BUFFER_BYTES_MAX = 32 << 20
BATCH_LINES_MAX = 1000
BATCH_BYTES_MAX = 1_200_000  # six times that at worst as JSON. Source: Cloud Logging takes requests of 10 MB
LINE_BYTES_MAX = 200 << 10  # a longer line becomes several. Source: Cloud Logging takes entries of 256 KB

# Between two lines at least, and times end in 1 (or more, for the pieces of a line), never in 0: Cloud Logging leaves
# trailing zeros out of the times it gives back, and gcloud compares those as text.
STEP_NS = 10


class Line(NamedTuple):
    at_ns: int
    incarnation_key: Key | None
    stream: Stream
    text: bytes


@dataclass(frozen=True)
class Lost:
    """So many lines are missing; the first of them was of that time."""

    count: int
    at_ns: int
    why: str


@dataclass(frozen=True)
class Chunk:
    """Whole lines that came at once: the nth of them is of ``first_ns + n * STEP_NS``."""

    first_ns: int
    incarnation_key: Key | None
    stream: Stream
    lines: bytes

    @property
    def count(self) -> int:
        return self.lines.count(b"\n")


class LogBuffer:
    """Where it is full the oldest chunk goes, and is counted."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.changed = threading.Condition()
        self._clock_ns = clock_ns
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._lines = 0
        self._last_ns = 0
        self._lost: Lost | None = None

    def put(self, incarnation_key: Key | None, stream: Stream, lines: bytes) -> None:
        with self.changed:
            now = self._clock_ns() // STEP_NS * STEP_NS + 1
            chunk = Chunk(max(now, self._last_ns + STEP_NS), incarnation_key, stream, lines)
            self._last_ns = chunk.first_ns + (chunk.count - 1) * STEP_NS
            self._chunks.append(chunk)
            self._count(chunk, 1)
            while self._bytes > BUFFER_BYTES_MAX:
                self._give_up()
            self.changed.notify_all()

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    @property
    def holds_a_batch(self) -> bool:
        return self._lines >= BATCH_LINES_MAX or self._bytes >= BATCH_BYTES_MAX

    def take(self) -> tuple[list[Line], Lost | None]:
        """The oldest lines, as many as one batch may have, and what was given up before them."""
        with self.changed:
            lost, self._lost = self._lost, None
            taken: list[Line] = []
            size = 0
            while self._chunks and len(taken) < BATCH_LINES_MAX and size < BATCH_BYTES_MAX:
                chunk = self._chunks.popleft()
                self._count(chunk, -1)
                size += self._take_from(chunk, taken, BATCH_BYTES_MAX - size)
            return taken, lost

    def _take_from(self, chunk: Chunk, taken: list[Line], room: int) -> int:
        """How many bytes fitted; the rest of the chunk is put back."""
        used = number = 0
        for number, line in enumerate(chunk.lines.split(b"\n")[:-1]):
            if len(taken) >= BATCH_LINES_MAX or used >= room:
                break
            at_ns = chunk.first_ns + number * STEP_NS
            for nth, start in enumerate(range(0, max(len(line), 1), LINE_BYTES_MAX)):
                taken.append(
                    Line(at_ns + nth, chunk.incarnation_key, chunk.stream, line[start : start + LINE_BYTES_MAX])
                )
            used += len(line) + 1
        if used < len(chunk.lines):
            rest = Chunk(chunk.first_ns + number * STEP_NS, chunk.incarnation_key, chunk.stream, chunk.lines[used:])
            self._chunks.appendleft(rest)
            self._count(rest, 1)
        return used

    def lose(self, count: int, at_ns: int, why: str) -> None:
        """Told with the next batch."""
        with self.changed:
            before = self._lost or Lost(0, at_ns, why)
            self._lost = Lost(before.count + count, before.at_ns, why)

    def _give_up(self) -> None:
        oldest = self._chunks.popleft()
        self._count(oldest, -1)
        self.lose(oldest.count, oldest.first_ns, "Cloud Logging did not take them in time")

    def _count(self, chunk: Chunk, sign: int) -> None:
        self._bytes += sign * len(chunk.lines)
        self._lines += sign * chunk.count
