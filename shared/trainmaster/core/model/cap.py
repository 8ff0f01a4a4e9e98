"""The cap of a job: the most that its machines may cost, and until when that pays for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import inf

from trainmaster.core.model.money import ZERO, Money
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.timeouts import (
    COST_CHECK_MIN_S,
    COST_CHECK_SHARE,
    COST_RESERVE_S,
    COST_SAVE_S,
    UNPAID_S,
)


@dataclass(frozen=True, slots=True)
class Rate:
    """The list price of one replica of a role per hour, bought in one of its ways."""

    candidate: int
    """Number of the place, a zone of one of the job's alternatives; 0 without alternatives."""
    task_type: TaskType
    bought: str
    """Kind of the price class."""
    per_hour: Decimal
    """In the currency of the cap."""


@dataclass(frozen=True, slots=True)
class Cap:
    """`trainmaster.maxCost`: what the job's machines may cost at list prices.

    All amounts are in the currency of the limit.
    """

    limit: Money
    per_hour: Decimal = ZERO
    """The most that all machines of the job can cost per hour; 0: prices are not known yet."""
    least_per_hour: Decimal = ZERO
    """The least that they can cost per hour: at the cheapest candidate and pricing."""
    rates: tuple[Rate, ...] = ()
    spent: Decimal = ZERO
    """The most that the job had cost when its cost was computed last. The rest of the limit pays
    for the time since.
    """
    computed_at: datetime | None = None
    """When that was; None: it never was."""

    def __str__(self) -> str:
        return str(self.limit)

    @property
    def longest_s(self) -> float:
        """The longest time, in seconds, that the rest of the limit can pay for: with the cheapest
        machines; infinite while prices are not known.
        """
        if not self.least_per_hour:
            return inf
        return float((self.limit.amount - self.spent) / self.least_per_hour * 3600)

    def paid_until(self, created_at: datetime) -> datetime | None:
        """Return until when the limit pays for all machines of the job, at their highest price, if
        the job's cost is not computed again; None: prices are not known.

        `created_at`: when the job was created.
        """
        if not self.per_hour:
            return None
        rest_s = float((self.limit.amount - self.spent) / self.per_hour * 3600)
        return (self.computed_at or created_at) + timedelta(seconds=rest_s - UNPAID_S)

    def is_reached(self, spent: Decimal, save_s: int = 0) -> bool:
        """Whether a job that has cost `spent` must end now, or in `save_s` seconds, to cost no more
        than the amount.
        """
        return spent + self.per_hour * (COST_RESERVE_S + save_s) / 3600 >= self.limit.amount

    def next_check_at(self, at: datetime, spent: Decimal) -> datetime:
        """Return when a job that has cost `spent` at `at` may reach the amount.

        Replacements of VMs are paid for beside the VMs before them, so a part of the time is left.
        """
        all_s = float((self.limit.amount - spent) / self.per_hour * 3600)
        left_s = all_s - COST_RESERVE_S - COST_SAVE_S
        return at + timedelta(seconds=max(COST_CHECK_SHARE * left_s, COST_CHECK_MIN_S))
