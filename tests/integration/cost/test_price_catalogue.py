"""Google's client of the catalogue, against the emulator: pages, tiers, errors."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from werkzeug.test import Client

from tests.support.serving import serving
from tests.unit.cost.price_lists import emulated_skus
from trainmaster.cost.sku import Sku
from trainmaster.errors import PermanentError
from trainmaster.gcp import clients
from trainmaster.gcp.tools.price_catalogue import SERVICES, PriceCatalogue
from trainmaster_emulators.billing.server import BillingServer
from trainmaster_emulators.rest.server import listen

COMPUTE = SERVICES["Compute Engine"]


@pytest.fixture
def server() -> BillingServer:
    return BillingServer(page_max=50)


@pytest.fixture
def catalogue(server: BillingServer) -> Iterator[PriceCatalogue]:
    with serving(listen("127.0.0.1", 0, server)) as address:
        opened = PriceCatalogue("my-project", address)
        yield opened
        opened.close()


def by_id(skus: tuple[Sku, ...]) -> dict[str, Sku]:
    return {sku.sku_id: sku for sku in skus}


def test_all_pages_of_all_services_are_read_as_they_are(
    server: BillingServer, catalogue: PriceCatalogue
) -> None:
    read = tuple(sku for service in SERVICES.values() for sku in catalogue.skus(service, "USD"))
    assert by_id(read) == by_id(emulated_skus())
    assert server.calls > 3


def test_tiers_units_and_nanos_are_exact(catalogue: PriceCatalogue) -> None:
    skus = {(sku.description, sku.regions[:1]): sku for sku in catalogue.skus(COMPUTE, "USD")}
    disk = skus["Storage PD Capacity", ("us-central1",)]
    assert [tier.start for tier in disk.tiers] == [Decimal(0), Decimal(30)]
    assert [tier.price for tier in disk.tiers] == [Decimal(0), Decimal("0.04")]
    gpu = skus["Nvidia H100 80GB GPU running in Americas", ("us-central1",)]
    assert [tier.price for tier in gpu.tiers] == [Decimal("9.79655")]


def test_currency_without_prices_is_a_permanent_error(catalogue: PriceCatalogue) -> None:
    with pytest.raises(PermanentError, match="XYZ"):
        list(catalogue.skus(COMPUTE, "XYZ"))


def test_unknown_service_is_a_permanent_error(catalogue: PriceCatalogue) -> None:
    with pytest.raises(PermanentError, match="was not found"):
        list(catalogue.skus("0000-0000-0000", "USD"))


@pytest.mark.parametrize("query", ["pageSize=many", "pageSize=-1", "pageToken=next"])
def test_malformed_page_is_an_invalid_argument(server: BillingServer, query: str) -> None:
    response = Client(server).get(f"/v1/services/{COMPUTE}/skus?{query}")
    assert response.status_code == 400
    assert response.get_json()["error"]["status"] == "INVALID_ARGUMENT"


def test_api_key_is_sent_in_place_of_credentials() -> None:
    client = PriceCatalogue("my-project", api_key="a-key")
    headers: dict[str, str] = {}
    credentials: Any = client._client.transport._credentials
    credentials.apply(headers)
    assert headers == {"x-goog-api-key": "a-key"}
    client.close()


def test_users_own_credentials_are_sent_with_the_project_whose_quota_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Google drops the quota project of a credentials file when only its token is used."""
    monkeypatch.setattr(clients, "credentials", lambda: Credentials("token", refresh_token="r"))
    client = PriceCatalogue("my-project")
    headers: dict[str, str] = {}
    sent: Any = client._client.transport._credentials
    sent.apply(headers)
    assert headers["x-goog-user-project"] == "my-project"
    client.close()
