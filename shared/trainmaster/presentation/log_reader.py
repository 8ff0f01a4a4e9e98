"""Read a job's log as it grows: every line once, the lines of each VM in their order.

Cloud Logging orders lines by time, and lines of different VMs arrive with different delays. A
single position for all VMs, as gcloud keeps it, misses lines that arrive after later ones of
another VM. This reader keeps a position per VM: the lines of a VM have different times, so its new
lines are those after its position. A VM that prints faster than Cloud Logging accepts sends several
batches at a time, which may arrive in another order; their entries name the oldest line that was
not there when they were sent. Such an entry waits until a later one shows that all before it has
arrived. Trainmaster's own lines (*the service's lines*) come from many functions at once. They are
read again for some time, and known ones are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

JOB: Final = 'labels."ml.googleapis.com/job_id"'
TASK: Final = 'labels."ml.googleapis.com/task_name"'
TRIAL: Final = 'labels."ml.googleapis.com/trial_id"'
VM: Final = 'labels."trainmaster/vm"'
SEVERITIES: Final = (
    "DEFAULT",
    "DEBUG",
    "INFO",
    "NOTICE",
    "WARNING",
    "ERROR",
    "CRITICAL",
    "ALERT",
    "EMERGENCY",
)
"""All of Cloud Logging's, in their order."""
PROGRAM_ONLY: Final = f'NOT {TASK}="service" AND NOT labels."trainmaster/writer"="agent"'
"""Condition for what the program printed. Source of the label: the agent's `cloud_log`."""
MISSING_LINES: Final = "trainmaster/missing_lines"
"""Label: how many lines are missing where the entry stands. Source: `Loss` of the agent's
`serial_console`, as for the two labels below.
"""
MISSING_MEASUREMENTS: Final = "trainmaster/missing_measurements"
"""Label: how many values of a trial's metric did not arrive."""
MISSING_REPORTS: Final = "trainmaster/missing_reports"
"""Label: how many reports of a machine's use, and of progress, Cloud Monitoring did not get."""
BEHIND_LABEL: Final = "trainmaster/behind"
"""Time of the oldest line of the VM that was not stored when the entry was sent; none: all were."""

BEFORE_CREATION: Final = timedelta(minutes=1)
"""How long before its creation a job's log is read: the clocks of writers differ."""
DELAY_MAX_S: Final = 600.0
"""Lines of a VM that arrive later than this after those of other VMs are not shown.

A larger window makes each query slower.
"""
SERVICE_OVERLAP_S: Final = 30.0
"""How far back the service's lines are read again; longer than a function runs."""
PATIENCE_S: Final = 20.0
"""How long a line waits for earlier ones of its VM; longer than a request of the agent takes."""
POSITIONS_MAX: Final = 100
"""VMs with a position in one filter. Source: Cloud Logging accepts filters of 20,000 characters."""

_DATE_CHARS: Final = len("2026-11-21T")
_SECOND_CHARS: Final = len("2026-11-21T03:00:00")
_MILLISECOND_CHARS: Final = len("2026-11-21T03:00:00.123")

ReadPage = Callable[[str, str], tuple[Sequence[Mapping[str, Any]], str]]
"""(filter, page token) → (entries, the oldest first; token of the next page or empty)."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a job's log."""

    timestamp: str
    """As Cloud Logging formats it."""
    insert_id: str
    """Id that Cloud Logging distinguishes entries of one time by."""
    task: str
    """`master-replica-0`, or `service` for a line of Trainmaster."""
    vm: str
    """Empty for a line of Trainmaster."""
    severity: str
    message: str
    payload: Mapping[str, object]
    """Fields of a structured line, without the message."""
    trial: str = ""
    """Trial number; empty outside tuning jobs."""
    behind: str = ""
    """Time of the oldest earlier line of the VM that may arrive later than this one."""

    @property
    def time_of_day(self) -> str:
        """`03:00:00.123`, in UTC."""
        return self.timestamp[_DATE_CHARS:_MILLISECOND_CHARS]

    @property
    def to_the_millisecond(self) -> str:
        """`2026-11-21T03:00:00.123Z`."""
        return f"{self.timestamp[:_MILLISECOND_CHARS]}Z"

    @property
    def to_the_second(self) -> str:
        """`2026-11-21T03:00:00`."""
        return self.timestamp[:_SECOND_CHARS]

    @property
    def source(self) -> str:
        """`master-replica-0`, or `master-replica-0 #3` for trial 3."""
        return f"{self.task} #{self.trial}" if self.trial else self.task


def parse_entry(entry: Mapping[str, Any]) -> LogLine:
    """Return the line of a `LogEntry` of Cloud Logging, as JSON."""
    labels = entry.get("labels", {})
    payload = dict(entry.get("jsonPayload", {"message": entry.get("textPayload", "")}))
    message = payload.pop("message", None)
    return LogLine(
        timestamp=entry["timestamp"],
        insert_id=entry.get("insertId", ""),
        task=labels.get("ml.googleapis.com/task_name", ""),
        vm=labels.get("trainmaster/vm", ""),
        severity=entry.get("severity", "DEFAULT"),
        message=json.dumps(payload) if message is None else str(message),
        payload=payload,
        trial=labels.get("ml.googleapis.com/trial_id", ""),
        behind=labels.get(BEHIND_LABEL, ""),
    )


