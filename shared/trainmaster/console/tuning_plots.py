"""Plots of a tuning job: the objective over trials, and parallel coordinates of the parameters."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.search_space import Parameter, ParameterKind, Scale
from trainmaster.core.model.tuning import Goal, Trial, Tuning

WIDTH: Final = 1000.0
"""Width of an image, in its units."""
HEIGHT: Final = 240.0
MARGIN: Final = 40.0
"""Distance of the plot from each edge of the image."""
_WITHOUT_VALUE_Y: Final = HEIGHT - 4
"""Below the axes: where the line of a trial without a value ends."""
_MARGIN_SHARE: Final = 0.1
"""Distance of a single value from each end of its axis, as a share of the value."""
SHADES: Final = 5
"""Classes of colour for the objective, from the worst (0) to the best (4)."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One trial."""

    x: float
    y: int
    state: str
    title: str
    number: int
    """Number of the trial."""


@dataclass(frozen=True, slots=True)
class ObjectivePlot:
    """One dot per measured trial, and the best value so far as a line."""

    dots: tuple[Dot, ...]
    best: str
    """Points of the line."""
    low: str
    """Label of the lower end of the axis."""
    high: str
    """Label of the upper end."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis of a parameter or of the objective."""

    name: str
    x: float
    top: str
    """Label of the upper end."""
    bottom: str
    """Label of the lower end."""


@dataclass(frozen=True, slots=True)
class TrialLine:
    """The line of one trial."""

    number: int
    """Number of the trial."""
    points: str
    """Points of the line."""
    shade: int | None
    """None: the trial has no value."""
    title: str


@dataclass(frozen=True, slots=True)
class ParallelCoordinates:
    """All axes and lines."""

    axes: tuple[Axis, ...]
    lines: tuple[TrialLine, ...]


def objective_plot(tuning: Tuning) -> ObjectivePlot | None:
    """Return the plot; None if no trial has a value."""
    values = _finite_values(tuning)
    if not values:
        return None
    shares = objective_positions(tuning)
    last_number = max(trial.number for trial in tuning.trials)
    distance = (WIDTH - 2 * MARGIN) / max(last_number - 1, 1)
    dots = tuple(
        Dot(
            x=round(MARGIN + distance * (trial.number - 1), 1),
            y=_y(shares[trial.number]),
            state=trial.state.lower(),
            title=trial_words(trial),
            number=trial.number,
        )
        for trial in tuning.trials
        if trial.number in shares
    )
    low, high = _ends(values.values())
    return ObjectivePlot(dots, _best_line(dots, tuning.goal), f"{low:g}", f"{high:g}")


def _best_line(dots: Sequence[Dot], goal: Goal) -> str:
    """Return the points of the best value so far as text of SVG: level up to each dot, then a step
    to its value if that is better.
    """
    better = min if goal is Goal.MAXIMIZE else max  # positions grow downwards
    best = dots[0].y
    points = []
    for dot in dots:
        points.append(f"{dot.x},{best}")
        best = better(best, dot.y)
        points.append(f"{dot.x},{best}")
    return " ".join(points[1:])  # the first dot is no step


def parallel_coordinates(tuning: Tuning) -> ParallelCoordinates:
    """Return an axis per parameter and one for the objective, and a line per trial.

    A trial without a value ends at the bottom of the last axis, and has no shade.
    """
    finite = _finite_values(tuning).values()
    low, high = _ends(finite)
    count = len(tuning.parameters)
    # Positions of the axes, one per parameter; the last one is that of the objective.
    xs = [
        round(MARGIN + (WIDTH - 2 * MARGIN) * index / max(count, 1), 1)
        for index in range(count + 1)
    ]
    axes = [
        Axis(parameter.name, left, _top(parameter), _bottom(parameter))
        for parameter, left in zip(tuning.parameters, xs, strict=False)
    ]
    axes.append(
        Axis(tuning.metric_tag, xs[-1], f"{high:g}" if finite else "", f"{low:g}" if finite else "")
    )
    lines = [_trial_line(trial, tuning, xs, low, high) for trial in tuning.trials]
    return ParallelCoordinates(tuple(axes), tuple(lines))


