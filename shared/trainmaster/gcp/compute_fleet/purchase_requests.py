"""The fields of a request for VMs that set how they are bought, for all price classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.core.machines.machine_types import family_of
from trainmaster.core.model.purchase import OnDemand, PriceClass, Reserved, Spot

PREEMPTION_NOTICE_S: Final = 120
"""Time between the preemption notice in the metadata and the shutdown.

Without it, only the 30 s of the shutdown are left. Source: "Create and use Spot VMs",
preemptionNoticeDuration; no other value is allowed.
"""


@dataclass(frozen=True, slots=True)
class PurchaseRequest:
    """The fields of a bulk insert that depend on how its VMs are bought."""

    provisioning_model: str
    notice_s: int | None = None
    """Time between the preemption notice and the shutdown, in seconds; None: no notice."""
    reservation: str | None = None
    """Name of the reservation to use; None: none."""


def purchase_request(price: PriceClass, machine_type: str) -> PurchaseRequest:
    """Return what the request of these VMs says. Raises ValueError if VMs are not sold so."""
    match price:
        case OnDemand():
            return PurchaseRequest("STANDARD")
        case Spot():
            return PurchaseRequest("SPOT", notice_s=PREEMPTION_NOTICE_S)
        case Reserved():
            is_bound = family_of(machine_type).is_reservation_bound
            model = "RESERVATION_BOUND" if is_bound else "STANDARD"
            return PurchaseRequest(model, reservation=price.name)
        case _:
            raise ValueError(f"Compute Engine does not sell VMs of jobs as {price.kind}")
