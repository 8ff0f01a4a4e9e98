"""Machines that wait for a next job, as users see them."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.cost.machine_price import machine_price
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown


def kept_machine_words(machines: MachineSet) -> str:
    """Return `2 x n1-standard-4` for each machine type, whatever the roles of its machines were."""
    counts: Counter[str] = Counter()
    for group in machines.groups:
        counts[group.machine_type] += group.count
    return ", ".join(f"{count} x {machine_type}" for machine_type, count in counts.items())


def submitter_of(machines: MachineSet) -> str:
    """Return the user whose jobs may take the machines; empty: unknown."""
    submitters = [item.value for item in machines.fit if item.name == "the submitter"]
    return submitters[0] if submitters else ""


def kept_price(machines: MachineSet, holder: Job, prices: PriceList | Unknown) -> Decimal | None:
    """Return the list price of the machines per hour; None: it is not known."""
    if isinstance(prices, Unknown):
        return None
    total = Decimal(0)
    for group in machines.groups:
        price = machine_price(holder.placed.plan, group, prices, at=group.purchase.price)
        if isinstance(price, Unknown):
            return None
        total += price * group.count
    return total
