"""The adapters of the functions that accept jobs: they also look up what a job names.

The functions `submit`, `upload` and `api` call `intake_deps` for each job file that they receive.
What only a part of the job files needs is imported at its first use.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.ports import Objects, Resources
from trainmaster.settings import settings
from trainmaster.wiring import core_services


def intake_deps() -> CreationDeps:
    """Return the ports and settings that the acceptance of a job uses."""
    return replace(
        core_services.creation_deps(), objects=_objects, resources=resources, prices=_prices
    )


def _objects() -> Objects:
    # The import takes a quarter of a second, which only calls that create jobs pay.
    from trainmaster.wiring.objects import objects

    return objects()


def _prices() -> PriceList | Unknown:
    """Return the price list, or why there is none: the estimate of a job's cost."""
    from trainmaster.wiring.price_list import price_list

    return price_list()


@cache
def resources() -> Resources:
    """Return the lookup of what jobs name: service accounts, images, secrets and the like."""
    from trainmaster.gcp.resource_lookup import GOOGLE_ACCOUNTS, GoogleResources

    values = settings()
    accounts = values.iam_accounts_endpoint
    if accounts == GOOGLE_ACCOUNTS:
        accounts = ""  # any other address is an emulator's, which gets no credentials
    return GoogleResources(
        values.project, accounts, values.secrets_endpoint, values.registry_endpoint
    )
