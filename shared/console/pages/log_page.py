"""A page of a job's log: the newest lines before a time, filtered by Cloud Logging."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlencode

from shared.console.pages.job_page import find_job
from shared.console.pages.service import Console
from shared.console.pages.times import parse_time
from shared.console.printable import printable
from shared.core.model.job import Job, public_id
from shared.core.model.tuning import trial_number
from shared.core.reporting.job_log import SERVICE, task_base
from shared.errors import PermanentError, TemporaryError
from shared.presentation.log_reader import JOB, TASK, TRIAL, LogLine, parse_entry

LINES_MAX: Final = 1_000
SEVERITIES: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
EXPLORER: Final = "https://console.cloud.google.com/logs/query"
_TASK: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class LogFilters:
    task: str = ""
    """Task name, such as `worker-replica-0` or `service`; empty: all."""
    severity: str = ""
    """Lowest severity; empty: all."""
    text: str = ""
    """Text that a line contains."""
    before: str = ""
    """Only lines before this time (RFC 3339); empty: the newest lines."""
    around: str = ""
    """Only lines within 30 seconds of this time; empty: no such limit."""

    def query(self, **changes: str) -> str:
        values = {name: getattr(self, name) for name in ("task", "severity", "text", "before", "around")} | changes
        return urlencode({name: value for name, value in values.items() if value})


@dataclass(frozen=True, slots=True)
class Line:
    """A line in the form of the page, its text without control characters."""

    line: LogLine
    time: str
    text: str
    is_service: bool


@dataclass(frozen=True, slots=True)
class LogPage:
    job: Job
    filters: LogFilters
    lines: tuple[Line, ...]
    older: str | None
    """Query of the page before; None: there are no older lines."""
    tasks: tuple[str, ...]
    explorer: str
    """Address of the same lines in Logs Explorer."""
    problem: str
    """Why the log cannot be read; empty: it was read."""


def read_log_filters(args: Mapping[str, str]) -> LogFilters:
    """Return the filters of an address. Raises PermanentError for a wrong severity, task or time."""
    filters = LogFilters(*(args.get(name, "").strip() for name in ("task", "severity", "text", "before", "around")))
    if filters.severity and filters.severity not in SEVERITIES:
        raise PermanentError(f"severity: must be one of {', '.join(SEVERITIES)}")
    if filters.task and not _TASK.fullmatch(filters.task):
        raise PermanentError("task: must be a task name, such as worker-replica-0 or service")
    for name in ("before", "around"):
        if value := getattr(filters, name):
            parse_time(name, value)
    return filters


def read_log_page(console: Console, job_id: str, filters: LogFilters) -> LogPage:
    """Return the page, which names the problem if the log cannot be read. Raises PermanentError for an unknown job."""
    job = find_job(console, job_id)
    query = log_query(job, filters)
    problem, lines = "", list[LogLine]()
    try:
        lines = [parse_entry(entry) for entry in console.read_log(query)]
    except (PermanentError, TemporaryError) as error:
        problem = f"{error}. Reading logs needs the role roles/logging.viewer on the project {console.project}."
    lines.reverse()
    older = filters.query(before=lines[0].timestamp, around="") if len(lines) >= LINES_MAX else None
    return LogPage(
        job,
        filters,
        tuple(_line(line) for line in lines),
        older,
        _tasks(job),
        f"{EXPLORER};query={quote(query, safe='')}?project={console.project}",
        problem,
    )


def log_query(job: Job, filters: LogFilters) -> str:
    """Return the filter in the Logging query language."""
    begin = job.created_at - timedelta(minutes=1)
    parts = [f'{JOB}="{public_id(job.job_id)}"', f'timestamp>="{begin.isoformat()}"']
    if trial := trial_number(job.job_id):
        parts.append(f'{TRIAL}="{trial}"')
    parts += [f'{TASK}="{filters.task}"'] if filters.task else []
    parts += [f"severity>={filters.severity}"] if filters.severity else []
    if filters.text:
        text = json.dumps(filters.text, ensure_ascii=False)
        parts.append(f"(jsonPayload.message:{text} OR textPayload:{text})")
    parts += [f'timestamp<"{filters.before}"'] if filters.before else []
    if filters.around:
        moment = parse_time("around", filters.around)
        parts.append(f'timestamp>="{(moment - timedelta(seconds=30)).isoformat()}"')
        parts.append(f'timestamp<"{(moment + timedelta(seconds=30)).isoformat()}"')
    return " AND ".join(parts)


def _line(line: LogLine) -> Line:
    return Line(line, line.timestamp[11:23], printable(line.message), line.task == SERVICE)


def _tasks(job: Job) -> tuple[str, ...]:
    """Return the task names of the job's first replicas, and that of the service."""
    replica_ids = () if job.tuning else job.plan.replica_ids[:200]
    names = [f"{task_base(replica_id.task_type, job.plan.dialect)}-{replica_id.index}" for replica_id in replica_ids]
    return (SERVICE, *names)
