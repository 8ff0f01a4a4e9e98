"""A copy of the VM's console in Cloud Logging, with the labels that AI Platform Training used.

The agent's `Console` gives each line that the program or the agent prints to `CloudLog.put`. The
threads of `CloudLog` send the lines in batches, each as one request ``entries:write``, which is
repeated until Cloud Logging accepts it:

    Console ── put ──► LogBuffer ── a batch after a second, or when it is full ──► entries:write
                                    (several requests at a time if there is a backlog)

Training never waits for the copy. The buffer is bounded: if Cloud Logging does not answer, the
oldest lines are dropped. After the end of the program, its exit is reported only when the rest of
the lines was sent, as long as Cloud Logging accepts them (`flush`). When the VM shuts down, the
newest lines are sent first (`hurry`), and what cannot be sent in time is dropped (`close`). Each
line is either accepted or counted: an entry with the label of `Loss.LINES` states how many lines
are not in the log.

The entries are stored in order and once: the times of a replica's lines strictly increase, an
``insertId`` consists of the VM, the incarnation (one execution of the program) and that time, and a
batch is repeated unchanged. Batches may arrive in another order. The label `BEHIND` of an entry is
the time of the oldest line that was not accepted when the entry was sent, so that readers that
follow the log can wait for that line.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NoReturn

from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.log_buffer import Batch, Line, LogBuffer, LostLines
from trainmaster.agent.reporting.log_entry import entry_of, rfc3339
from trainmaster.agent.reporting.log_origin import LogOrigin
from trainmaster.agent.reporting.serial_console import (
    NO_LABELS,
    Loss,
    Stream,
    Unlogged,
    never,
)

SENDERS = 4
"""Threads, and so requests at a time while there is a backlog."""
LINGER_S = 1.0  # how long a batch that is not full waits for more lines
WAIT_MAX_S = 30.0  # longest wait between two tries of a batch
TRIES_BEFORE_WARNING = 3  # failed tries of one batch
PATIENCE_S = 5.0
"""When all batches are failing, `flush` gives up after this time without an accepted one."""
POLL_S = 0.5  # how often `flush` asks whether it is needless
HURRY_S = 3.0
"""Longest duration of `flush` once the VM shuts down."""
LAST_S = 10.0
"""Time in `close` for the requests that are under way, and for the count of the missing lines: as
long as one request may take.
"""
LAST_TRIES = 3
"""Tries of a batch after which its lines count as missing, once the log is being closed."""
NAMED_MAX = 10
"""Refused lines of one batch that are quoted one by one."""
NAMED_CHARS = 200  # how much of such a line
SHUT_DOWN = "the VM shut down before Cloud Logging accepted them"

BEHIND = "trainmaster/behind"
WRITER = "trainmaster/writer"
"""Label that the agent's own lines have, with the value ``agent``. Readers of the program's lines
leave them out, except those that count lost lines.
"""

# Errors that may end later, besides transient ones: a token, a permission or an API that is not
# there yet.
RETRIED_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class CloudLog:
    """The console's sink in Cloud Logging."""

    def __init__(
        self,
        origin: LogOrigin,
        post: Callable[[bytes], object],
        buffer: LogBuffer,
        incarnation_key: Callable[[], IncarnationKey | None],
        report_problem: Callable[[str], None],
        linger_s: float = LINGER_S,
    ) -> None:
        """`post` sends the body of one ``entries:write`` and raises HttpError.

        `incarnation_key` returns the incarnation that runs. `report_problem` takes messages about
        this log; they must not be copied to it.
        """
        self._origin = origin
        self._post = post
        self._buffer = buffer
        self._incarnation_key = incarnation_key
        self._report_problem = report_problem
        self._linger_s = linger_s
        self._resources = origin.resources
        self._is_collecting = False
        """Whether a sender waits for more lines of a batch."""
        self._in_flight: dict[int, int] = {}
        """Batches that are being sent: number → time of the oldest line in nanoseconds."""
        self._lines_in_flight = 0
        """Lines of these batches, and those that they report as lost."""
        self._last_number = 0
        """Number of the last batch that was taken from the buffer."""
        self._waiting_retries = 0
        """Batches that wait for another try."""
        self._problem = ""
        """Why the last try failed; empty: a batch was accepted since."""
        self._waiting_flushes = 0  # calls of `flush` that have not returned
        self._flush_count = 0  # calls of `flush` so far
        self._has_failed = False
        """Whether a try failed since the last call of `flush`."""
        self._accepted_at = -math.inf
        """When a batch was accepted last, by the monotonic clock."""
        self._hurry_until = math.inf
        """Until when calls of `flush` may wait, by the monotonic clock."""
        self._is_closing = False

    def start(self, start_thread: Callable[[Callable[[], None]], None]) -> None:
        """Send from now on. `start_thread` runs its argument in a thread."""
        for _ in range(SENDERS):
            start_thread(self._send)

    def put(self, stream: Stream, lines: bytes, labels: Mapping[str, str] = NO_LABELS) -> None:
        self._buffer.put(self._incarnation_key(), stream, lines, labels)

    def flush(self, timeout: float, is_needless: Callable[[], bool] = never) -> None:
        """Send the queued lines now.

        Return when they are accepted, when none are accepted any more, when `is_needless`, or after
        the timeout. Once the VM shuts down, return after `HURRY_S`.
        """
        changed = self._buffer.changed
        with changed:
            self._has_failed = False
            deadline = time.monotonic() + timeout
            self._waiting_flushes += 1
            self._flush_count += 1
            changed.notify_all()
            while self._is_pending and not is_needless():
                now = time.monotonic()
                are_all_failing = self._has_failed and self._waiting_retries >= len(self._in_flight)
                if are_all_failing and now - self._accepted_at > PATIENCE_S:
                    break
                if now >= min(deadline, self._hurry_until):
                    break
                changed.wait(min(deadline - now, POLL_S))
            self._waiting_flushes -= 1

    def unlogged(self) -> Unlogged:
        """Return how many lines Cloud Logging has accepted neither themselves nor in a count."""
        with self._buffer.changed:
            return Unlogged(self._buffer.waiting + self._lines_in_flight, self._problem)

    def hurry(self) -> None:
        """Send the newest lines first from now on."""
        with self._buffer.changed:
            self._buffer.newest_first = True
            self._hurry_until = min(self._hurry_until, time.monotonic() + HURRY_S)
            self._buffer.changed.notify_all()

    def close(self, timeout: float) -> None:
        """Send what Cloud Logging accepts within `timeout` seconds, then the count of the rest."""
        self.hurry()
        with self._buffer.changed:
            self._is_closing = True
            self._hurry_until = math.inf
        self.flush(timeout)
        self._buffer.drop_all(SHUT_DOWN)
        self.flush(LAST_S)

    def _send(self) -> NoReturn:
        """Send without end, in one of the threads."""
        changed = self._buffer.changed
        while True:
            with changed:
                changed.wait_for(lambda: self._may_take)
                self._is_collecting = True
                changed.wait_for(
                    lambda: self._waiting_flushes or self._buffer.has_full_batch, self._linger_s
                )
                self._is_collecting = False
                batch = self._buffer.take()
                number, behind_ns = self._register(batch)
            if batch.lines or batch.lost:
                self._deliver(batch, behind_ns)
            with changed:
                del self._in_flight[number]
                self._lines_in_flight -= batch.count + batch.lost_count
                changed.notify_all()

    @property
    def _is_pending(self) -> bool:
        """Whether there are lines, or a loss to report, that Cloud Logging has not accepted."""
        return not self._buffer.is_empty or bool(self._in_flight) or self._is_collecting

    @property
    def _may_take(self) -> bool:
        """Whether a sender may take a batch: one at a time, or each sender one of a backlog."""
        if self._buffer.is_empty or self._is_collecting:
            return False
        return not self._in_flight or self._buffer.has_backlog or self._is_closing

    def _register(self, batch: Batch) -> tuple[int, int | None]:
        """Register a batch as being sent; return its number, and the value of its label `BEHIND`.

        That is the time of the oldest line that is not accepted yet; None if no such line is older
        than the batch.
        """
        first_ns = batch.lines[0].at_ns if batch.lines else time.time_ns()
        earlier = [oldest for oldest in self._in_flight.values() if oldest < first_ns]
        oldest_ns = self._buffer.oldest_ns
        if oldest_ns is not None and oldest_ns < first_ns:
            earlier.append(oldest_ns)
        self._last_number += 1
        self._in_flight[self._last_number] = first_ns
        self._lines_in_flight += batch.count + batch.lost_count
        return self._last_number, min(earlier, default=None)

    def _deliver(self, batch: Batch, behind_ns: int | None) -> None:
        """Send a batch until its lines are accepted, or dropped because they are refused.

        Of a batch that is refused, only the lines that are the reason are dropped. If the answer
        does not name them, halves of the batch are tried.
        """
        parts = [batch]
        named_before = 0  # refused lines of this batch so far
        while parts:
            part = parts.pop()
            error = self._repeat(part, behind_ns)
            if error is None:
                continue
            refused = refused_entries(error)
            offset = len(part.lost)  # their entries come first
            if not part.lines:
                self._restore(part.lost)
            elif refused:
                lines = [part.lines[index - offset] for index in refused if index >= offset]
                self._drop_refused(lines, next(iter(refused.values())), named_before)
                named_before += len(lines)
            elif len(part.lines) == 1 or named_before >= NAMED_MAX:
                self._restore(part.lost)
                self._drop_refused(part.lines, str(error), named_before)
                named_before += len(part.lines)
            else:
                middle = len(part.lines) // 2
                parts.append(Batch(part.lines[middle:]))
                parts.append(Batch(part.lines[:middle], part.lost))

    def _repeat(self, batch: Batch, behind_ns: int | None) -> HttpError | None:
        """Send until the batch is accepted (None) or refused, in whole or in part.

        Once the log is being closed, a batch that is not accepted counts as missing.
        """
        entries = self._entries(batch, behind_ns)
        for tries, wait in enumerate(backoffs(WAIT_MAX_S), start=1):
            flush_count = self._flush_count
            try:
                self._write(entries)
            except HttpError as error:
                self._problem = str(error)
                is_refused = not error.transient and error.status not in RETRIED_STATUSES
                if is_refused or refused_entries(error):
                    if not batch.lines:
                        self._wait_after_failure(flush_count, WAIT_MAX_S)
                    return error
                if tries == TRIES_BEFORE_WARNING:
                    self._report_problem(
                        f"Cloud Logging does not accept the log ({error}); still trying."
                    )
                if self._is_closing and tries >= LAST_TRIES and batch.lines:
                    first_ns = batch.lines[0].at_ns
                    self._restore([*batch.lost, LostLines(batch.count, first_ns, SHUT_DOWN)])
                    return None
                self._wait_after_failure(flush_count, wait)
            else:
                self._accepted_at = time.monotonic()
                self._problem = ""
                return None
        raise AssertionError("backoffs never end")

    def _restore(self, lost: Sequence[LostLines]) -> None:
        """Report losses with the next batch: their entries were not accepted."""
        for lines in lost:
            self._buffer.record_loss(lines)

    def _drop_refused(self, lines: Sequence[Line], why: str, named_before: int) -> None:
        """Count refused lines as missing, and quote them, up to `NAMED_MAX` lines of one batch.

        `named_before`: lines of this batch that were refused before.
        """
        reason = " ".join(why.split())
        quoted = max(NAMED_MAX - named_before, 0)
        for line in lines[:quoted]:
            text = line.text[:NAMED_CHARS].decode("utf-8", "backslashreplace")
            reason_of_line = f"Cloud Logging refused {text!a} ({reason})"
            self._buffer.record_loss(LostLines(count=1, at_ns=line.at_ns, why=reason_of_line))
        rest = lines[quoted:]
        if rest:
            count = Batch(rest).count
            lost = LostLines(count, rest[0].at_ns, f"Cloud Logging refused them ({reason})")
            self._buffer.record_loss(lost)

    def _wait_after_failure(self, flush_count: int, wait: float) -> None:
        """Wait `wait` seconds, or until the next call of `flush`, which gets one try at once.

        `flush_count`: calls of `flush` before the try that failed.
        """
        with self._buffer.changed:
            self._has_failed = True
            self._waiting_retries += 1
            self._buffer.changed.notify_all()
            self._buffer.changed.wait_for(lambda: self._flush_count > flush_count, wait)
            self._waiting_retries -= 1

    def _write(self, entries: Sequence[object]) -> None:
        """Send one batch. Raises HttpError.

        If all entries are refused, the reason may be the type of the monitored resource: the other
        type is tried at once. If it is accepted, in whole or in part, it is used from then on.
        """
        resource, other = self._resources[0], self._resources[-1]
        try:
            self._post(self._body(entries, resource))
        except HttpError as error:
            may_be_for_type = error.status == HTTPStatus.BAD_REQUEST and not _is_in_part_accepted(
                error, entries
            )
            if resource is other or not may_be_for_type:
                raise
            try:
                self._post(self._body(entries, other))
            except HttpError as second:
                if _is_in_part_accepted(second, entries):
                    self._resources = [other]
                raise
            self._resources = [other]

    def _body(self, entries: Sequence[object], resource: Mapping[str, object]) -> bytes:
        request = {
            "logName": self._origin.log_name,
            "resource": resource,
            "labels": self._origin.labels,
            "partialSuccess": True,
            "entries": entries,
        }
        text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
        # JSON may contain a lone surrogate, but UTF-8 may not: it would make the whole request
        # invalid.
        return text.encode("utf-8", "replace")

    def _entries(self, batch: Batch, behind_ns: int | None) -> list[object]:
        """Return one entry per loss, and then one per line."""
        more = {} if behind_ns is None else {BEHIND: rfc3339(behind_ns)}
        return [
            *[self._gap(lost, more) for lost in batch.lost],
            *[self._entry(line, more) for line in batch.lines],
        ]

    def _gap(self, lost: LostLines, more: Mapping[str, str]) -> dict[str, object]:
        """Return the entry in place of lost lines.

        Its id differs from that of the first of them, which may have been stored without an answer.
        """
        words = "1 line is" if lost.count == 1 else f"{lost.count} lines are"
        text = f"{words} missing here: {lost.why}."
        line = Line(
            lost.at_ns,
            self._incarnation_key(),
            Stream.AGENT_WARNING,
            text.encode(),
            labels=Loss.LINES.labels(lost.count),
        )
        entry = self._entry(line, more)
        return {**entry, "insertId": f"{entry['insertId']}-missing"}

    def _entry(self, line: Line, more: Mapping[str, str]) -> dict[str, object]:
        attempt, incarnation = line.incarnation_key or (0, 0)
        is_own = line.stream in (Stream.AGENT, Stream.AGENT_WARNING, Stream.AGENT_ERROR)
        # A line that counts a loss has labels, and is about what the program prints or reports.
        writer = {WRITER: "agent"} if is_own and not line.labels else {}
        return {
            "timestamp": rfc3339(line.at_ns),
            "insertId": f"{self._origin.instance_id}-{attempt}-{incarnation}-{line.at_ns:020d}",
            "labels": {
                "trainmaster/attempt": str(attempt),
                "trainmaster/incarnation": str(incarnation),
                **writer,
                **line.labels,
                **more,
            },
            **entry_of(line.text.decode("utf-8", "replace"), line.stream),
        }


def _is_in_part_accepted(error: HttpError, entries: Sequence[object]) -> bool:
    """Return whether some of the entries were refused, and the others stored."""
    return 0 < len(refused_entries(error)) < len(entries)


def refused_entries(error: HttpError) -> Mapping[int, str]:
    """Return the entries of a request that were refused, with the reasons; all others are stored.

    Empty if the answer does not name any. Source: WriteLogEntriesPartialErrors of the API.
    """
    try:
        details = json.loads(error.body)["error"]["details"]
        return {
            int(index): str(status.get("message", ""))
            for detail in details
            for index, status in detail.get("logEntryErrors", {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
