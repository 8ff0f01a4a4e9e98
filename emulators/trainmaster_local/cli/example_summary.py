"""Print what an example did: how its job ended, its metrics, and how long each phase took."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trainmaster.cli.job_output import print_trials
from trainmaster.cli.output import literal_text
from trainmaster.core.model.job import Job, JobState
from trainmaster.ports import Objects
from trainmaster.presentation.ml_units import usage
from trainmaster_local.cli.example_stack import RunningStack
from trainmaster_local.cli.job_monitor import Report

METRICS_BYTES_MAX: Final = 1 << 20
"""Most that is read of an example's metrics.json."""


@dataclass
class Phases:
    """Measures how long the phases of the run take. A phase ends when the next one begins."""

    starts: list[tuple[str, float]] = field(default_factory=list)
    """Name and beginning of each phase; the clock is `time.monotonic`."""

    def begin(self, name: str) -> None:
        """End the phase that runs, and begin another one."""
        self.starts.append((name, time.monotonic()))

    @property
    def current(self) -> str:
        """Name of the phase that runs."""
        return self.starts[-1][0]

    def lines(self) -> Iterator[str]:
        """Yield name and duration of each phase."""
        ends = [at for _, at in self.starts[1:]] + [time.monotonic()]
        for (name, start), end in zip(self.starts, ends, strict=True):
            yield f"{name:<28} {end - start:6.1f} s"


def print_summary(
    job: Job, running: RunningStack, report: Report, phases: Phases, vms_left: int
) -> None:
    """Print how the job ended, what it made and used, and how long the phases took.

    `vms_left`: VMs that the job still has, which should be none.
    """
    console = report.console
    console.print()
    console.print(f"[bold]{job.job_id}: {job.state}[/]")
    if job.error_message:
        console.print(literal_text(f"  error       {job.error_message}"))
    metrics = _read_metrics(job, running.objects)
    if metrics:
        values = ", ".join(f"{name} {_format_value(value)}" for name, value in metrics.items())
        console.print(literal_text(f"  metrics     {values}"))
    if job.plan.program.job_dir:
        # A log is STATE_DIR/logs/SERVICE.log, and the objects are below STATE_DIR/storage.
        state_dir = Path(running.state.services["storage"].log).parents[1]
        folder = state_dir / "storage" / job.plan.program.job_dir.removeprefix("gs://")
        console.print(
            literal_text(
                f"  model       {job.plan.program.job_dir}  (files in {os.path.relpath(folder)})"
            )
        )
    loaded = running.store.load_attempt(job.job_id)
    replicas = loaded.state.replicas if loaded else ()
    for replica in replicas:
        counts = f"restarts {replica.restarts_used}, replaced {replica.replaced}"
        console.print(
            f"  {replica.replica_id.words:<11} incarnations {replica.incarnation}, {counts}"
        )
    if job.tuning is not None:
        print_trials(job.tuning)
    console.print(f"  attempts    {job.attempt}; VMs left: {vms_left}")
    console.print(f"  used        {usage(job, datetime.now(UTC)).words}")
    for substitution in job.plan.origin.substitutions:
        words = f"{substitution.field}: {substitution.requested} -> {substitution.replacement}"
        console.print(literal_text(f"  substituted {words}"))
    for line in phases.lines():
        console.print(f"  [dim]{line}[/]")
    console.print(f"  [dim]{'total':<28} {time.monotonic() - report.started:6.1f} s[/]")
    console.print("  next        `trainmaster local up` for jobs of your own: docs/tutorial.md")


def _read_metrics(job: Job, objects: Objects) -> dict[str, Any]:
    """Return the metrics that the program wrote to its job directory; empty if there are none."""
    job_dir = job.plan.program.job_dir
    if not job_dir or job.state is not JobState.SUCCEEDED:
        return {}
    data = objects.read(f"{job_dir.rstrip('/')}/metrics.json", max_bytes=METRICS_BYTES_MAX)
    metrics = json.loads(data) if data else {}
    return metrics if isinstance(metrics, dict) else {}


def _format_value(value: object) -> str:
    """Return the metric as text; a fraction with four decimals."""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
