"""`trainmaster logs JOB [--follow]`: the log of a job's replicas and of Trainmaster itself."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Annotated, Any, Final

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.job_output import find_job
from trainmaster.cli.options import JobId, OutputFormat, parse_replica, parse_since
from trainmaster.cli.output import Format, complain
from trainmaster.core.model.job import Job, public_id
from trainmaster.core.model.tuning import trial_number
from trainmaster.core.reporting.job_log import SERVICE, task_name
from trainmaster.errors import TemporaryError
from trainmaster.ports import Store
from trainmaster.presentation.log_reader import (
    BEFORE_CREATION,
    DELAY_MAX_S,
    PROGRAM_ONLY,
    SEVERITIES,
    TASK,
    TRIAL,
    LogLine,
    LogReader,
    ReadPage,
)
from trainmaster.presentation.printable import make_visible, printable
from trainmaster.settings import settings

POLL_S: Final = 1.0
"""Time between two reads of a log that is followed, on a local stack."""
POLL_GOOGLE_S: Final = 5.0
"""Time between two reads on Google Cloud. Source: Cloud Logging allows 60 read requests a minute in
a project.
"""
SETTLE_GOOGLE_S: Final = 5.0
"""Age from which entries are complete. Source: gcloud waits as long before it shows them."""
TRIES: Final = 3
"""Tries of one page of a log that is not followed, before the command ends with the error."""
LATE_LINES_S: Final = 3.0
"""How long after a job's end its VMs may still write log lines."""

COLOURS: Final = {
    "WARNING": "33",
    "ERROR": "31",
    "CRITICAL": "1;31",
    "ALERT": "1;31",
    "EMERGENCY": "1;31",
    "DEBUG": "2",
}
"""Severity → its colour on a terminal: parameters of the ANSI sequence SGR."""
_PLAIN_COLOUR: Final = "0"
_DIM: Final = "2"
_CYAN: Final = "36"


