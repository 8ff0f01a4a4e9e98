"""Ranges on the axes of the parallel coordinates: only trials within all of them are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trainmaster.console.tuning_plots import objective_positions, position
from trainmaster.core.model.tuning import Trial, Tuning
from trainmaster.errors import PermanentError


@dataclass(frozen=True, slots=True)
class Brush:
    """A range of one axis. 0 is its lower end, 1 its upper one, on the scale of the axis."""

    axis: str
    """Name of a parameter or of the metric."""
    low: float
    high: float

    @property
    def text(self) -> str:
        """The range as it stands in an address."""
        return f"{self.axis}~{self.low:g}~{self.high:g}"

    @property
    def words(self) -> str:
        return f"{self.axis}: {self.low:.0%} to {self.high:.0%} of its axis"


def read_brushes(texts: Iterable[str], tuning: Tuning) -> tuple[Brush, ...]:
    """Parse `AXIS~LOW~HIGH`.

    Raises PermanentError for another form, or an axis that the plot does not have.
    """
    return tuple(_read_brush(text, tuning) for text in texts)


def _read_brush(text: str, tuning: Tuning) -> Brush:
    axis, *shares = text.rsplit("~", 2)
    try:
        low, high = (float(share) for share in shares)
    except ValueError:
        low = high = math.nan
    if not 0 <= low <= high <= 1:
        raise PermanentError(
            "brush: must be AXIS~LOW~HIGH with 0 <= LOW <= HIGH <= 1, such as layers~0.2~0.8"
        )
    names = [parameter.name for parameter in tuning.parameters] + [tuning.metric_tag]
    if axis not in names:
        raise PermanentError(f"brush: {axis} is not an axis; the axes are {', '.join(names)}")
    return Brush(axis, low, high)


def selected_trials(tuning: Tuning, brushes: Iterable[Brush]) -> frozenset[int]:
    """Return the numbers of the trials within all ranges.

    A trial without a value is in no range of the metric.
    """
    brushes = tuple(brushes)
    objective = objective_positions(tuning)
    return frozenset(
        trial.number
        for trial in tuning.trials
        if all(_is_in(brush, trial, tuning, objective.get(trial.number)) for brush in brushes)
    )


def _is_in(brush: Brush, trial: Trial, tuning: Tuning, objective: float | None) -> bool:
    """Return whether a trial is within a range. `objective`: its position on the metric's axis."""
    share = objective if brush.axis == tuning.metric_tag else None
    for parameter, value in zip(tuning.parameters, trial.values, strict=False):
        if parameter.name == brush.axis:
            share = position(parameter, value)
    return share is not None and brush.low <= share <= brush.high
