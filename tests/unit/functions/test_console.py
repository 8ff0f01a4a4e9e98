"""The function `console` under functions-framework, as the read-only service and as the operators'
service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import functions_framework
import pytest
from flask.testing import FlaskClient

from tests.support.serving import serving
from tests.support.world import World
from tests.unit.cost.price_lists import price_file
from trainmaster.console.iap_sign_in import ASSERTION
from trainmaster.core.model.job import JobState
from trainmaster.cost.price_list import write_price_list
from trainmaster.errors import PermanentError
from trainmaster.settings import settings
from trainmaster.wiring import core_services, log_reader, price_list
from trainmaster_emulators.services.iap_issuer import IapIssuer
from trainmaster_local.memory.objects import MemoryObjects

SOURCE = Path(__file__).parents[3] / "functions" / "console.py"
AUDIENCE = "/projects/17/locations/us-central1/services/trainmaster-console"
ORIGIN = "https://console.example.com"


@pytest.fixture
def issuer() -> IapIssuer:
    return IapIssuer()


@pytest.fixture
def world(issuer: IapIssuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    world.start_running()
    monkeypatch.setattr(core_services, "store", lambda: world.store)
    monkeypatch.setattr(core_services, "deps", lambda: world.deps)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_CONSOLE_AUDIENCE", AUDIENCE)
    with serving(issuer.listen()) as keys:
        monkeypatch.setenv("TRAINMASTER_CONSOLE_KEYS", keys)
        settings.cache_clear()
        log_reader.log_entries.cache_clear()
        yield world
    settings.cache_clear()
    log_reader.log_entries.cache_clear()


def start() -> FlaskClient:
    settings.cache_clear()
    client: FlaskClient = functions_framework.create_app(
        "console", str(SOURCE), "http"
    ).test_client()
    return client


def headers(issuer: IapIssuer) -> dict[str, str]:
    assertion = issuer.assertion("anna@example.com", AUDIENCE, datetime.now(UTC))
    return {ASSERTION: assertion, "Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}


def test_page_and_its_assets_are_served_under_functions_framework(
    world: World, issuer: IapIssuer
) -> None:
    client = start()
    page = client.get("/jobs/digits_1", base_url=ORIGIN, headers=headers(issuer))
    assert page.status_code == 200
    assert "RUNNING" in page.text
    assets = re.findall(r'(?:href|src)="(/assets/[^"]+)"', page.text)
    assert len(assets) >= 4
    for address in assets:
        assert client.get(address, base_url=ORIGIN, headers=headers(issuer)).status_code == 200


@pytest.fixture
def bucket(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryObjects]:
    """Return the installation's bucket, without a price list."""
    objects = MemoryObjects()
    monkeypatch.setenv("TRAINMASTER_BUCKET", "my-bucket")
    monkeypatch.setattr(price_list, "objects", lambda *_: objects)
    price_list.price_list.cache_clear()
    yield objects
    price_list.price_list.cache_clear()


def test_pages_show_costs_at_the_prices_of_the_bucket(
    world: World, bucket: MemoryObjects, issuer: IapIssuer
) -> None:
    bucket.write(
        "gs://my-bucket/prices/v1.json",
        write_price_list(price_file()),
        content_type="application/json",
    )
    world.wait(3600)
    client = start()
    assert "Cost, about" in client.get("/jobs", base_url=ORIGIN, headers=headers(issuer)).text
    page = client.get("/jobs/digits_1", base_url=ORIGIN, headers=headers(issuer)).text
    assert re.search(r"\d\.\d+ USD", page)


def test_pages_without_a_price_list_say_how_to_get_one(
    world: World, bucket: MemoryObjects, issuer: IapIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        "trainmaster prices update"
        in start().get("/jobs/digits_1", base_url=ORIGIN, headers=headers(issuer)).text
    )

    def forbidden(uri: str, *, max_bytes: int) -> bytes:
        raise PermanentError(f"read {uri}: 403 (or it may not exist)")

    monkeypatch.setattr(bucket, "read", forbidden)
    price_list.price_list.cache_clear()
    page = start().get("/jobs/digits_1", base_url=ORIGIN, headers=headers(issuer)).text
    assert "(or it may not exist)" in page
    assert "trainmaster prices update" in page


def test_request_without_an_assertion_is_401(world: World) -> None:
    assert start().get("/jobs", base_url=ORIGIN).status_code == 401


def cancel(client: FlaskClient, issuer: IapIssuer) -> int:
    page = client.get("/jobs/digits_1/labels", base_url=ORIGIN, headers=headers(issuer)).text
    form = {"token": page.partition('name="token" value="')[2].partition('"')[0]}
    assert form["token"]
    return client.post(
        "/jobs/digits_1/cancel", base_url=ORIGIN, data=form, headers=headers(issuer)
    ).status_code


def test_read_only_service_refuses_actions_and_names_the_role(
    world: World, issuer: IapIssuer
) -> None:
    client = start()
    page = client.get("/jobs/digits_1", base_url=ORIGIN, headers=headers(issuer)).text
    assert "roles/iap.httpsResourceAccessor on the service trainmaster-console-operator" in page
    before = world.ledger
    assert cancel(client, issuer) == 403
    assert world.ledger == before


def test_operators_service_cancels_as_the_user(
    world: World, issuer: IapIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_CONSOLE_ACTS", "true")
    assert cancel(start(), issuer) == 303
    assert world.state == JobState.CANCELLED
    assert "anna@example.com" in repr(world.ledger[-1].event)
