"""Lines waiting to be sent to Cloud Logging: bounded, in order, each with a unique time.

``put`` is called by the threads that read the program's output, so it is cheap: lines stay in the
chunks in which they arrived until a batch is taken.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.serial_console import Stream

BUFFER_BYTES_MAX = 32 << 20
BATCH_LINES_MAX = 1000
BATCH_BYTES_MAX = 1_200_000
"""At worst six times as much in JSON. Source: Cloud Logging accepts requests of 10 MB."""
LINE_BYTES_MAX = 200 << 10
"""Longer lines are split. Source: Cloud Logging accepts entries of 256 KB."""

STEP_NS = 10
"""Least distance between the times of two lines.

The times end in 1 (or a higher digit, for the pieces of a line), never in 0: Cloud Logging omits
trailing zeros when it returns times, and gcloud compares times as text.
"""


class Line(NamedTuple):
    """A line of output, with the time and the incarnation that its log entry has."""

    at_ns: int
    """Nanoseconds since 1970."""
    incarnation_key: IncarnationKey | None
    stream: Stream
    text: bytes


@dataclass(frozen=True)
class LostLines:
    """Lines that were dropped."""

    count: int
    at_ns: int
    """Time of the first of them."""
    why: str


@dataclass(frozen=True)
class Chunk:
    """Whole lines that arrived together. Line number n has the time ``first_ns + n * STEP_NS``."""

    first_ns: int
    incarnation_key: IncarnationKey | None
    stream: Stream
    lines: bytes

    @property
    def count(self) -> int:
        return self.lines.count(b"\n")


class LogBuffer:
    """When it is full, it drops the oldest chunks and counts their lines."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.changed = threading.Condition()
        self._clock_ns = clock_ns
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._lines = 0
        self._last_ns = 0
        self._lost: LostLines | None = None

    def put(self, incarnation_key: IncarnationKey | None, stream: Stream, lines: bytes) -> None:
        with self.changed:
            now = self._clock_ns() // STEP_NS * STEP_NS + 1
            chunk = Chunk(max(now, self._last_ns + STEP_NS), incarnation_key, stream, lines)
            self._last_ns = chunk.first_ns + (chunk.count - 1) * STEP_NS
            self._chunks.append(chunk)
            self._count(chunk, 1)
            while self._bytes > BUFFER_BYTES_MAX:
                self._drop_oldest()
            self.changed.notify_all()

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    @property
    def has_full_batch(self) -> bool:
        return self._lines >= BATCH_LINES_MAX or self._bytes >= BATCH_BYTES_MAX

    def take(self) -> tuple[list[Line], LostLines | None]:
        """Remove and return the oldest lines, at most one batch, and the lines that were lost since
        the last call.
        """
        with self.changed:
            lost = self._lost
            self._lost = None
            batch: list[Line] = []
            size = 0
            while self._chunks and len(batch) < BATCH_LINES_MAX and size < BATCH_BYTES_MAX:
                chunk = self._chunks.popleft()
                self._count(chunk, -1)
                size += self._move_lines(chunk, batch, BATCH_BYTES_MAX - size)
            return batch, lost

    def _move_lines(self, chunk: Chunk, batch: list[Line], bytes_max: int) -> int:
        """Move lines of the chunk to the batch; put the rest back.

        Return how many bytes were moved.
        """
        moved_bytes = 0
        at_ns = chunk.first_ns
        for line in chunk.lines.split(b"\n")[:-1]:
            if len(batch) >= BATCH_LINES_MAX or moved_bytes >= bytes_max:
                break
            for offset_ns, start in enumerate(range(0, max(len(line), 1), LINE_BYTES_MAX)):
                piece = line[start : start + LINE_BYTES_MAX]
                batch.append(Line(at_ns + offset_ns, chunk.incarnation_key, chunk.stream, piece))
            moved_bytes += len(line) + 1
            at_ns += STEP_NS
        if moved_bytes < len(chunk.lines):
            rest = replace(chunk, first_ns=at_ns, lines=chunk.lines[moved_bytes:])
            self._chunks.appendleft(rest)
            self._count(rest, 1)
        return moved_bytes

    def record_loss(self, count: int, at_ns: int, why: str) -> None:
        """Count lost lines. The next batch returns them."""
        with self.changed:
            before = self._lost or LostLines(0, at_ns, why)
            self._lost = LostLines(before.count + count, before.at_ns, why)

    def _drop_oldest(self) -> None:
        oldest = self._chunks.popleft()
        self._count(oldest, -1)
        self.record_loss(oldest.count, oldest.first_ns, "Cloud Logging did not accept them in time")

    def _count(self, chunk: Chunk, sign: int) -> None:
        """Count a chunk that was added (1) or removed (-1)."""
        self._bytes += sign * len(chunk.lines)
        self._lines += sign * chunk.count
