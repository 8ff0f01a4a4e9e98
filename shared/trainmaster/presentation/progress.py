"""How far a job is: what the agent of its primary wrote to Cloud Monitoring.

The primary is the replica whose success is the job's. An incarnation is one execution of a
replica's program, an attempt one of the whole job.

Programs can write any series with their VM's token, so no decision uses these values, and what
makes no sense is left out. docs/decisions/0124-progress.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.last_progress import LastProgress
from trainmaster.ports.metrics import Label, Metric, MetricQuery, MetricReader, MetricSeries
from trainmaster.presentation.job_view import timestamp
from trainmaster.presentation.utilization import metrics_end

WINDOW: Final = timedelta(hours=1)
"""Points that a view of the present reads: at most a few hundred."""
LIST_WINDOW: Final = timedelta(seconds=660)
"""Points that a list of jobs reads of each of them: two long intervals between reports."""
GAP: Final = timedelta(seconds=360)
"""Points that are further apart do not belong to one slope: agents report within 300 s."""
METRICS_MAX: Final = 8
"""Metrics that are shown of a job, the newest: a program may report any number."""
NAME_CHARS_MAX: Final = 100
"""Characters of a metric's name, without its prefix."""
STEP_MAX: Final = 2.0**53
"""Beyond this, a double does not represent every integer."""
SHARE_MAX: Final = 0.999
"""Largest share of a job that has not succeeded: only exit status 0 is the end of the work."""
REMAINING_S_MAX: Final = 366 * 86400.0
"""A year: a slope near zero would give any time."""
METRIC: Final = "metric/"
"""Prefix of the names of a program's own metrics."""
NOT_FINITE: Final = "not_finite/"
"""Prefix of the names of metrics of the program that are NaN or infinite at the time of a point."""
PRINTED: Final = "printed"
"""Source of values that were read from the program's output."""
NUMBER_DIGITS_MAX: Final = 9
"""Digits of an attempt or incarnation."""
_LIMITS: Final = {"share": 1.0, "step": STEP_MAX, "steps": STEP_MAX}
"""Name of a value of the position → its largest value."""


