"""How far a program was when it ended, as the program reported it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastMetric:
    """The last value of a metric that the program reported or printed; it is finite."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class LastProgress:
    """The progress that the agent of the primary knew after the program's exit.

    The program chose these values, so they are shown, and no state depends on them. None: unknown.
    """

    share: float | None = None
    """Part of the work that was done, from 0 to 1."""
    step: int | None = None
    steps: int | None = None
    """Number of steps in all."""
    epoch: int | None = None
    """The last epoch that the program named, counted from 1."""
    epochs: int | None = None
    """Number of epochs in all."""
    metrics: tuple[LastMetric, ...] = ()
    not_finite: tuple[str, ...] = ()
    """Names of the metrics whose last value is NaN or infinite."""
