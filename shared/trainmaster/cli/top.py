"""`trainmaster top JOB`: what each replica's machine uses now."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.job_output import find_job
from trainmaster.cli.options import JobId, OutputFormat
from trainmaster.cli.output import (
    Format,
    complain,
    fitted_table,
    literal_text,
    print_json,
    print_table,
)
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports import Store
from trainmaster.ports.metrics import MetricReader
from trainmaster.presentation.job_view import timestamp
from trainmaster.presentation.utilization import (
    ReplicaUse,
    bytes_words,
    read_idle_gpus,
    read_latest,
    share_words,
)
from trainmaster.settings import settings

if TYPE_CHECKING:
    from rich.console import Group

REFRESH_S: Final = 15.0
"""Time between two updates of the table. Agents report once a minute, at different times."""
COLUMNS: Final = ("replica", "cpu", "memory", "gpu", "gpu memory", "received", "sent", "sample age")


def top(
    job_id: JobId,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show CPU, memory, GPU and network use of a job's replicas, until Ctrl-C or the end of the
    job.

    Prints one table if the output is not a terminal, or with --format json.
    """
    store = open_store()
    job = find_job(store, job_id).job
    if job.tuning is not None:
        raise PermanentError(
            f"{job_id} is a tuning job and has no replicas. Name one of its trials:"
            f" {job_id}-trial-1"
        )
    from trainmaster.wiring.metrics import metric_reader

    reader = metric_reader()
    if form is Format.JSON:
        print_json(use_view(job, read_latest(reader, job, datetime.now(UTC))))
    elif once or job.state.is_terminal or not sys.stdout.isatty():
        _print_once(job, reader)
    else:
        watch(job, store, reader)


def _print_once(job: Job, reader: MetricReader) -> None:
    now = datetime.now(UTC)
    uses = read_latest(reader, job, now)
    print_table(COLUMNS, [_row(use, now) for use in uses])
    for note in notes(job, uses, read_idle_gpus(reader, job, now)):
        complain(note)


def watch(
    job: Job, store: Store, reader: MetricReader, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show a table that is updated until the job ends. Transient errors are shown and retried."""
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), auto_refresh=False) as live:
        while not job.state.is_terminal:
            now = datetime.now(UTC)
            try:
                uses = read_latest(reader, job, now)
                sentences = notes(job, uses, read_idle_gpus(reader, job, now))
                live.update(_table(job, uses, sentences, now), refresh=True)
                sleep(REFRESH_S)
                job = find_job(store, job.job_id).job
            except TemporaryError as error:
                live.console.print(literal_text(f"retrying: {error}"))
                sleep(REFRESH_S)


def notes(job: Job, uses: Sequence[ReplicaUse], idle: str) -> list[str]:
    """Return sentences below the table: idle GPUs, and why there are no values."""
    found = [f"{idle}."] if idle else []
    if any(use.sampled_at for use in uses):
        return found
    return [*found, f"{no_samples_reason(job)}."]


def no_samples_reason(job: Job) -> str:
    """Return why there may be no values, and what to do."""
    if settings().metrics == "off":
        return "No values: TRAINMASTER_METRICS is off"
    if job.started_at is None:
        return f"No values yet: the job is {job.state}, and agents report while their program runs"
    return (
        "No values of the last ten minutes: agents report once a minute, unless their service"
        f" account lacks roles/monitoring.metricWriter. `trainmaster logs {job.job_id}` shows such"
        " errors"
    )


def use_view(job: Job, uses: Sequence[ReplicaUse]) -> dict[str, Any]:
    """Return the values as JSON; shares are from 0 to 1, and values that are unknown are null."""
    return {"jobId": job.job_id, "replicas": [_replica_view(use) for use in uses]}


def _replica_view(use: ReplicaUse) -> dict[str, Any]:
    return {
        "replica": use.replica,
        "cpu": use.cpu,
        "memory": use.memory,
        "gpus": [asdict(gpu) for _, gpu in sorted(use.gpus.items())],
        "receivedBytesPerSecond": use.received_bps,
        "sentBytesPerSecond": use.sent_bps,
        "sampleTime": timestamp(use.sampled_at) if use.sampled_at else None,
    }


def _row(use: ReplicaUse, now: datetime) -> list[str]:
    gpus = [gpu for _, gpu in sorted(use.gpus.items())]
    age = f"{max((now - use.sampled_at).total_seconds(), 0):.0f} s" if use.sampled_at else "-"
    return [
        use.replica.replace("-", " "),
        _percent(use.cpu),
        _percent(use.memory),
        " ".join(_percent(gpu.utilization) for gpu in gpus) or "-",
        " ".join(_percent(gpu.memory) for gpu in gpus) or "-",
        "-" if use.received_bps is None else bytes_words(use.received_bps),
        "-" if use.sent_bps is None else bytes_words(use.sent_bps),
        age,
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else share_words(share)


def _table(job: Job, uses: Sequence[ReplicaUse], sentences: Sequence[str], now: datetime) -> Group:
    from rich.console import Group
    from rich.text import Text

    table = fitted_table(COLUMNS, [_row(use, now) for use in uses], of_numbers=True)
    title = Text(f"{job.job_id}  {job.state}  {now:%H:%M:%S}", style="bold")
    return Group(title, table, *(Text(sentence) for sentence in sentences))