class Point(NamedTuple):
    """A value of one series. Points sort by their time."""

    at: datetime
    value: float
    incarnation: tuple[int, int]
    """Attempt and incarnation of the primary."""
    source: str
    """Where the value is from, such as `PRINTED`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The latest values. None: unknown."""

    share: float | None
    """Part of the work that is done, from 0 to 1."""
    step: int | None
    steps: int | None
    remaining_s: float | None
    """Time left, from the slope since the last restart or gap."""
    metrics: Mapping[str, float]
    reported_at: datetime
    is_printed: bool
    """Whether the position was read from the program's output.

    What it prints may be about a part of the work.
    """
    is_part: bool
    """Whether what is printed has begun again within one incarnation, as a bar for each epoch."""
    repeated: tuple[int, int] | None
    """The last step before the last restart, and the first one after it, if that is smaller."""

    epoch: int | None = None
    """The last epoch that the program named, counted from 1; known at the end only."""
    epochs: int | None = None
    """Number of epochs in all."""
    not_finite: tuple[str, ...] = ()
    """Names of the metrics whose last value is NaN or infinite."""
    has_ended: bool = False
    """Whether the job has ended, so that these values are its last ones."""

    def words(self, now: datetime) -> str:
        """Return `41 % (step 123 of 300), loss 1.71, about 21 min left; reported 12 s ago`.

        Of a job that has ended: `ended at 25 % (epoch 2 of 8), loss 1.71`, or `100 %, loss 0.3`.
        """
        position = self._position_words()
        parts = [position] if position else []
        parts += [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        parts += [f"{name} is NaN or infinite" for name in self.not_finite]
        if self.has_ended:
            return self._end_words(parts)
        if self.remaining_s is not None:
            parts.append(f"about {rough_words(self.remaining_s)} left")
        age = rough_words(max((now - self.reported_at).total_seconds(), 0.0))
        verb = "printed" if self.is_printed else "reported"
        text = f"{', '.join(parts)}; {verb} {age} ago"
        if self.repeated is not None:
            before, after = self.repeated
            text += (
                f"; the last restart repeats at least {before - after} steps (from {before} back to"
                f" {after})"
            )
        return text

    def short_words(self) -> str:
        """Return `41 %, loss 1.71, 21 min left`: the position, one metric, and the time left."""
        position = f"step {self.step}" if self.step is not None else ""
        if self.share is not None:
            position = f"{int(self.share * 100)} %"
        parts = [position] if position else []
        losses_first = sorted(self.metrics, key=lambda name: "loss" not in name.lower())
        first = next(iter(losses_first), None)
        parts += [f"{first} {self.metrics[first]:.4g}"] if first is not None else []
        parts += [f"NaN or infinite: {', '.join(self.not_finite)}"] if self.not_finite else []
        if self.remaining_s is not None:
            parts.append(f"{rough_words(self.remaining_s)} left")
        return ", ".join(parts)

    def _position_words(self) -> str:
        """Return `41 % (step 123 of 300)`, or what is known of it."""
        count = ""
        if self.step is not None:
            count = f"step {self.step}"
            count += "" if self.steps is None else f" of {self.steps}"
        elif self.epoch is not None and self.epochs is not None:
            count = f"epoch {self.epoch} of {self.epochs}"
        if self.share is None:
            return count
        share = f"{int(self.share * 100)} %"
        if self.is_part:
            share += " of the current bar"
        return f"{share} ({count})" if count else share

    def _end_words(self, parts: Sequence[str]) -> str:
        is_complete = self.share == 1 and not self.is_part
        has_position = self.share is not None or self.step is not None or self.epoch is not None
        text = ", ".join(parts)
        return text if is_complete or not has_position else f"ended at {text}"

    def view(self) -> dict[str, Any]:
        """Return the values that are known, as JSON."""
        values = {
            "share": self.share,
            "step": self.step,
            "steps": self.steps,
            "remainingSeconds": None if self.remaining_s is None else round(self.remaining_s),
            "epoch": self.epoch,
            "epochs": self.epochs,
            "metrics": dict(self.metrics) or None,
            "notFinite": list(self.not_finite) or None,
            "reportedAt": timestamp(self.reported_at),
        }
        return {name: value for name, value in values.items() if value is not None}


def read_progress(reader: MetricReader, job: Job, now: datetime) -> Progress | None:
    """Return the progress of a job that has started; None if nothing is known.

    Raises as `MetricReader.read`.
    """
    if job.started_at is None or job.tuning is not None:
        return None
    if job.last_progress is not None and job.ended_at is not None:
        return _final_progress(job, job.last_progress, job.ended_at)
    end = metrics_end(job, now)
    query = MetricQuery(job.job_id, Metric.PROGRESS, end - WINDOW, end)
    return progress_of(job, reader.read(query), now)


def final_progress_jobs(jobs: Iterable[Job]) -> dict[str, Progress]:
    """Return what the documents of jobs that ended say about their progress, by job id."""
    return {
        job.job_id: _final_progress(job, job.last_progress, job.ended_at)
        for job in jobs
        if job.last_progress is not None and job.ended_at is not None
    }


def read_progress_jobs(
    reader: MetricReader, jobs: Iterable[Job], now: datetime
) -> dict[str, Progress]:
    """Return the progress of those of these jobs that run and have one, by job id, with one call.

    Raises as `MetricReader.read`.
    """
    running = {job.job_id: job for job in jobs if job.state is JobState.RUNNING}
    if not running:
        return {}
    by_job: dict[str, list[MetricSeries]] = {job_id: [] for job_id in running}
    for series in reader.read(
        MetricQuery(job_id="", metric=Metric.PROGRESS, start=now - LIST_WINDOW, end=now)
    ):
        by_job.get(series.labels.get(Label.JOB, ""), []).append(series)
    found = {job_id: progress_of(job, by_job[job_id], now) for job_id, job in running.items()}
    return {job_id: progress for job_id, progress in found.items() if progress is not None}


def _final_progress(job: Job, last: LastProgress, ended_at: datetime) -> Progress:
    """Return what the agent reported with the exit of the program."""
    return Progress(
        share=None if last.share is None else _shown_share(last.share, job),
        step=last.step,
        steps=last.steps,
        remaining_s=None,
        metrics={metric.name: metric.value for metric in last.metrics},
        reported_at=ended_at,
        is_printed=False,
        is_part=False,
        repeated=None,
        epoch=last.epoch,
        epochs=last.epochs,
        not_finite=last.not_finite,
        has_ended=True,
    )


def progress_of(job: Job, all_series: Sequence[MetricSeries], now: datetime) -> Progress | None:
    """Return the progress that series of the last hour show; None if they show nothing."""
    by_name = points_by_name(all_series)
    metrics = {name: points[-1] for name, points in by_name.items() if name.startswith(METRIC)}
    not_finite = _take_not_finite(by_name, metrics)
    shares = by_name.get("share", [])
    steps = by_name.get("step", [])
    position_at = max((points[-1].at for points in (shares, steps) if points), default=None)
    values = [*metrics.values(), *not_finite.values()]
    reported_at = max((point.at for point in values), default=position_at)
    if reported_at is None:
        return None
    if position_at is not None:
        reported_at = max(reported_at, position_at)
    # Share, step and number of steps that were reported together last.
    position = {
        name: points[-1] for name, points in by_name.items() if points[-1].at == position_at
    }
    share = position.get("share")
    step = position.get("step")
    is_printed = any(point.source == PRINTED for point in (share, step) if point)
    is_part = is_printed and any(
        after.value < before.value and after.incarnation == before.incarnation
        for before, after in pairwise(shares)
    )
    remaining_s = None
    if share is not None and not is_part and not job.state.is_terminal:
        remaining_s = _remaining_s(shares, now)
    newest_first = sorted(metrics.items(), key=lambda pair: pair[1].at, reverse=True)[:METRICS_MAX]
    return Progress(
        share=None if share is None else _shown_share(share.value, job),
        step=int(step.value) if step else None,
        steps=int(position["steps"].value) if step and "steps" in position else None,
        remaining_s=remaining_s,
        metrics={name.removeprefix(METRIC): point.value for name, point in newest_first},
        reported_at=reported_at,
        is_printed=is_printed,
        is_part=is_part,
        repeated=_repeated(steps),
        not_finite=tuple(not_finite),
        has_ended=job.state.is_terminal,
    )


def _take_not_finite(
    by_name: Mapping[str, Sequence[Point]], metrics: dict[str, Point]
) -> dict[str, Point]:
    """Return the metrics whose latest value is NaN or infinite, and remove them from `metrics`."""
    taken: dict[str, Point] = {}
    for name, points in by_name.items():
        if not name.startswith(NOT_FINITE):
            continue
        metric = name.removeprefix(NOT_FINITE)
        finite = metrics.get(f"{METRIC}{metric}")
        if finite is None or finite.at < points[-1].at:
            metrics.pop(f"{METRIC}{metric}", None)
            taken[metric] = points[-1]
    return taken


def _shown_share(share: float, job: Job) -> float:
    """Return the share, less than 1 unless the job has succeeded."""
    return share if job.state is JobState.SUCCEEDED else min(share, SHARE_MAX)


def points_by_name(all_series: Sequence[MetricSeries]) -> dict[str, list[Point]]:
    """Return the points of each name that an agent may write, the oldest first.

    Others are left out.
    """
    by_name: dict[str, list[Point]] = defaultdict(list)
    for series in all_series:
        name = series.labels.get(Label.NAME, "")
        limit = _LIMITS.get(name)
        if limit is None and not _is_metric(name):
            continue
        attempt = series.labels.get(Label.ATTEMPT, "0")
        incarnation = series.labels.get(Label.INCARNATION, "0")
        if not (_is_number(attempt) and _is_number(incarnation)):
            continue
        source = series.labels.get(Label.SOURCE, "")
        for point in series.points:
            is_legal = limit is None or 0 <= point.value <= limit
            if math.isfinite(point.value) and is_legal:
                started_as = (int(attempt), int(incarnation))
                by_name[name].append(Point(point.at, point.value, started_as, source))
    return {name: sorted(points) for name, points in by_name.items()}


def _is_metric(name: str) -> bool:
    """Whether a series of this name is a metric of the program, finite or not."""
    prefix = next((prefix for prefix in (METRIC, NOT_FINITE) if name.startswith(prefix)), None)
    if prefix is None:
        return False
    return name.isprintable() and len(name) <= len(prefix) + NAME_CHARS_MAX


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX


def _remaining_s(shares: Sequence[Point], now: datetime) -> float | None:
    """Return the time left, from the slope of the shares since the last drop or gap."""
    last = shares[-1]
    first = last
    for point in reversed(shares[:-1]):
        is_drop = point.value > first.value
        is_gap = first.at - point.at > GAP
        is_comparable = point.incarnation == last.incarnation and point.source == last.source
        if is_drop or is_gap or not is_comparable:
            break
        first = point
    age = now - last.at
    if last.value <= first.value or age > GAP:
        return None
    # In floats: a program may choose two shares whose difference is tiny, and a timedelta raises
    # OverflowError where a float becomes infinite.
    measured_s = (last.at - first.at).total_seconds()
    left_s = (1 - last.value) * measured_s / (last.value - first.value) - age.total_seconds()
    return min(max(left_s, 0.0), REMAINING_S_MAX)


def _repeated(steps: Sequence[Point]) -> tuple[int, int] | None:
    """Return the steps around the last change of the incarnation, if they go back."""
    changes = [
        (before, after)
        for before, after in pairwise(steps)
        if before.incarnation != after.incarnation and before.source == after.source
    ]
    if not changes:
        return None
    before, after = changes[-1]
    return (int(before.value), int(after.value)) if after.value < before.value else None


def rough_words(seconds: float) -> str:
    """Return a length of time in its largest unit: `12 s`, `21 min`, `5 h`, `3 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
