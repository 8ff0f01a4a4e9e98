"""Sources of costs that only the command line reads: Cloud Billing's catalogue, and the directories of jobs."""

from __future__ import annotations

from functools import cache

from trainmaster.cost.checkpoint_times import CheckpointTimes
from trainmaster.gcp import clients
from trainmaster.gcp.storage_objects import StorageObjects
from trainmaster.gcp.tools.price_catalogue import PriceCatalogue
from trainmaster.settings import settings


@cache
def checkpoint_times() -> CheckpointTimes:
    return CheckpointTimes(cache(lambda: StorageObjects(clients.storage_client())))


def price_catalogue(api_key: str = "") -> PriceCatalogue:
    return PriceCatalogue(settings().billing_endpoint, api_key)
