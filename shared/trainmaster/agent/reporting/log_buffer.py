"""Lines waiting to be sent to Cloud Logging (`cloud_log.py`): bounded, each with a unique time, and
the lost ones counted.

``put`` is called by the threads that read the program's output, so it is cheap: lines stay in the
chunks in which they arrived until a batch is taken. An incarnation is one execution of the program.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.serial_console import NO_LABELS, Stream

BUFFER_BYTES_MAX = 256 << 20
"""About two million lines. The agent limits it to a part of the machine's memory."""
BATCH_LINES_MAX = 1000
BATCH_BYTES_MAX = 1_200_000
"""At worst six times as much in JSON. Source: Cloud Logging accepts requests of 10 MB."""
BACKLOG_BATCHES = 2
"""Full batches from which several requests at a time are sent."""
LINE_BYTES_MAX = 200 << 10
"""Longer lines are split. Source: Cloud Logging accepts entries of 256 KB."""

STEP_NS = 10
"""Least distance between the times of two lines.

The last digit of a time is 1, or higher for further pieces of a long line, but never 0: Cloud
Logging omits trailing zeros when it returns times, and gcloud compares times as text.
"""

NOT_IN_TIME = "Cloud Logging did not accept them in time"


class Line(NamedTuple):
    """A line of output or a piece of a long one, with the time and the incarnation of its entry."""

    at_ns: int
    """Nanoseconds since 1970."""
    incarnation_key: IncarnationKey | None
    stream: Stream
    text: bytes
    is_continued: bool = False
    """Whether it continues the piece of a line before it."""
    labels: Mapping[str, str] = NO_LABELS
    """Labels of its entry, besides those of all entries."""


@dataclass(frozen=True)
class LostLines:
    """Lines that are in no entry."""

    count: int
    at_ns: int
    """Time of the first of them."""
    why: str


@dataclass(frozen=True)
class Batch:
    """The lines that one request sends."""

    lines: Sequence[Line]
    lost: Sequence[LostLines] = ()
    """Losses to report that no earlier batch has reported."""

    @property
    def count(self) -> int:
        """How many lines were printed; the pieces of a long line are one."""
        return sum(not line.is_continued for line in self.lines)

    @property
    def lost_count(self) -> int:
        return sum(lost.count for lost in self.lost)


@dataclass(frozen=True)
class Chunk:
    """Whole lines that arrived together. Line number n has the time ``first_ns + n * STEP_NS``."""

    first_ns: int
    incarnation_key: IncarnationKey | None
    stream: Stream
    lines: bytes
    count: int
    labels: Mapping[str, str]


