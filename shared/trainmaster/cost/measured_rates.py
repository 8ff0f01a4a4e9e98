"""Rates of interruptions, restarts and checkpoints, measured from a job's own history."""

from __future__ import annotations

import posixpath
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

from trainmaster.core.model.job import Job
from trainmaster.core.reporting.lost_work import Loss
from trainmaster.core.reporting.phases import PAID, Phase, Span
from trainmaster.ports import CreatedObject

HOUR_S: Final = 3600
SAME_CHECKPOINT_S: Final = 30.0
"""Time within which objects without a number in their names belong to one checkpoint."""
_NUMBER: Final = re.compile(r"[0-9]+")


class _Period(NamedTuple):
    """From an interruption until work goes on, or from the first object of a checkpoint to its last
    one.
    """

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Figures of one job. None: there is no data."""

    interruptions: int
    """Number of times that work stopped.

    A loss and the failures of peers that follow it are one interruption.
    """
    running_s: float
    """Time in which work was done: of the job, or the sum of its replicas if independent."""
    restart_s: float | None
    """Median time from an interruption until all lost replicas run again."""
    checkpoints: int
    checkpoint_s: float | None
    """Median time between two checkpoints of one incarnation."""
    save_s: float | None
    """Median time from the first object of a checkpoint to its last one.

    Saving takes at least that long.
    """
    spot_hours: float
    """Hours in which Spot VMs existed."""
    spot_losses: int
    """Spot VMs that were replaced."""

    @property
    def mean_time_between_s(self) -> float | None:
        """Mean time between two interruptions."""
        return self.running_s / self.interruptions if self.interruptions else None

    @property
    def spot_losses_per_hour(self) -> float | None:
        """Losses of one Spot VM per hour."""
        return self.spot_losses / self.spot_hours if self.spot_hours else None


def measure(
    job: Job,
    spans: Sequence[Span],
    losses: Sequence[Loss],
    checkpoints: Sequence[CreatedObject],
    now: datetime,
) -> MeasuredRates:
    """Return the rates.

    `spans`: the phases of all replicas. `losses`: the interruptions of single replicas.
    `checkpoints`: objects that may belong to checkpoints, in the order of their creation.
    """
    interruptions = [_Period(loss.at, loss.resumed_at or now) for loss in losses]
    if job.plan.restarts.independent:
        running_s = sum(span.seconds(now) for span in spans if span.phase is Phase.RUNNING)
    else:
        interruptions = _merged(interruptions)
        whole_s = 0.0
        if job.started_at is not None:
            whole_s = ((job.ended_at or now) - job.started_at).total_seconds()
        interrupted_s = sum(period.seconds for period in interruptions)
        running_s = max(whole_s - interrupted_s, 0.0)
    saves = _saves(
        [checkpoint for checkpoint in checkpoints if checkpoint.created_at >= job.created_at]
    )
    intervals = _intervals(saves, [period.start for period in interruptions])
    spot_s = sum(
        span.seconds(now) for span in spans if span.price.is_preemptible and span.phase in PAID
    )
    return MeasuredRates(
        interruptions=len(interruptions),
        running_s=running_s,
        restart_s=_median([period.seconds for period in interruptions]),
        checkpoints=len(saves),
        checkpoint_s=_median(intervals),
        save_s=_median([save.seconds for save in saves if save.end > save.start]),
        spot_hours=spot_s / HOUR_S,
        spot_losses=_spot_losses(spans),
    )


def _merged(interruptions: Iterable[_Period]) -> list[_Period]:
    """Return the interruptions with those that overlap joined: peers fail with a lost replica."""
    merged: list[_Period] = []
    for period in sorted(interruptions):
        last = merged[-1] if merged else None
        if last is not None and period.start <= last.end:
            merged[-1] = _Period(last.start, max(period.end, last.end))
        else:
            merged.append(period)
    return merged


def _saves(checkpoints: Sequence[CreatedObject]) -> list[_Period]:
    """Return when the objects of each checkpoint were created, in order.

    Most programs put the step or the epoch into the names: `ckpt-1000.index`, `epoch_3/model.pt`.
    Objects with the same numbered part are one checkpoint. Other objects are grouped by time
    (`SAME_CHECKPOINT_S`).
    """
    numbered: dict[str, list[datetime]] = {}
    others: list[datetime] = []
    folder = posixpath.commonpath(
        [posixpath.dirname(checkpoint.name) for checkpoint in checkpoints] or [""]
    )
    for checkpoint in checkpoints:
        stems = [part.partition(".")[0] for part in checkpoint.name[len(folder) :].split("/")]
        number = next((stem for stem in stems if _NUMBER.search(stem)), None)
        if number is None:
            others.append(checkpoint.created_at)
        else:
            numbered.setdefault(number, []).append(checkpoint.created_at)
    if sum(map(len, numbered.values())) > len(others):
        return sorted(_Period(min(times), max(times)) for times in numbered.values())
    saves: list[_Period] = []
    for at in others:
        last = saves[-1] if saves else None
        if last is not None and _Period(last.end, at).seconds <= SAME_CHECKPOINT_S:
            saves[-1] = _Period(last.start, at)
        else:
            saves.append(_Period(at, at))
    return saves


def _intervals(saves: Sequence[_Period], stops: Sequence[datetime]) -> list[float]:
    """Return the seconds between checkpoints, without those in which work was interrupted."""
    intervals: list[float] = []
    for saved_at, next_saved_at in pairwise(save.end for save in saves):
        if not any(saved_at < stop < next_saved_at for stop in stops):
            intervals.append((next_saved_at - saved_at).total_seconds())
    return intervals


def _spot_losses(spans: Iterable[Span]) -> int:
    """Return how many Spot VMs were replaced. `spans`: of each replica, in the order of time."""
    count = 0
    last: dict[object, Span] = {}
    for span in spans:
        previous = last.get(span.replica_id)
        was_spot = previous is not None and previous.price.is_preemptible
        if span.phase is Phase.REPLACING and was_spot:
            count += 1
        last[span.replica_id] = span
    return count


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
