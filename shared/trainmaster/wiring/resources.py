"""The control plane of Google Cloud, in which the functions that accept jobs look up what a job names."""

from __future__ import annotations

from functools import cache

from trainmaster.gcp.resource_lookup import GOOGLE_ACCOUNTS, GoogleResources
from trainmaster.ports import Resources
from trainmaster.settings import settings


@cache
def resources() -> Resources:
    values = settings()
    accounts = "" if values.iam_accounts_endpoint == GOOGLE_ACCOUNTS else values.iam_accounts_endpoint
    return GoogleResources(values.project, accounts, values.secrets_endpoint, values.registry_endpoint)
