"""Cloud Billing's catalogue of list prices.

It needs no permission, only a project in which the Cloud Billing API is enabled, or an API key.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from google.api_core.client_options import ClientOptions
from google.cloud import billing_v1

from trainmaster.cost.sku import Sku, Tier, amount
from trainmaster.gcp import clients
from trainmaster.gcp.errors import google_errors
from trainmaster.gcp.retries import CALL

SERVICES: Final = {
    "Compute Engine": "6F81-5844-456A",
    "Cloud TPU": "E000-3F24-B8AA",
    "Cloud Storage": "95FF-2EF5-5EA1",
}
"""Services whose SKUs jobs use.

Chips from v5e on are SKUs of Compute Engine. Source: cloud.google.com/skus.
"""
PAGE_SIZE: Final = 5_000
"""The largest page of the API. Compute Engine has about 30,000 SKUs."""


class PriceCatalogue:
    """List prices of Google Cloud services.

    `endpoint`: one that needs no credentials, for tests; empty: Google's. `api_key`: used in place
    of the process's credentials; empty: they are used, with the quota of `project`.
    """

    def __init__(self, project: str, endpoint: str = "", api_key: str = "") -> None:
        self._client = _client(project, endpoint, api_key)

    def all_skus(self, currency: str) -> list[Sku]:
        """Return the SKUs of all services that jobs use. Raises what `skus` raises."""
        return [sku for service in SERVICES.values() for sku in self.skus(service, currency)]

    def skus(self, service: str, currency: str) -> Iterator[Sku]:
        """Yield all SKUs of a service, such as `6F81-5844-456A`. Lists page by page.

        Raises TemporaryError, or PermanentError for an unknown currency.
        """
        request = billing_v1.ListSkusRequest(
            parent=f"services/{service}", page_size=PAGE_SIZE, currency_code=currency
        )
        with google_errors("Cloud Billing"):
            for listed_sku in self._client.list_skus(request=request, **CALL):
                if listed_sku.pricing_info:
                    yield _sku(listed_sku)

    def close(self) -> None:
        self._client.transport.close()


def _client(project: str, endpoint: str, api_key: str) -> billing_v1.CloudCatalogClient:
    """Return a client with the API key, or with the credentials of the process."""
    if api_key and not endpoint:
        options = ClientOptions(api_key=api_key)
        return billing_v1.CloudCatalogClient(client_options=options, transport="rest")
    return clients.rest_client(
        billing_v1.CloudCatalogClient, endpoint, quota_project=project, transport="rest"
    )


def _sku(listed_sku: Any) -> Sku:
    """Return the effective price of a SKU, with its tiers: prices that depend on the amount used.

    All rates of a SKU have one currency.
    """
    # Without a time range, the catalogue returns the price that is effective now. Source:
    # ListSkusRequest.
    expression = listed_sku.pricing_info[-1].pricing_expression
    tiers: list[Tier] = []
    currencies: set[str] = set()
    for rate in expression.tiered_rates:
        price = amount(rate.unit_price.units, rate.unit_price.nanos)
        tiers.append(Tier(Decimal(str(rate.start_usage_amount)), price))
        currencies.add(rate.unit_price.currency_code)
    return Sku(
        sku_id=listed_sku.sku_id,
        description=listed_sku.description,
        family=listed_sku.category.resource_family,
        group=listed_sku.category.resource_group,
        usage_type=listed_sku.category.usage_type,
        regions=tuple(listed_sku.service_regions),
        unit=expression.usage_unit,
        currency=min(currencies, default=""),
        tiers=tuple(sorted(tiers, key=lambda tier: tier.start)),
    )
