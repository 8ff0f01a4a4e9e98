"""Sources of costs that only the command line reads: Cloud Billing's catalogue, and the directories
of jobs.
"""

from __future__ import annotations

from functools import cache

from trainmaster.cost.checkpoint_times import CheckpointTimes
from trainmaster.gcp.retries import OPTIONAL_READ_S
from trainmaster.gcp.tools.price_catalogue import PriceCatalogue
from trainmaster.settings import settings
from trainmaster.wiring.objects import objects


@cache
def checkpoint_times() -> CheckpointTimes:
    """Return when jobs wrote checkpoints, as the objects in their directories show."""
    return CheckpointTimes(lambda: objects(OPTIONAL_READ_S))


def price_catalogue(api_key: str = "") -> PriceCatalogue:
    """Return the list prices of Google Cloud. `api_key`: used in place of the credentials; empty:
    none.
    """
    return PriceCatalogue(settings().project, settings().billing_endpoint, api_key)
