"""`trainmaster logs JOB [--follow]`: the log of a job's replicas and of the service, from Cloud
Logging.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.job_output import find_job
from trainmaster.cli.options import JobId, OutputFormat, parse_duration
from trainmaster.cli.output import Format, complain
from trainmaster.core.model.job import Job, public_id
from trainmaster.core.model.tuning import trial_number
from trainmaster.errors import TemporaryError
from trainmaster.ports import Store
from trainmaster.presentation.log_reader import (
    DELAY_MAX_S,
    TASK,
    TRIAL,
    LogLine,
    LogReader,
    ReadPage,
)
from trainmaster.presentation.printable import make_visible, printable
from trainmaster.settings import settings

POLL_S: Final = 1.0
POLL_GOOGLE_S: Final = 5.0
"""Source: Cloud Logging allows 60 read requests per minute and project."""
SETTLE_GOOGLE_S: Final = 5.0
"""Newer entries may be incomplete. Source: gcloud waits as long before it shows them."""
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


def logs(
    job_id: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")
    ] = False,
    task: Annotated[
        str | None, typer.Option("--task-name", help="Only this task, such as worker-replica-0.")
    ] = None,
    severity: Annotated[
        str | None, typer.Option(help="Only this severity or higher, such as WARNING.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only lines newer than this: 90m, 2h.", metavar="DURATION")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print control characters of programs as they are.")
    ] = False,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show the log of a job: all lines of its replicas and of the service, in order."""
    store = open_store()
    job = find_job(store, job_id).job
    from trainmaster.wiring.log_reader import log_entries

    begin = job.created_at - timedelta(minutes=1)
    if since is not None:
        begin = max(begin, datetime.now(UTC) - timedelta(seconds=parse_duration(since)))
    filters = [f'{TASK}="{task}"'] if task is not None else []
    filters += [f'{TRIAL}="{trial_number(job_id)}"'] if trial_number(job_id) else []
    filters += [f"severity>={severity.upper()}"] if severity is not None else []
    since_text = begin.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    reader = LogReader(with_retries(log_entries().page), public_id(job_id), filters, since_text)
    show = shower(form, raw=raw)
    for lines in reader.read_history(history_end(job, datetime.now(UTC))):
        show(lines)
    if follow:
        follow_log(reader, lambda: has_ended(store, job_id), show)
    else:
        for lines in reader.read_new():
            show(lines)


def settle_time() -> timedelta:
    """Return the age from which entries are complete."""
    return timedelta(seconds=0 if settings().logging_endpoint else SETTLE_GOOGLE_S)


def history_end(job: Job, now: datetime) -> datetime | None:
    """Return the time before which the log does not grow any more; None: the job has ended, and its
    log is complete.
    """
    late = settle_time() + timedelta(seconds=LATE_LINES_S)
    if job.ended_at is not None and now - job.ended_at > late:
        return None
    return now - timedelta(seconds=DELAY_MAX_S)


def with_retries(page: ReadPage, sleep: Callable[[float], None] = time.sleep) -> ReadPage:
    """Return a function that calls `page` until no transient error occurs, and reports
    each retry.
    """

    def page_with_retries(filter_text: str, token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        while True:
            try:
                return page(filter_text, token)
            except TemporaryError as error:
                complain(f"retrying: {error}")
                sleep(POLL_GOOGLE_S)

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
        for lines in reader.read_new(now - settle if is_google else None):
            show(lines)
            has_lines = True
        if ended_at and not has_lines and now - ended_at > settle + timedelta(seconds=LATE_LINES_S):
            return
        sleep(poll_s)


def shower(form: Format, *, raw: bool) -> Callable[[Iterable[LogLine]], None]:
    """Return the function that prints lines; without `raw`, no control character of a program
    reaches the output.
    """
    is_terminal = sys.stdout.isatty()
    texts = _json if form is Format.JSON else _coloured if is_terminal else _plain
    safe = str if raw else make_visible if is_terminal else printable

    def show(lines: Iterable[LogLine]) -> None:
        sys.stdout.write("".join(f"{safe(text)}\n" for text in texts(lines)))
        sys.stdout.flush()

    return show


def _plain(lines: Iterable[LogLine]) -> Iterator[str]:
    """Yield each line of a message as a line of its own, as gcloud does."""
    return (
        f"{line.timestamp[:23]}Z  {line.severity:<8} {line.source:<18} {text}"
        for line in lines
        for text in line.message.splitlines() or [""]
    )


def _coloured(lines: Iterable[LogLine]) -> Iterator[str]:
    return (
        f"\x1b[2m{line.timestamp[11:23]}\x1b[0m  \x1b[36m{line.source:<18}\x1b[0m "
        f"\x1b[{COLOURS.get(line.severity, '0')}m{text}\x1b[0m"
        for line in lines
        for text in line.message.splitlines() or [""]
    )


def _json(lines: Iterable[LogLine]) -> Iterator[str]:
    always, if_any = ("timestamp", "severity", "task", "message"), ("trial", "payload")
    for line in lines:
        names = (*always, *(name for name in if_any if getattr(line, name)))
        yield json.dumps({name: getattr(line, name) for name in names}, ensure_ascii=False)
