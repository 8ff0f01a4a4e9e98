"""A page of a job's log: a window of its lines, filtered by Cloud Logging.

`page_routes` calls `read_log_filters` with an address, and `read_log_page` with the result.

A *live* page shows the end of the log and is updated every few seconds. Its address has the last
line that it has shown (`follow`). If more lines have arrived since than an update can read, the
page names the *gap* between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from trainmaster.console.pages.job_page import JobPage, find_job
from trainmaster.console.pages.log_window import (
    LogPosition,
    Tail,
    Window,
    is_behind,
    live_window,
    newest_window,
    parse_position,
    position_of,
    window_around,
    window_from,
)
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job, public_id
from trainmaster.core.model.tuning import trial_number
from trainmaster.core.reporting.job_log import SERVICE, task_base
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.presentation.log_reader import (
    BEFORE_CREATION,
    JOB,
    PROGRAM_ONLY,
    TASK,
    TRIAL,
    LogLine,
)
from trainmaster.presentation.printable import printable

SEVERITIES: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
EXPLORER: Final = "https://console.cloud.google.com/logs/query"
FILTERS: Final = ("task", "severity", "text", "lines", "before", "around", "start", "follow", "gap")
"""Fields of `LogFilters`, in the order of an address."""
PROGRAM: Final = "program"
"""Value of the filter `lines`."""
POSITIONS: Final = ("before", "around", "start", "follow", "gap")
"""The filters that are positions in the log."""
TASKS_MAX: Final = 200
"""Replicas that the page suggests.

Above this number, it has a text field, in which the user types the name.
"""
_PARAMETERS: Final = {"start": "from"}
"""Filter → its name in addresses, where that differs."""
_TASK: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class LogFilters:
    """The filters and the position of a log page, from its address."""

    task: str = ""
    """Task name, such as `worker-replica-0` or `service`; empty: all."""
    severity: str = ""
    """Lowest severity; empty: all."""
    text: str = ""
    """Text that a line contains."""
    lines: str = ""
    """`PROGRAM`: only what the program printed; empty: also the lines of agent and service."""
    before: str = ""
    """Lines before this position: a time (RFC 3339), or `TIME/INSERT_ID`.

    Empty: the newest lines.
    """
    around: str = ""
    """Lines before and after this time; empty: no such limit."""
    start: str = ""
    """Lines from this position on; `from` in an address."""
    follow: str = ""
    """Position of the last line of the page that is being updated."""
    gap: str = ""
    """Position of the last line that was shown before the page fell behind for the first time."""

    def query(self, **changes: str) -> str:
        """Return the query of an address. `changes` replace filters."""
        values = {name: getattr(self, name) for name in FILTERS} | changes
        return urlencode(
            {_PARAMETERS.get(name, name): value for name, value in values.items() if value}
        )

    def window_query(self, **changes: str) -> str:
        """Return the query of another window with the same filters."""
        changed_filters = dict.fromkeys(POSITIONS, "") | changes
        return self.query(**changed_filters)

    @property
    def is_set(self) -> bool:
        """Whether the page leaves lines out, or is not at the end of the log."""
        return bool(self.task or self.severity or self.text or self.lines or not self.is_newest)

    @property
    def is_newest(self) -> bool:
        """Whether the page shows the end of the log, and is updated."""
        return not (self.before or self.around or self.start)


@dataclass(frozen=True, slots=True)
class Line:
    """A line in the form of the page."""

    line: LogLine
    time: str
    """Time of day, in UTC."""
    text: str
    """Its message without control characters."""
    is_service: bool
    """Whether Trainmaster wrote it, and not a VM."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines between two windows that a live page did not show."""

    begin: str
    """Time of the last line before it."""
    end: str
    """Time of the first line after it."""
    query: str
    """Query of the page that shows its first lines."""


@dataclass(frozen=True, slots=True)
class LogPage:
    """A page of the log."""

    job: Job
    filters: LogFilters
    lines: tuple[Line, ...]
    older: str | None
    """Query of the page before; None: there are no older lines."""
    newer: str | None
    """Query of the page after; None: there are no newer lines."""
    file: str
    """Query of the filtered log as a file, which begins at `from` if the page does."""
    update: str
    """Query by which a live page is updated; empty: by its own address."""
    gap: Gap | None
    """Lines that a live page could not show."""
    tasks: tuple[str, ...]
    """Task names that the page suggests."""
    replicas: int
    """Number of all replicas, of which `tasks` may name the first ones only."""
    explorer: str
    """Address of the same lines in Logs Explorer."""
    problem: str
    """Why the log cannot be read; empty: it was read."""


