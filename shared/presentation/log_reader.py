"""A job's log as it grows: every line once, those of one VM in their order.

Cloud Logging orders by time, and lines of several VMs arrive with different delays. One position for all of them, as
gcloud keeps it, loses what comes later than its neighbours. Here each VM has its own: it writes its lines in order, and
no two of them are of the same time, so that "newer than the last one seen" is all that is new. The service's own lines
come from many functions at once; those are looked for again a while back, and known ones left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

JOB: Final = 'labels."ml.googleapis.com/job_id"'
TASK: Final = 'labels."ml.googleapis.com/task_name"'
TRIAL: Final = 'labels."ml.googleapis.com/trial_id"'
VM: Final = 'labels."trainmaster/vm"'

LATE_S: Final = 600.0
"""A VM whose lines come later than this after its neighbours' is not waited for: each look would be a longer one."""
AGAIN_S: Final = 30.0
"""How far back the service's lines are looked for again: longer than a function takes."""
POSITIONS_MAX: Final = 100
"""Of VMs in one filter. Source: Cloud Logging takes filters of 20,000 characters."""

SECOND_CHARS: Final = len("2026-11-21T03:00:00")

Page = Callable[[str, str], tuple[Sequence[Mapping[str, Any]], str]]
"""A page of a filter's entries, the oldest first, and the next one's token: of (filter, token), both may be empty."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """`timestamp` as Cloud Logging wrote it; `vm` is empty for the service's own lines, `trial` but for trials'."""

    timestamp: str
    insert_id: str
    task: str
    vm: str
    severity: str
    message: str
    payload: Mapping[str, object]
    trial: str = ""

    @property
    def who(self) -> str:
        """`master-replica-0`, and of a trial `master-replica-0 #3`."""
        return f"{self.task} #{self.trial}" if self.trial else self.task


def parse(entry: Mapping[str, Any]) -> LogLine:
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
    )


@dataclass
class LogReader:
    """`more`: further conditions, in the Logging query language."""

    page: Page
    job_id: str
    more: Sequence[str] = ()
    _seen: dict[str, str] = field(default_factory=dict)  # the last time, by VM
    _said: set[str] = field(default_factory=set)  # insertIds of the service's lines, which are few
    _newest: str = ""

    def new(self, until: datetime | None = None) -> Iterator[list[LogLine]]:
        """What is new since the last call, of before that moment, page by page.

        After each page it is asked anew: what a VM writes behind the place of a page's token, while pages are turned,
        would be missing between what it wrote before and after.
        """
        token = ""
        while True:
            entries, token = self.page(self.filter(until), token)
            lines = [line for line in map(parse, entries) if self._is_new(line)]
            if lines:
                yield lines
            if not token:
                return
            token = "" if lines else token

    def filter(self, until: datetime | None) -> str:
        parts = [f'{JOB}="{self.job_id}"', *self.more]
        if until is not None:
            parts.append(f'timestamp<"{until.isoformat()}"')
        if self._newest:
            parts += self._after()
        return " AND ".join(parts)

    def _after(self) -> list[str]:
        """Only what was not seen; a time for all of it first, for that is what Cloud Logging is quick at."""
        service = _earlier(self._newest, AGAIN_S)
        oldest = max(min([service, *self._seen.values()]), _earlier(self._newest, LATE_S))
        followed = sorted(self._seen.items(), key=lambda each: each[1])[-POSITIONS_MAX:]
        parts = [f'({VM}="{vm}" AND timestamp>"{at}")' for vm, at in followed]
        known = " OR ".join(f'"{vm}"' for vm, _ in followed)
        parts.append(f"NOT {VM}=({known})" if known else f'timestamp>="{oldest}"')
        return [f'timestamp>="{oldest}"', f"({' OR '.join(parts)})"]

    def _is_new(self, line: LogLine) -> bool:
        self._newest = max(self._newest, line.timestamp)
        if line.vm:
            if line.timestamp <= self._seen.get(line.vm, ""):
                return False
            self._seen[line.vm] = line.timestamp
            return True
        if line.insert_id in self._said:
            return False
        self._said.add(line.insert_id)
        return True


def _earlier(timestamp: str, seconds: float) -> str:
    """In the same form, to the second."""
    at = datetime.fromisoformat(timestamp[:SECOND_CHARS]) - timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
