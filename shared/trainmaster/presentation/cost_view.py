"""The cost of a job in words (commands, console) and as JSON (API, `--json`).

The lost work of a job is what its programs did between their last checkpoint and a failure. How
much that was can only be estimated, so its cost has two bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from trainmaster.core.reporting.phases import Phase
from trainmaster.cost.job_cost import JobCost
from trainmaster.cost.sku import Unknown


def money_words(amount: Decimal, currency: str, digits: int | None = None) -> str:
    """Return `1.20 USD`, or `0.0312 USD` below 1.

    An amount below the last digit is `less than 0.0001 USD`. `digits`: number of digits after the
    point; None: 4 below 1, otherwise 2.
    """
    if digits is None:
        digits = 4 if 0 < amount < 1 else 2
    smallest = Decimal(10) ** -digits
    if 0 < amount < smallest:
        return f"less than {smallest} {currency}"
    return f"{amount:.{digits}f} {currency}"


def cost_sentence(cost: JobCost | Unknown) -> str:
    """Return the cost in one line, or why it is not known."""
    if isinstance(cost, Unknown):
        return f"price not known: {cost.reason}"
    total = money_words(cost.total, cost.currency)
    sentence = f"{total} at list prices of {cost.priced_at:%Y-%m-%d}"
    lost = _lost_words(cost)
    return f"{sentence}, of which {lost}" if lost else sentence


def _lost_words(cost: JobCost) -> str:
    if not cost.lost_at_most:
        return ""
    most = money_words(cost.lost_at_most, cost.currency)
    if cost.lost_at_least == cost.lost_at_most:
        return f"{most} for lost work (estimate)"
    return f"{money_words(cost.lost_at_least, cost.currency)} to {most} for lost work (estimate)"


def cost_lines(cost: JobCost | Unknown) -> Iterator[str]:
    """Yield the total, and a line for each attempt."""
    yield f"cost: {cost_sentence(cost)}"
    if isinstance(cost, Unknown):
        return
    for attempt, phases in cost.by_attempt.items():
        shown = [
            f"{phase} {money_words(phases[phase], cost.currency)}"
            for phase in Phase
            if phases.get(phase)
        ]
        if shown:
            yield f"cost of attempt {attempt}: {', '.join(shown)}"


def cost_view(cost: JobCost | Unknown) -> dict[str, Any]:
    """Return amounts as decimal texts, so that no digit is lost.

    If they are not known, return only the reason.
    """
    if isinstance(cost, Unknown):
        return {"notKnown": cost.reason}
    attempts = []
    for attempt, amounts in cost.by_attempt.items():
        phases = {phase.value: _amount(amounts[phase]) for phase in Phase if phase in amounts}
        attempts.append({"attempt": attempt, "phases": phases})
    return {
        "amount": _amount(cost.total),
        "currency": cost.currency,
        "pricesOf": cost.priced_at.isoformat(),
        "attempts": attempts,
        "lostWork": {"atLeast": _amount(cost.lost_at_least), "atMost": _amount(cost.lost_at_most)},
    }


def _amount(amount: Decimal) -> str:
    return f"{amount:.6f}"
