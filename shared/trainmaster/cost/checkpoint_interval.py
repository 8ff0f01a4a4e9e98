"""The checkpoint interval with the least waste of time, after Young (1974) and Daly (2006).

waste = save / interval + (interval / 2 + restart) / time between interruptions
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

Z: Final = 1.2816
"""Width of the limits in standard deviations: 80 % of all true numbers are within them."""

_EVENTS_MIN: Final = 0.05
"""Smallest expected number of interruptions: callers divide by it."""


@dataclass(frozen=True, slots=True)
class IntervalAdvice:
    """The checkpoint interval that wastes least time, and its limits, in seconds."""

    interval_s: float
    """Daly's optimum."""
    shortest_s: float
    """The optimum if interruptions are as frequent as they may be.

    A few observed interruptions leave their rate uncertain.
    """
    longest_s: float
    """The optimum if interruptions are as rare as they may be."""


def advise_interval(save_s: float, running_s: float, interruptions: int) -> IntervalAdvice:
    """Return the best interval.

    `save_s`: seconds that one save takes, more than 0. `running_s`: seconds of work in which the
    interruptions, at least one, were seen.
    """
    rarest, most_frequent = poisson_limits(interruptions)
    return IntervalAdvice(
        interval_s=daly_interval(save_s, running_s / interruptions),
        shortest_s=daly_interval(save_s, running_s / most_frequent),
        longest_s=daly_interval(save_s, running_s / rarest),
    )


def young_interval(save_s: float, between_s: float) -> float:
    """Return the first-order optimum of the interval, in seconds.

    `save_s`: seconds that one save takes. `between_s`: mean seconds between two interruptions.
    """
    return math.sqrt(2 * save_s * between_s)


def daly_interval(save_s: float, between_s: float) -> float:
    """Return the higher-order optimum: Young's, corrected for saves that take a long time.

    Parameters and unit are those of `young_interval`. Source: Daly (2006), equation 37.
    """
    if save_s >= 2 * between_s:
        return between_s
    ratio = save_s / (2 * between_s)
    return young_interval(save_s, between_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def waste(interval_s: float, save_s: float, between_s: float, restart_s: float) -> float:
    """Return the share of the time that checkpoints, lost work and restarts take; at most 1.

    All times are seconds. `restart_s`: from an interruption until work goes on.
    """
    saving = save_s / (interval_s + save_s)
    interrupted = (interval_s / 2 + restart_s) / between_s
    return min(saving + interrupted, 1.0)


def poisson_limits(count: int) -> tuple[float, float]:
    """Return the lower and the upper limit of the expected number of events, if `count` events,
    at least one, were seen. Source: the approximation of Wilson and Hilferty (1931).
    """
    following = count + 1
    low = count * (1 - 1 / (9 * count) - Z / (3 * math.sqrt(count))) ** 3
    high = following * (1 - 1 / (9 * following) + Z / (3 * math.sqrt(following))) ** 3
    return max(low, _EVENTS_MIN), high
