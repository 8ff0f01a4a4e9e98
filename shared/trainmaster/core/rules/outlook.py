"""The order in which a pass requests the candidates of a job: by rank, after what is known about capacity.

    outcomes of any job ──► chance of each candidate ──► likely ones by rank, then chance ──► unlikely ones by chance
                                                         left out: those that failed a moment ago

An outcome says less the older it is: the chance returns to 0.5, half of the way in `CAPACITY_HALF_LIFE`. No candidate
is dropped because it is unlikely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from trainmaster.core.model.capacity import Outcome, Prospect
from trainmaster.core.timeouts import CAPACITY_FRESH, CAPACITY_HALF_LIFE

UNKNOWN: Final = 0.5
"""Chance of a candidate about which nothing is known."""
LIKELY_MIN: Final = 0.3
"""Chance from which a candidate is requested by rank. A stockout leaves it below that for two hours. Prototypes with
thresholds from 0.2 to 0.45 found capacity as fast, within 6 %."""

Keys = Sequence[Iterable[tuple[str, str]]]
"""Per candidate, the keys of the outcomes that decide about it: zone and kind of each role."""


def look_out(keys: Keys, outcomes: Iterable[Outcome], now: datetime) -> tuple[Prospect, ...]:
    """Return the prospect of each candidate at `now`. The least likely of its roles decides."""
    known = {outcome.key: outcome for outcome in outcomes}
    return tuple(_prospect([known[key] for key in of_candidate if key in known], now) for of_candidate in keys)


def _prospect(outcomes: Sequence[Outcome], now: datetime) -> Prospect:
    chance = min((_chance(outcome, now) for outcome in outcomes), default=UNKNOWN)
    failed_at = max((outcome.at for outcome in outcomes if not outcome.is_created), default=None)
    return Prospect(round(chance, 3), failed_at)


def _chance(outcome: Outcome, now: datetime) -> float:
    weight: float = 0.5 ** (max(0.0, (now - outcome.at).total_seconds()) / CAPACITY_HALF_LIFE.total_seconds())
    return UNKNOWN + (outcome.is_created - UNKNOWN) * weight


def in_order(prospects: Sequence[Prospect], ranks: Sequence[int], begins_at: datetime) -> tuple[int, ...]:
    """Return the candidates of a pass that begins at this time, in the order of their requests.

    Without those that failed for any job a moment before: they would fail again. Empty if all did.
    """
    eligible = [number for number, prospect in enumerate(prospects) if not is_fresh(prospect, begins_at)]
    likely = [number for number in eligible if prospects[number].chance >= LIKELY_MIN]
    likely.sort(key=lambda number: (ranks[number], -prospects[number].chance))
    unlikely = [number for number in eligible if prospects[number].chance < LIKELY_MIN]
    unlikely.sort(key=lambda number: -prospects[number].chance)
    return (*likely, *unlikely)


def is_fresh(prospect: Prospect, at: datetime) -> bool:
    """Whether the candidate's latest failure is too recent for another request."""
    return prospect.failed_at is not None and at - prospect.failed_at < CAPACITY_FRESH