class LogBuffer:
    """A queue of chunks. When it is full, it drops the oldest chunks and counts their lines.

    All methods may be called from any thread. Hold `changed` to read several properties together.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int] = time.time_ns,
        bytes_max: int = BUFFER_BYTES_MAX,
    ) -> None:
        self.changed = threading.Condition()
        """Notified when there is something to send; guards all fields, here and in `CloudLog`."""
        self.newest_first = False
        """Whether `take` returns the newest lines: there is no time for all of them."""
        self._clock_ns = clock_ns
        self._bytes_max = bytes_max
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._lines = 0
        self._last_ns = 0
        self._lost: list[LostLines] = []

    def put(
        self,
        incarnation_key: IncarnationKey | None,
        stream: Stream,
        lines: bytes,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> None:
        """Queue whole lines, each with its line end. `labels`: of the entries of all of them."""
        with self.changed:
            before = self._sender_state
            now = self._clock_ns() // STEP_NS * STEP_NS + 1
            first_ns = max(now, self._last_ns + STEP_NS)
            chunk = Chunk(first_ns, incarnation_key, stream, lines, lines.count(b"\n"), labels)
            self._last_ns = chunk.first_ns + (chunk.count - 1) * STEP_NS
            self._chunks.append(chunk)
            self._count(chunk, 1)
            while self._bytes > self._bytes_max:
                oldest = self._chunks.popleft()
                self._count(oldest, -1)
                self.record_loss(LostLines(oldest.count, oldest.first_ns, NOT_IN_TIME))
            # Waking the senders for each line would cost more than sending it.
            if self._sender_state != before:
                self.changed.notify_all()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send, neither lines nor a loss."""
        return not self._chunks and not self._lost

    @property
    def waiting(self) -> int:
        """Lines that no batch has taken, and lost ones that no batch reports yet."""
        return self._lines + sum(lost.count for lost in self._lost)

    @property
    def has_full_batch(self) -> bool:
        return self._lines >= BATCH_LINES_MAX or self._bytes >= BATCH_BYTES_MAX

    @property
    def has_backlog(self) -> bool:
        """Whether there are more lines than requests can send soon, one after the other."""
        return (
            self._lines >= BACKLOG_BATCHES * BATCH_LINES_MAX
            or self._bytes >= BACKLOG_BATCHES * BATCH_BYTES_MAX
        )

    @property
    def oldest_ns(self) -> int | None:
        """Time of the oldest line; None if there is none."""
        return self._chunks[0].first_ns if self._chunks else None

    def take(self) -> Batch:
        """Remove and return lines, at most one batch, and the losses since the last call."""
        with self.changed:
            lost = self._lost
            self._lost = []
            parts: list[list[Line]] = []
            lines = size = 0
            while self._chunks and lines < BATCH_LINES_MAX and size < BATCH_BYTES_MAX:
                part, part_size = self._take_part(BATCH_LINES_MAX - lines, BATCH_BYTES_MAX - size)
                parts.append(part)
                lines += len(part)
                size += part_size
            if self.newest_first:
                parts.reverse()
            return Batch([line for part in parts for line in part], lost)

    def record_loss(self, lost: LostLines) -> None:
        """Count lost lines. The next batch returns them."""
        with self.changed:
            before = self._lost[-1] if self._lost else None
            if before is not None and before.why == lost.why:
                at_ns = min(before.at_ns, lost.at_ns)
                self._lost[-1] = LostLines(before.count + lost.count, at_ns, lost.why)
            else:
                self._lost.append(lost)
            self.changed.notify_all()

    def drop_all(self, why: str) -> None:
        """Drop all lines, and count them as lost."""
        with self.changed:
            count = self._lines
            oldest_ns = self.oldest_ns
            self._chunks.clear()
            self._bytes = self._lines = 0
            if oldest_ns is not None:
                self.record_loss(LostLines(count, oldest_ns, why))

    @property
    def _sender_state(self) -> tuple[bool, bool, bool]:
        """What the senders wait for: they are woken when it changes."""
        return self.is_empty, self.has_full_batch, self.has_backlog

    def _take_part(self, lines_max: int, bytes_max: int) -> tuple[list[Line], int]:
        """Remove and return lines of one chunk, at least one, in their order, and their size."""
        chunk = self._chunks.pop() if self.newest_first else self._chunks.popleft()
        self._count(chunk, -1)
        texts = chunk.lines.split(b"\n")[:-1]
        taken = size = 0
        for text in reversed(texts) if self.newest_first else texts:
            is_full = taken >= lines_max or size >= bytes_max
            if taken and is_full:
                break
            taken += 1
            size += len(text) + 1
        left = len(texts) - taken
        first = left if self.newest_first else 0
        if left:
            self._put_back(chunk, left, size)
        lines: list[Line] = []
        for number in range(first, first + taken):
            lines += _pieces(chunk, chunk.first_ns + number * STEP_NS, texts[number])
        return lines, size

    def _put_back(self, chunk: Chunk, left: int, taken_bytes: int) -> None:
        """Put the lines of a chunk back that were not taken."""
        if self.newest_first:
            rest = replace(chunk, lines=chunk.lines[:-taken_bytes], count=left)
            self._chunks.append(rest)
        else:
            first_ns = chunk.first_ns + (chunk.count - left) * STEP_NS
            rest = replace(chunk, first_ns=first_ns, lines=chunk.lines[taken_bytes:], count=left)
            self._chunks.appendleft(rest)
        self._count(rest, 1)

    def _count(self, chunk: Chunk, sign: int) -> None:
        """Count a chunk that was added (1) or removed (-1)."""
        self._bytes += sign * len(chunk.lines)
        self._lines += sign * chunk.count


def _pieces(chunk: Chunk, at_ns: int, text: bytes) -> list[Line]:
    """Return a line, in pieces if it is too long for one entry."""
    line = Line(at_ns, chunk.incarnation_key, chunk.stream, text, labels=chunk.labels)
    if len(text) <= LINE_BYTES_MAX:
        return [line]
    return [
        line._replace(
            at_ns=at_ns + number,
            text=text[start : start + LINE_BYTES_MAX],
            is_continued=number > 0,
        )
        for number, start in enumerate(range(0, len(text), LINE_BYTES_MAX))
    ]
