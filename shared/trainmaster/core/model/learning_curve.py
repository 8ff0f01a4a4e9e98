"""Measurements of trials while they run.

    reported by the program ──► merge_measurements ──► Trial.reported
                            ──► Suggester.find_unpromising ──► stopped

A curve is a trial's measurements by step. It is thinned out, so that one document can hold a
thousand trials with their curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.tuning import Measurement, Trial, Tuning

CURVES_BYTES_MAX: Final = 200_000
"""Size of all stored curves of a tuning job.

The whole document, with the trials and their plan, may have 1 MiB.
"""
POINT_BYTES: Final = 27
"""Size of one stored point: two names of fields with their values.

Source: Firestore, storage size calculations.
"""
POINTS_MAX: Final = 50
"""Points of one curve, whatever the number of trials.

A chart of a few hundred pixels shows no more.
"""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """The latest measurements of a running trial, in the order in which its program
    reported them.
    """

    number: int
    """Number of the trial."""
    measurements: tuple[Measurement, ...]


def points_max(max_trials: int) -> int:
    """Return the number of points of each curve, so that the curves of `max_trials` trials can be
    stored.
    """
    return min(POINTS_MAX, CURVES_BYTES_MAX // (POINT_BYTES * max(max_trials, 1)))


def merge_measurements(
    known: Sequence[Measurement], reported: Sequence[Measurement], limit: int
) -> tuple[Measurement, ...]:
    """Return the curve after another report, thinned out to at most `limit` points.

    `reported` are the program's latest measurements, in its own order. If two are for the same
    step, the later one counts. A program that continues from a checkpoint returns to an earlier
    step: measurements beyond that step are dropped. A repeated report changes nothing, even after
    the curve was thinned out.
    """
    if not reported:
        return tuple(known)
    last = reported[-1]
    if known and known[-1].step == last.step:
        return (*known[:-1], last)
    kept = [point for point in known if point.step < last.step]
    first = kept[-1].step + 1 if kept else 0
    added = {point.step: point for point in reported if first <= point.step <= last.step}
    return _thin_out([*kept, *(added[step] for step in sorted(added))], limit)


def curve_after(
    tuning: Tuning, trial: Trial, measurements: tuple[Measurement, ...]
) -> tuple[Measurement, ...]:
    """Return the trial's curve after these measurements."""
    return merge_measurements(trial.reported, measurements, points_max(tuning.max_trials))


def _thin_out(points: Sequence[Measurement], limit: int) -> tuple[Measurement, ...]:
    """Drop, one after the other, the inner point with the closest neighbours.

    The first and the last point stay.
    """
    kept = list(points)
    while len(kept) > max(limit, 2):
        inner = range(1, len(kept) - 1)
        del kept[min(inner, key=lambda index: kept[index + 1].step - kept[index - 1].step)]
    return tuple(kept)


def best_until(points: Sequence[Measurement], step: int, *, maximize: bool) -> float | None:
    """Return the best value up to a step; None if there is no point."""
    values = [point.value for point in points if point.step <= step]
    return (max if maximize else min)(values) if values else None


def mean_until(points: Sequence[Measurement], step: int) -> float | None:
    """Return the mean value up to a step; None if there is no point."""
    values = [point.value for point in points if point.step <= step]
    return sum(values) / len(values) if values else None