@dataclass
class LogReader:
    """Reads the log of one job, and remembers how far."""

    read_page: ReadPage
    job_id: str
    conditions: Sequence[str] = ()
    """Further conditions in the Logging query language, on other fields than the time."""
    since: str = ""
    """Time of the oldest line to read, in UTC: `2026-11-21T03:00:00Z`. Empty: all lines."""
    clock: Callable[[], float] = time.monotonic
    _positions: dict[str, str] = field(default_factory=dict)
    """VM → time of its last line."""
    _complete: dict[str, str] = field(default_factory=dict)
    """VM → time before which all of its lines have arrived, the time itself included."""
    _waiting_since: dict[str, float] = field(default_factory=dict)
    """VM → time by `clock` from which its lines wait for earlier ones."""
    _service_ids: set[str] = field(default_factory=set)
    """insertIds of the service's lines, which are few."""
    _newest: str = ""
    """Time of the newest line of any source."""

    def read_history(self, before: datetime | None) -> Iterator[list[LogLine]]:
        """Yield pages of the lines that are older than `before`; None: all lines.

        Nothing writes such lines any more.

        One query, whose pages follow each other by their tokens. Each query of `read_new` searches
        again from the oldest position, so a long log takes many times longer with it. Read the
        history first, and then `read_new`.
        """
        text = self.filter(before)
        token = ""
        while True:
            entries, token = self.read_page(text, token)
            lines = [line for line in map(parse_entry, entries) if self._accept(line)]
            if lines:
                yield lines
            if not token:
                return

    def read_new(
        self, until: datetime | None = None, *, is_followed: bool = True
    ) -> Iterator[list[LogLine]]:
        """Yield pages of the lines that are new since the last call and older than `until`.

        Each page with new lines is followed by a new query. With the page's token, a line that a VM
        writes during the query, at a position before the token's, would be missed. `is_followed`:
        a later call returns the lines that wait for earlier ones.
        """
        token = ""
        waiting_vms: set[str] = set()  # their later lines wait, too: lines keep their order
        complete_before = dict(self._complete)
        while True:
            entries, token = self.read_page(self.filter(until), token)
            page = [parse_entry(entry) for entry in entries]
            for line in page:
                self._note_complete(line)
            lines: list[LogLine] = []
            for line in page:
                if is_followed and (line.vm in waiting_vms or self._must_wait(line)):
                    waiting_vms.add(line.vm)
                elif self._accept(line):
                    lines.append(line)
            if lines:
                yield lines
            # A later line has shown that lines which wait may be read now.
            some_need_not_wait = bool(waiting_vms) and self._complete != complete_before
            if not token and not some_need_not_wait:
                return
            begins_new_query = bool(lines) or not token
            if begins_new_query:
                token = ""
                waiting_vms.clear()
                complete_before = dict(self._complete)

    def filter(self, until: datetime | None) -> str:
        """Return the filter for lines that are not read yet and older than `until`, in the Logging
        query language.
        """
        parts = [f'{JOB}="{self.job_id}"', *self.conditions]
        if until is not None:
            parts.append(f'timestamp<"{until.isoformat()}"')
        if self._newest:
            parts += self._after_positions()
        elif self.since:
            parts.append(f'timestamp>="{self.since}"')
        return " AND ".join(parts)

    def _after_positions(self) -> list[str]:
        """Return conditions for new lines.

        The first is on time alone, by which Cloud Logging searches fastest.
        """
        service_from = _earlier(self._newest, SERVICE_OVERLAP_S)
        oldest_position = min([service_from, *self._positions.values()])
        oldest = max(oldest_position, _earlier(self._newest, DELAY_MAX_S), self.since)
        latest = sorted(self._positions.items(), key=lambda position: position[1])[-POSITIONS_MAX:]
        parts = [f'({VM}="{vm}" AND timestamp>"{time}")' for vm, time in latest]
        vms = " OR ".join(f'"{vm}"' for vm, _ in latest)
        parts.append(f"NOT {VM}=({vms})" if vms else f'timestamp>="{oldest}"')
        return [f'timestamp>="{oldest}"', f"({' OR '.join(parts)})"]

    def _note_complete(self, line: LogLine) -> None:
        """Record up to which time all lines of the VM have arrived, as this line shows."""
        if line.vm:
            # The line that it names has not arrived: all lines before it have.
            known = line.timestamp if not line.behind else _just_before(line.behind)
            self._complete[line.vm] = max(self._complete.get(line.vm, ""), known)

    def _must_wait(self, line: LogLine) -> bool:
        """Whether earlier lines of the VM may arrive later than this one."""
        if not line.vm or line.timestamp <= self._complete[line.vm]:
            self._waiting_since.pop(line.vm, None)
            return False
        since = self._waiting_since.setdefault(line.vm, self.clock())
        return self.clock() - since < PATIENCE_S

    def _accept(self, line: LogLine) -> bool:
        """Record the line as read. Return False if it had been read before."""
        self._newest = max(self._newest, line.timestamp)
        if line.vm:
            if line.timestamp <= self._positions.get(line.vm, ""):
                return False
            self._positions[line.vm] = line.timestamp
            return True
        if line.insert_id in self._service_ids:
            return False
        self._service_ids.add(line.insert_id)
        return True


def _just_before(timestamp: str) -> str:
    """Return a time that sorts just before this one, and after all earlier ones.

    The agent gives no line a time that ends in 0 (`agent.reporting.log_buffer`).
    """
    return f"{timestamp[:-2]}0Z"


def _earlier(timestamp: str, seconds: float) -> str:
    """Return an earlier time in the same format, to the second."""
    at = datetime.fromisoformat(timestamp[:_SECOND_CHARS]) - timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
