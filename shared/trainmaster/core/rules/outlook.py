"""The order in which a pass requests the candidates of a job: by rank, after what is known about
capacity.

    outcomes of any job ─┬─► chance of each candidate ──► likely ones by rank, then chance
    advice of Google ────┘                            ──► then unlikely ones by chance
                                                      left out: those that failed a moment ago

A candidate is a zone, with the machines of one alternative of the job file; a pass is one request
to each candidate. The rank of a candidate is its place in the user's order, or by price.

An outcome counts less the older it is: the chance returns to 0.5, half of the way in
`CAPACITY_HALF_LIFE`. Advice counts more than an outcome, except for a recent stockout
(`ADVICE_DOUBTED`). No candidate is dropped because it is unlikely.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.model.capacity import Outcome, Prospect
from trainmaster.core.timeouts import ADVICE_DOUBTED, CAPACITY_FRESH, CAPACITY_HALF_LIFE

UNKNOWN: Final = 0.5
"""Chance of a candidate about which nothing is known."""
LIKELY_MIN: Final = 0.3
"""Chance from which a candidate is requested by rank.

A stockout leaves it below that for two hours. Prototypes with thresholds from 0.2 to 0.45 found
capacity as fast, within 6 %.
"""
ADVICE_WEIGHT: Final = 0.7
"""Weight of Google's advice, beside what the last outcome says with the rest."""
NO_ADVICE: Final[Mapping[tuple[str, str], float]] = {}

Keys = Sequence[Iterable[tuple[str, str]]]
"""Per candidate, the keys of the outcomes that decide about it: zone and kind of each role."""


def estimate_prospects(
    keys: Keys,
    outcomes: Iterable[Outcome],
    now: datetime,
    advice: Mapping[tuple[str, str], float] = NO_ADVICE,
) -> tuple[Prospect, ...]:
    """Return the prospect of each candidate at `now`. The least likely of its roles decides.

    `advice`: the chances that Google estimates, by zone and kind.
    """
    known = {outcome.key: outcome for outcome in outcomes}

    def prospect(of_candidate: Iterable[tuple[str, str]]) -> Prospect:
        roles = [
            (known.get(key), advice.get(key))
            for key in of_candidate
            if key in known or key in advice
        ]
        chance = min(
            (_chance(outcome, estimate, now) for outcome, estimate in roles), default=UNKNOWN
        )
        failed_at = max(
            (outcome.at for outcome, _ in roles if outcome and not outcome.is_created), default=None
        )
        return Prospect(round(chance, 3), failed_at)

    return tuple(map(prospect, keys))


def _chance(outcome: Outcome | None, advised: float | None, now: datetime) -> float:
    age = max(timedelta(), now - outcome.at) if outcome else timedelta()
    remembered = UNKNOWN
    if outcome:
        seen = 1.0 if outcome.is_created else 0.0
        remembered += (seen - UNKNOWN) * 0.5 ** (age / CAPACITY_HALF_LIFE)
    if advised is None:
        return remembered
    doubt = 0.5 ** (age / ADVICE_DOUBTED) if outcome and not outcome.is_created else 0.0
    weight = (1 - doubt) * ADVICE_WEIGHT
    return weight * advised + (1 - weight) * remembered


def in_order(
    prospects: Sequence[Prospect], ranks: Sequence[int], begins_at: datetime
) -> tuple[int, ...]:
    """Return the candidates of a pass that begins at this time, in the order of their requests.

    Without those that failed for any job a moment before: they would fail again. Empty if all did.
    """
    eligible = [
        number for number, prospect in enumerate(prospects) if not is_fresh(prospect, begins_at)
    ]
    likely = [number for number in eligible if prospects[number].chance >= LIKELY_MIN]
    likely.sort(key=lambda number: (ranks[number], -prospects[number].chance))
    unlikely = [number for number in eligible if prospects[number].chance < LIKELY_MIN]
    unlikely.sort(key=lambda number: -prospects[number].chance)
    return (*likely, *unlikely)


def is_fresh(prospect: Prospect, at: datetime) -> bool:
    """Whether the candidate's latest failure is too recent for another request."""
    return prospect.failed_at is not None and at - prospect.failed_at < CAPACITY_FRESH
