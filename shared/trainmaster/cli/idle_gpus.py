"""Idle GPUs of a job that runs, for `describe`."""

from __future__ import annotations

from datetime import UTC, datetime

from trainmaster.cli.output import complain
from trainmaster.core.model.job import Job, JobState
from trainmaster.errors import TemporaryError
from trainmaster.ports.metrics import MetricsDeniedError


def idle_gpus_of(job: Job) -> str:
    """Return a sentence about idle GPUs; empty if there are none.

    If metrics cannot be read, report that on standard error and return an empty text.
    """
    if job.state is not JobState.RUNNING or not any(group.accelerator for group in job.plan.groups):
        return ""
    from trainmaster.presentation.utilization import read_idle_gpus
    from trainmaster.wiring.metrics import metric_reader

    try:
        return read_idle_gpus(metric_reader(), job, datetime.now(UTC))
    except (MetricsDeniedError, TemporaryError) as error:
        complain(f"Cannot find out whether the job's GPUs are idle: {error}")
        return ""
