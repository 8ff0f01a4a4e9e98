"""`trainmaster logs JOB [--follow]`: what a job's replicas and the service said, from Cloud Logging."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from cli.jobs import Form, JobId, find, open_store
from cli.output import Format, complain, visible
from cli.simulate import span
from shared.core.model.job import public_id
from shared.core.model.tuning import number_of
from shared.errors import TemporaryError
from shared.gcp.cloud_logging import RefusedError
from shared.ports import Store
from shared.presentation.log_reader import TASK, TRIAL, LogLine, LogReader, Page
from shared.settings import settings

POLL_S: Final = 1.0
POLL_GOOGLE_S: Final = 5.0
"""Source: Cloud Logging allows 60 reads a minute, of a whole project."""
SETTLE_GOOGLE_S: Final = 5.0
"""Younger entries may not all be there yet. Source: gcloud waits as long before it shows them."""
LAST_WORDS_S: Final = 3.0
"""How long after a job's end its VMs may go on saying what they did."""

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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    task: Annotated[str | None, typer.Option("--task-name", help="Only of this one, such as worker-replica-0.")] = None,
    severity: Annotated[str | None, typer.Option(help="Only of this severity or higher, such as WARNING.")] = None,
    since: Annotated[str | None, typer.Option(help="Only what is younger than this: 90m, 2h.", metavar="SPAN")] = None,
    form: Form = Format.TABLE,
) -> None:
    """Show a job's log: every line of its replicas in order, and what the service said."""
    store = open_store()
    job = find(store, job_id).job
    from shared.wiring.log_reader import logging

    begin = job.created_at - timedelta(minutes=1)
    if since is not None:
        begin = max(begin, datetime.now(UTC) - timedelta(seconds=span(since)))
    more = [f'timestamp>="{begin.isoformat()}"']
    more += [f'{TASK}="{task}"'] if task else []
    more += [f'{TRIAL}="{number_of(job_id)}"'] if number_of(job_id) else []
    more += [f"severity>={severity.upper()}"] if severity else []
    reader = LogReader(patient(logging().page), public_id(job_id), more)
    show = _json if form is Format.JSON else _coloured if sys.stdout.isatty() else _plain
    if follow:
        follow_log(reader, lambda: has_ended(store, job_id), show)
    else:
        for lines in reader.new():
            show(lines)


def patient(page: Page, sleep: Callable[[float], None] = time.sleep) -> Page:
    """Asks again while the errors is one that passes, and says so."""

    def asked_again(filter_text: str, token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        while True:
            try:
                return page(filter_text, token)
            except TemporaryError as error:
                if isinstance(error, RefusedError) and error.is_final:
                    raise
                complain(f"trying again: {error}")
                sleep(POLL_GOOGLE_S)

    return asked_again


def has_ended(store: Store, job_id: str) -> bool:
    """Trouble that passes is no end."""
    try:
        loaded = store.load(job_id)
    except TemporaryError as error:
        complain(f"trying again: {error}")
        return False
    return loaded is None or loaded.state.job.state.is_terminal


def follow_log(
    reader: LogReader,
    is_over: Callable[[], bool],
    show: Callable[[Iterable[LogLine]], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until the job has ended and has nothing more to say."""
    is_google = not settings().logging_endpoint
    settle = timedelta(seconds=SETTLE_GOOGLE_S if is_google else 0)
    poll_s = POLL_GOOGLE_S if is_google else POLL_S
    ended_at: datetime | None = None
    while True:
        now = datetime.now(UTC)
        if ended_at is None and is_over():
            ended_at = now
        something = False
        for lines in reader.new(now - settle if is_google else None):
            show(lines)
            something = True
        if ended_at and not something and now - ended_at > settle + timedelta(seconds=LAST_WORDS_S):
            return
        sleep(poll_s)


def _plain(lines: Iterable[LogLine]) -> None:
    """A message of several lines is several, as gcloud has it."""
    _write(
        f"{line.timestamp[:23]}Z  {line.severity:<8} {line.who:<18} {text}"
        for line in lines
        for text in line.message.splitlines() or [""]
    )


def _coloured(lines: Iterable[LogLine]) -> None:
    _write(
        f"\x1b[2m{line.timestamp[11:23]}\x1b[0m  \x1b[36m{line.who:<18}\x1b[0m "
        f"\x1b[{COLOURS.get(line.severity, '0')}m{text}\x1b[0m"
        for line in lines
        for text in line.message.splitlines() or [""]
    )


def _json(lines: Iterable[LogLine]) -> None:
    _write(
        json.dumps(
            {
                "timestamp": line.timestamp,
                "severity": line.severity,
                "task": line.task,
                **({"trial": line.trial} if line.trial else {}),
                "message": line.message,
                **({"payload": line.payload} if line.payload else {}),
            },
            ensure_ascii=False,
        )
        for line in lines
    )


def _write(texts: Iterable[str]) -> None:
    shown = map(visible, texts) if sys.stdout.isatty() else texts
    sys.stdout.write("".join(f"{text}\n" for text in shown))
    sys.stdout.flush()