def read_log_filters(args: Mapping[str, str]) -> LogFilters:
    """Return the filters of an address.

    Raises PermanentError for a wrong severity, task or time.
    """
    values = {name: args.get(_PARAMETERS.get(name, name), "").strip() for name in FILTERS}
    filters = LogFilters(**values)
    if filters.severity and filters.severity not in SEVERITIES:
        raise PermanentError(f"severity: must be one of {', '.join(SEVERITIES)}")
    if filters.task and not _TASK.fullmatch(filters.task):
        raise PermanentError("task: must be a task name, such as worker-replica-0 or service")
    if filters.lines not in ("", PROGRAM):
        raise PermanentError(f"lines: must be {PROGRAM}, or be left out")
    for name in POSITIONS:
        value = getattr(filters, name)
        if value:
            parse_position(_PARAMETERS.get(name, name), value)
    return filters


def read_log_page(console: Console, job_id: str, filters: LogFilters) -> LogPage:
    """Return the page, which names the problem if the log cannot be read.

    Raises PermanentError for an unknown job.
    """
    job = find_job(console, job_id)
    query = log_query(job, filters)
    problem = ""
    window = Window(lines=())
    try:
        window = _window(console, query, filters)
    except (PermanentError, TemporaryError) as error:
        problem = (
            f"{error}. Reading logs needs the role roles/logging.viewer on the project"
            f" {console.project}."
        )
    older = None
    newer = None
    gap = None
    follow = filters.follow
    gap_begin = _gap_begin(window, filters)
    if window.lines:
        first = str(position_of(window.lines[0]))
        last = str(position_of(window.lines[-1]))
        follow = last
        older = filters.window_query(before=first) if window.has_older else None
        newer = filters.window_query(start=last) if window.has_newer else None
        gap = _gap(gap_begin, window, filters) if gap_begin else None
    return LogPage(
        job=job,
        filters=filters,
        lines=tuple(_line(line) for line in window.lines),
        older=older,
        newer=newer,
        file=filters.window_query(start=filters.start),
        update=filters.window_query(follow=follow, gap=gap_begin),
        gap=gap,
        tasks=_tasks(job),
        replicas=0 if job.tuning else len(job.plan.replica_ids),
        explorer=f"{EXPLORER};query={quote(query, safe='')}?project={console.project}",
        problem=problem,
    )


def _window(console: Console, query: str, filters: LogFilters) -> Window:
    """Return the lines at the position of the filters. Raises PermanentError and TemporaryError."""
    if filters.start:
        return window_from(console.read_log, query, parse_position("from", filters.start))
    if filters.around:
        return window_around(console.read_log, query, filters.around)
    if filters.before:
        return newest_window(console.read_log, query, parse_position("before", filters.before))
    return live_window(
        console.read_log,
        query,
        parse_position("follow", filters.follow) if filters.follow else None,
    )


def _gap_begin(window: Window, filters: LogFilters) -> str:
    """Return the last line that a live page showed before it fell behind for the first time; empty:
    it never did.

    Lines may be missing if the oldest line of the window is newer than the last line of the
    previous update.
    """
    if filters.gap or not filters.follow:
        return filters.gap
    return filters.follow if is_behind(window, parse_position("follow", filters.follow)) else ""


def _gap(begin: str, window: Window, filters: LogFilters) -> Gap:
    position: LogPosition = parse_position("gap", begin)
    return Gap(position.time, window.lines[0].timestamp, filters.window_query(start=begin))


def read_log_tail(console: Console, page: JobPage) -> Tail | None:
    """Return the end of the job's log; None for a tuning job, and if the page has the end of the
    failed program's.
    """
    shows_tail = page.failure is not None and page.failure.tail != ""
    if page.job.tuning is not None or shows_tail:
        return None
    return console.read_tail(log_query(page.job, LogFilters()))


def log_query(job: Job, filters: LogFilters) -> str:
    """Return the filter in the Logging query language, without the position of the window."""
    begin = job.created_at - BEFORE_CREATION
    parts = [f'{JOB}="{public_id(job.job_id)}"', f'timestamp>="{begin.isoformat()}"']
    trial = trial_number(job.job_id)
    if trial:
        parts.append(f'{TRIAL}="{trial}"')
    if filters.task:
        parts.append(f'{TASK}="{filters.task}"')
    if filters.severity:
        parts.append(f"severity>={filters.severity}")
    if filters.lines:
        parts.append(PROGRAM_ONLY)
    if filters.text:
        text = json.dumps(filters.text, ensure_ascii=False)
        parts.append(f"(jsonPayload.message:{text} OR textPayload:{text})")
    return " AND ".join(parts)


def _line(line: LogLine) -> Line:
    return Line(line, line.time_of_day, printable(line.message), line.task == SERVICE)


def _tasks(job: Job) -> tuple[str, ...]:
    """Return the task names of the job's first replicas, and that of Trainmaster's own lines."""
    replica_ids = () if job.tuning else job.plan.replica_ids[:TASKS_MAX]
    names = [
        f"{task_base(replica_id.task_type, job.plan.origin.dialect)}-{replica_id.index}"
        for replica_id in replica_ids
    ]
    return (SERVICE, *names)
