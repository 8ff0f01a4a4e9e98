"""The fields of a request for a TPU slice that set how it is bought, for a node and for a queued
resource.

A price class of the API v2alpha1, which no client library has, is added to the request as JSON.
"""

from __future__ import annotations

from google.cloud import tpu_v2

from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import FLEX_START_S_MAX, FlexStart, PriceClass, Reserved, Spot
from trainmaster.core.timeouts import FUSE_SLACK_S
from trainmaster.gcp.rest_api import Json


def node_scheduling(price: PriceClass) -> tpu_v2.SchedulingConfig:
    """Return the scheduling options of a node.

    A TPU reservation is matched by zone and type, not by name.
    """
    return tpu_v2.SchedulingConfig(
        spot=isinstance(price, Spot), reserved=isinstance(price, Reserved)
    )


def add_purchase(queued: tpu_v2.QueuedResource, price: PriceClass, parent: str) -> None:
    """Add to the queued resource how its node is bought."""
    match price:
        case Spot():
            queued.spot = tpu_v2.QueuedResource.Spot()
        case Reserved():
            queued.reservation_name = _reservation(price.name, parent)
        case _:
            pass


def alpha_fields(price: PriceClass, plan: Plan) -> Json | None:
    """Return the fields that the API v2alpha1 has for the price class; None: v2 has all it needs.

    A slice for a bounded time runs as long as the job may run, plus the time to start.
    """
    if not isinstance(price, FlexStart):
        return None
    run_s = min(plan.limits.max_running_s + FUSE_SLACK_S, FLEX_START_S_MAX)
    return {
        "provisioningModel": "FLEX_START",
        "runDuration": {"maxRunDuration": f"{run_s}s"},
    }


def _reservation(name: str, parent: str) -> str:
    """Return the full name of a reservation, in the zone of `parent`.

    `name`: `projects/P/reservations/NAME`, or the name alone if the project is that of `parent`.
    Source: QueuedResource.reservation_name.
    """
    _, project, _, zone = parent.split("/")
    if name.startswith("projects/"):
        _, project, _, name = name.split("/")
    return f"projects/{project}/locations/{zone}/reservations/{name}"
