"""Rates of interruptions, restarts and checkpoints, measured from a job's own history."""

from __future__ import annotations

import posixpath
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.reporting.lost_work import Loss
from trainmaster.core.reporting.phases import PAID, Phase, Span
from trainmaster.ports import CreatedObject

SAME_CHECKPOINT_S: Final = 30.0
"""Time within which objects without a number in their names belong to one checkpoint."""
_NUMBER: Final = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Figures of one job. None: there is no data."""

    interruptions: int
    """How often work stopped.

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

    `checkpoints`: objects that may belong to checkpoints, in the order of their creation.
    """
    incidents = [(loss.at, loss.resumed_at or now) for loss in losses]
    if job.plan.restarts.independent:
        running_s = sum(span.seconds(now) for span in spans if span.phase is Phase.RUNNING)
    else:
        incidents = _merged(incidents)
        whole_s = 0.0
        if job.started_at is not None:
            whole_s = ((job.ended_at or now) - job.started_at).total_seconds()
        interrupted_s = sum((end - start).total_seconds() for start, end in incidents)
        running_s = max(whole_s - interrupted_s, 0.0)
    moments = _moments(
        [checkpoint for checkpoint in checkpoints if checkpoint.created_at >= job.created_at]
    )
    spreads = [(end - start).total_seconds() for start, end in moments if end > start]
    intervals = _intervals(moments, [start for start, _ in incidents])
    spot_s = sum(
        span.seconds(now) for span in spans if span.price.is_preemptible and span.phase in PAID
    )
    return MeasuredRates(
        interruptions=len(incidents),
        running_s=running_s,
        restart_s=_median([(end - start).total_seconds() for start, end in incidents]),
        checkpoints=len(moments),
        checkpoint_s=_median(intervals),
        save_s=_median(spreads),
        spot_hours=spot_s / 3600,
        spot_losses=_spot_losses(spans),
    )


def _merged(incidents: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return the incidents with those that overlap joined: peers fail with a lost replica."""
    merged: list[tuple[datetime, datetime]] = []
    for start, end in sorted(incidents):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _moments(checkpoints: Sequence[CreatedObject]) -> list[tuple[datetime, datetime]]:
    """Return the first and last time of each checkpoint, in order.

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
        return sorted((min(times), max(times)) for times in numbered.values())
    moments: list[tuple[datetime, datetime]] = []
    for at in others:
        if moments and (at - moments[-1][1]).total_seconds() <= SAME_CHECKPOINT_S:
            moments[-1] = (moments[-1][0], at)
        else:
            moments.append((at, at))
    return moments


def _intervals(
    moments: Sequence[tuple[datetime, datetime]], stops: Sequence[datetime]
) -> list[float]:
    """Return the times between checkpoints, without those in which work was interrupted."""
    intervals: list[float] = []
    for saved_at, next_saved_at in pairwise(end for _, end in moments):
        if not any(saved_at < stop < next_saved_at for stop in stops):
            intervals.append((next_saved_at - saved_at).total_seconds())
    return intervals


def _spot_losses(spans: Iterable[Span]) -> int:
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
