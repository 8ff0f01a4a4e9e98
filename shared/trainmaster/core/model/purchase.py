"""How the VMs of a role are bought: at which price, and whether their request waits in a queue.

    OnDemand            the list price
    Spot(losses_max)    a lower price; Google may take the VM away at any time
    Reserved(name)      capacity that is already paid for
    FlexStart           a price of its own, for a bounded time

A price class answers every question whose answer depends on how a VM is bought. A new way to buy
capacity is a class here, its word in `QUEUED_PRICES`, and its request in the module
`purchase_requests` of the fleet that sells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Literal

FLEX_START_S_MAX: Final = 7 * 24 * 3600
"""Longest time that a flex-start slice may run. Source: "Request Cloud TPUs using Flex-start"."""


class Pricing(StrEnum):
    """A column of Google's price list."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class _PriceClass:
    """The answers that hold for most ways to buy a VM."""

    __slots__ = ()

    label: ClassVar[str] = ""
    """Short name in tables of what is sold."""
    sold: ClassVar[str] = ""
    """How machines are sold in this way, as the end of a sentence: `as Spot VMs`."""
    prefix: ClassVar[str] = ""
    """Word before the machine in kinds of VMs: `Spot n1-standard-4`; empty: none."""
    pricing: ClassVar[Pricing] = Pricing.ON_DEMAND
    """Column of the price list; without meaning if the class is `unpriced`."""
    quota_prefix: ClassVar[str] = ""
    """First part of the name of the quota of its GPUs."""
    is_preemptible: ClassVar[bool] = False
    """Whether Google may take the VM away at any time. Then it cannot migrate either."""
    has_advice: ClassVar[bool] = False
    """Whether Compute Engine estimates the capacity for it (`advice.capacity`)."""
    not_for_vms: ClassVar[str] = ""
    """Why the VMs of jobs cannot be bought so, only TPU slices; empty: they can."""
    run_s_max: ClassVar[int | None] = None
    """Longest time that a machine may run, in seconds; None: no limit of its own."""

    @property
    def unpriced(self) -> str:
        """Why the price list has no price for it; empty: it has one."""
        return ""


@dataclass(frozen=True, slots=True)
class OnDemand(_PriceClass):
    """The list price, as long as the VM exists."""

    label: ClassVar[str] = "on demand"
    sold: ClassVar[str] = "on demand"

    kind: Literal["on_demand"] = "on_demand"


@dataclass(frozen=True, slots=True)
class Reserved(_PriceClass):
    """Capacity of a reservation, which is paid for whether or not it is used."""

    label: ClassVar[str] = "reservation"
    sold: ClassVar[str] = "from a reservation"

    name: str
    """Name of the reservation."""
    kind: Literal["reserved"] = "reserved"

    @property
    def unpriced(self) -> str:
        return (
            f"the job uses the reservation {self.name}, which is paid for whether or not it is used"
        )


@dataclass(frozen=True, slots=True)
class Spot(_PriceClass):
    """A Spot VM, which Google may take away at any time."""

    label: ClassVar[str] = "Spot"
    sold: ClassVar[str] = "as Spot VMs"
    prefix: ClassVar[str] = "Spot"
    pricing: ClassVar[Pricing] = Pricing.SPOT
    quota_prefix: ClassVar[str] = "PREEMPTIBLE_"
    is_preemptible: ClassVar[bool] = True
    has_advice: ClassVar[bool] = True

    losses_max: int | None = None
    """Number of Spot VMs that a replica may lose before its next VM is bought as `then` says; None:
    any number.
    """
    then: OnDemand | Reserved = field(default_factory=OnDemand)
    kind: Literal["spot"] = "spot"


@dataclass(frozen=True, slots=True)
class FlexStart(_PriceClass):
    """A TPU slice for a bounded time, at its own price, from Cloud TPU's queue."""

    not_for_vms: ClassVar[str] = (
        "Compute Engine offers flex-start for VMs that are created one by one, or by a managed"
        " instance group, and not for those of a job, which are created together under fixed names"
    )
    run_s_max: ClassVar[int | None] = FLEX_START_S_MAX

    kind: Literal["flex_start"] = "flex_start"

    @property
    def unpriced(self) -> str:
        return "flex-start slices have a price of their own, which the price list does not have"


PriceClass = OnDemand | Reserved | Spot | FlexStart
QUEUED_PRICES: Final[Mapping[str, PriceClass]] = {"FLEX_START": FlexStart()}
"""Name of a queue, which the job file's `queue` or the format's own field names → what it sells."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """How the VMs of a role are bought."""

    price: PriceClass = field(default_factory=OnDemand)
    """Price class of the first VM of each replica."""
    is_queued: bool = False
    """Whether Cloud TPU queues the request for a slice until it has capacity; False: it creates the
    slice at once or refuses it.
    """

    def price_after(self, vms_lost: int) -> PriceClass:
        """Return the price class of a replica's next VM after it has lost `vms_lost` VMs."""
        price = self.price
        if not isinstance(price, Spot) or price.losses_max is None:
            return price
        return price if vms_lost < price.losses_max else price.then

    @property
    def prices(self) -> tuple[PriceClass, ...]:
        """The price classes that a replica may get, in this order."""
        if isinstance(self.price, Spot) and self.price.losses_max is not None:
            return self.price, self.price.then
        return (self.price,)
