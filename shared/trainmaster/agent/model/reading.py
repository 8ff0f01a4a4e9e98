"""How far a program is, as one source shows it, within limits that hostile programs cannot exceed.

A source is what the program reports, what it prints, or its summary events; `progress/collector.py`
chooses the best one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.agent.model.results import STEP_MAX

NAME_CHARS_MAX = 100
"""How much of a metric's name is kept."""
METRICS_MAX = 8
"""How many metrics of one reading are kept, the first ones."""


@dataclass(frozen=True)
class Reading:
    """The values that one source reports. Unknown values are None or missing."""

    share: float | None = None
    """Part of the work that is done, from 0 to 1."""
    step: int | None = None
    """Steps that are done."""
    steps: int | None = None
    """Number of steps in all, at least `step`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Finite values by their clean names."""
    epoch: int | None = None
    """The last epoch that was named."""
    epochs: int | None = None
    """Number of epochs in all."""
    counts_from_zero: bool = field(default=False, compare=False)
    """Whether an epoch 0 was named, so that epoch 4 is the fifth one.

    It is not compared, because it is no progress: it changes when the line of epoch 0 is no longer
    part of the end of the output.
    """
    not_finite: tuple[str, ...] = ()
    """Clean names of the metrics whose last value is NaN or infinite."""

    @property
    def has_position(self) -> bool:
        """Whether it says how much of the work is done."""
        return self.share is not None or self.step is not None

    @property
    def has_metrics(self) -> bool:
        return bool(self.metrics or self.not_finite)

    @staticmethod
    def of_steps(
        step: Any, steps: Any, metrics: Iterable[tuple[Any, Any]], share: Any = None
    ) -> Reading:
        """Return a reading from untrusted values: each one that makes no sense is left out.

        The share is `step` ÷ `steps` where both are known, otherwise `share`.
        """
        done = _whole(step)
        total = _whole(steps)
        if done is None or (total is not None and total < max(done, 1)):
            total = None
        if done is not None and total is not None:
            part: float | None = done / total
        else:
            part = finite(share)
            if part is not None and not 0 <= part <= 1:
                part = None
        named = list(metrics)
        return Reading(
            part, done, total, clean_metrics(named), not_finite=tuple(_not_finite_names(named))
        )


def finite(value: Any) -> float | None:
    """Return the number that a value is or spells; None if it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def clean_metrics(metrics: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """Return the first `METRICS_MAX` metrics that have a printable name and a finite value."""
    clean: dict[str, float] = {}
    for name, value in metrics:
        number = finite(value)
        if number is None:
            continue
        text = _clean_name(name)
        has_room = text in clean or len(clean) < METRICS_MAX
        if text and has_room:
            clean[text] = number
    return clean


def _not_finite_names(metrics: Iterable[tuple[Any, Any]]) -> list[str]:
    """Return the first `METRICS_MAX` printable names whose value is NaN or infinite."""
    names: dict[str, None] = {}
    for name, value in metrics:
        text = _clean_name(name)
        if text and _is_not_finite(value):
            names[text] = None
    return list(names)[:METRICS_MAX]


def _is_not_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (float, str)):
        return False
    try:
        return not math.isfinite(float(value))
    except ValueError:
        return False


def _clean_name(name: Any) -> str:
    """Return the name in one line; empty if it cannot be printed."""
    text = " ".join(str(name)[:NAME_CHARS_MAX].split())
    return text if text.isprintable() else ""


def _whole(value: Any) -> int | None:
    """Return the number of steps that a value is or spells; None if it makes no sense."""
    number = finite(value)
    if number is None or not 0 <= number <= STEP_MAX:
        return None
    return int(number)
