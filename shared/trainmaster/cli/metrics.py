"""Reading metrics for one line of a command's output."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from trainmaster.cli.output import complain
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports.metrics import MetricReader
from trainmaster.settings import settings

Value = TypeVar("Value")


def read_metrics(
    read: Callable[[MetricReader, Job, datetime], Value],
    job: Job,
    what: str,
    warn: Callable[[str], object] = complain,
) -> Value | None:
    """Return what `read` reads now, from Cloud Monitoring.

    If metrics are off, return None. If they cannot be read, return None, and report it by `warn`:
    `what` is what could not be found out.
    """
    if settings().metrics == "off":
        return None
    from trainmaster.gcp.retries import OPTIONAL_READ_S
    from trainmaster.wiring.metrics import metric_reader

    try:
        return read(metric_reader(OPTIONAL_READ_S), job, datetime.now(UTC))
    except (PermanentError, TemporaryError) as error:
        # The line is missing then; the command continues.
        warn(f"Cannot find out {what}: {error}")
        return None