def objective_positions(tuning: Tuning) -> dict[int, float]:
    """Return the positions of the trials' values on the axis of the metric, from 0 to 1: trial
    number → position.
    """
    finite = _finite_values(tuning)
    low, high = _ends(finite.values())
    return {number: _share(value, low, high) for number, value in finite.items()}


def _finite_values(tuning: Tuning) -> dict[int, float]:
    values = {trial.number: trial.measurement.value for trial in tuning.trials if trial.measurement}
    return {number: value for number, value in values.items() if math.isfinite(value)}


def _ends(values: Collection[float]) -> tuple[float, float]:
    """Return the ends of an axis: the smallest and the largest value, or zeros if there is none.

    A single value gets ends around it, which have labels of their own.
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    margin = 0.0 if low < high else abs(low) * _MARGIN_SHARE or _MARGIN_SHARE
    return low - margin, high + margin


def trial_words(trial: Trial) -> str:
    """Return the trial in a few words, which a plot may repeat a thousand times.

    The table has its parameters.
    """
    if trial.latest and math.isfinite(trial.latest.value):
        return f"trial {trial.number}: {trial.latest.value:.4g}"
    return f"trial {trial.number} {trial.state}"


def _trial_line(
    trial: Trial, tuning: Tuning, xs: list[float], low: float, high: float
) -> TrialLine:
    points = [
        f"{left:g},{_y(position(parameter, value))}"
        for parameter, value, left in zip(tuning.parameters, trial.values, xs, strict=False)
    ]
    shade = None
    if trial.measurement is not None and math.isfinite(trial.measurement.value):
        share = _share(trial.measurement.value, low, high)
        points.append(f"{xs[-1]:g},{_y(share)}")
        goodness = share if tuning.goal is Goal.MAXIMIZE else 1 - share
        shade = min(int(goodness * SHADES), SHADES - 1)
    else:
        points.append(f"{xs[-1]:g},{_WITHOUT_VALUE_Y:.0f}")
    # The end of the line shows the value of the others.
    title = trial_words(trial) if shade is None else f"trial {trial.number}"
    return TrialLine(trial.number, " ".join(points), shade, title)


def position(parameter: Parameter, value: str) -> float:
    """Return the position of a value on its axis, from 0 (bottom) to 1 (top), on the parameter's
    scale.
    """
    if parameter.kind in (ParameterKind.CATEGORICAL, ParameterKind.DISCRETE):
        index = parameter.choices.index(value) if value in parameter.choices else 0
        return index / max(len(parameter.choices) - 1, 1)
    number = float(value)
    if parameter.scale is Scale.LOG and parameter.low > 0 and number > 0:
        return _share(math.log(number), math.log(parameter.low), math.log(parameter.high))
    if parameter.scale is Scale.REVERSE_LOG and parameter.low > 0:
        mirrored = parameter.high + parameter.low - number
        return 1 - _share(math.log(mirrored), math.log(parameter.low), math.log(parameter.high))
    return _share(number, parameter.low, parameter.high)


def _top(parameter: Parameter) -> str:
    return parameter.choices[-1] if parameter.choices else f"{parameter.high:g}"


def _bottom(parameter: Parameter) -> str:
    return parameter.choices[0] if parameter.choices else f"{parameter.low:g}"


def _share(value: float, low: float, high: float) -> float:
    """Return the position of a value between two ends, from 0 to 1; 0.5 if the ends are equal."""
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def _y(share: float) -> int:
    """Return the position in the image, which grows downwards."""
    return round(MARGIN + (HEIGHT - 2 * MARGIN) * (1 - share))