def logs(
    job_id: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(
            "--task-name",
            metavar="REPLICA",
            help="Only this replica, such as worker-0, or `service`.",
        ),
    ] = None,
    severity: Annotated[
        str | None,
        typer.Option(metavar="SEVERITY", help="Only this severity or higher, such as WARNING."),
    ] = None,
    program: Annotated[
        bool, typer.Option("--program", help="Only what the program printed.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only lines since then: 90m, 2h, or a time in UTC, such as 2026-11-21T18:30.",
            metavar="AGE|TIME",
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print control characters of programs as they are.")
    ] = False,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show the log of a job, in order: what its replicas printed, and what Trainmaster did."""
    store = open_store()
    job = find_job(store, job_id).job
    from trainmaster.wiring.log_reader import log_entries

    begin = job.created_at - BEFORE_CREATION
    if since is not None:
        begin = max(begin, parse_since(since, datetime.now(UTC)))
    filters = log_filters(job, task, severity, program_only=program)
    since_text = begin.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    read_page = with_retries(log_entries().page, tries=None if follow else TRIES)
    reader = LogReader(read_page, public_id(job_id), filters, since_text)
    show = line_printer(form, raw=raw)
    for lines in reader.read_history(history_end(job, datetime.now(UTC))):
        show(lines)
    if follow:
        follow_log(reader, lambda: has_ended(store, job_id), show)
    else:
        for lines in reader.read_new(is_followed=False):
            show(lines)


def log_filters(
    job: Job, task: str | None, severity: str | None, *, program_only: bool
) -> list[str]:
    """Return the conditions of the options, in the Logging query language.

    Raises PermanentError if the job has no such task, and typer.BadParameter for another severity.
    """
    filters: list[str] = []
    if task is not None:
        name = task
        if task != SERVICE:
            name = task_name(parse_replica(task, job), job.plan.origin.dialect)
        filters.append(f'{TASK}="{name}"')
    if trial_number(job.job_id):
        filters.append(f'{TRIAL}="{trial_number(job.job_id)}"')
    if severity is not None:
        if severity.upper() not in SEVERITIES:
            raise typer.BadParameter(
                f"must be one of {', '.join(SEVERITIES)}, not {severity!r}",
                param_hint="--severity",
            )
        filters.append(f"severity>={severity.upper()}")
    if program_only:
        filters.append(PROGRAM_ONLY)
    return filters


def settle_time() -> timedelta:
    """Return the age from which entries are complete."""
    return timedelta(seconds=0 if settings().logging_endpoint else SETTLE_GOOGLE_S)


def history_end(job: Job, now: datetime) -> datetime | None:
    """Return the time before which the log no longer grows.

    None: the job has ended, and its log is complete.
    """
    late = settle_time() + timedelta(seconds=LATE_LINES_S)
    if job.ended_at is not None and now - job.ended_at > late:
        return None
    return now - timedelta(seconds=DELAY_MAX_S)


def with_retries(
    page: ReadPage,
    sleep: Callable[[float], None] = time.sleep,
    *,
    tries: int | None = None,
) -> ReadPage:
    """Return a function that repeats `page` after transient errors, and reports each retry.

    It raises TemporaryError after this number of `tries`; None: it never gives up.
    """

    def page_with_retries(filter_text: str, token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        for number in count(1):
            try:
                return page(filter_text, token)
            except TemporaryError as error:
                if number == tries:
                    raise
                complain(f"retrying: {error}")
                sleep(POLL_GOOGLE_S)
        raise AssertionError("count never ends")

    return page_with_retries


def has_ended(store: Store, job_id: str) -> bool:
    """Return whether the job has ended, or was removed. False after a transient error."""
    try:
        loaded = store.load(job_id)
    except TemporaryError as error:
        complain(f"retrying: {error}")
        return False
    return loaded is None or loaded.state.job.state.is_terminal


def follow_log(
    reader: LogReader,
    job_has_ended: Callable[[], bool],
    show: Callable[[Iterable[LogLine]], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show lines until the job has ended and no more lines arrive."""
    is_google = not settings().logging_endpoint
    settle = settle_time()
    poll_s = POLL_GOOGLE_S if is_google else POLL_S
    ended_at: datetime | None = None
    while True:
        now = datetime.now(UTC)
        if ended_at is None and job_has_ended():
            ended_at = now
        has_lines = False
        late = settle + timedelta(seconds=LATE_LINES_S)
        is_complete = ended_at is not None and now - ended_at > late
        until = now - settle if is_google else None
        for lines in reader.read_new(until, is_followed=not is_complete):
            show(lines)
            has_lines = True
        if is_complete and not has_lines:
            return
        sleep(poll_s)


def line_printer(form: Format, *, raw: bool) -> Callable[[Iterable[LogLine]], None]:
    """Return the function that prints lines.

    Without `raw`, no control character of a program reaches the output.
    """
    is_terminal = sys.stdout.isatty()
    if form is Format.JSON:
        texts = _json_lines
    elif is_terminal:
        texts = _coloured
    else:
        texts = _plain
    safe: Callable[[str], str] = make_visible if is_terminal else printable
    if raw:
        safe = str

    def show(lines: Iterable[LogLine]) -> None:
        sys.stdout.write("".join(f"{safe(text)}\n" for text in texts(lines)))
        sys.stdout.flush()

    return show


def _plain(lines: Iterable[LogLine]) -> Iterator[str]:
    """Yield each line of a message as a line of its own, as gcloud does."""
    for line in lines:
        for text in line.message.splitlines() or [""]:
            yield f"{line.to_the_millisecond}  {line.severity:<8} {line.source:<18} {text}"


def _coloured(lines: Iterable[LogLine]) -> Iterator[str]:
    """Yield lines for a terminal, with the time of day, and a colour for the severity."""
    for line in lines:
        time_of_day = _in_colour(line.time_of_day, _DIM)
        source = _in_colour(f"{line.source:<18}", _CYAN)
        colour = COLOURS.get(line.severity, _PLAIN_COLOUR)
        for text in line.message.splitlines() or [""]:
            yield f"{time_of_day}  {source} {_in_colour(text, colour)}"


def _in_colour(text: str, colour: str) -> str:
    """Return the text between the ANSI sequences that begin the colour and end it."""
    return f"\x1b[{colour}m{text}\x1b[0m"


def _json_lines(lines: Iterable[LogLine]) -> Iterator[str]:
    for line in lines:
        names = ["timestamp", "severity", "task", "message"]
        names += [name for name in ("trial", "payload") if getattr(line, name)]
        yield json.dumps({name: getattr(line, name) for name in names}, ensure_ascii=False)
