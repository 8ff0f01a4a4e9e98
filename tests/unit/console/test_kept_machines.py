"""Kept machines in the console: where they are shown, and how a user releases them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.support.console_site import READ_ONLY, Site
from tests.support.kept_jobs import run_job, succeed
from tests.unit.console.pages import between
from tests.unit.console.test_actions import form_of, send
from tests.unit.cost.price_lists import price_list
from trainmaster.console.pages.installation_page import read_installation_page
from trainmaster.core.model.machine_set import SetState
from trainmaster.cost.machine_price import machine_price
from trainmaster.cost.sku import Unknown
from trainmaster.presentation import kept_machines

PATH = "/jobs/digits_1/release"


@pytest.fixture
def kept(site: Site) -> Site:
    """Return the console of an installation whose one job has ended and keeps its machines."""
    run_job(site.world, source="cli:1/anna@example.com")
    succeed(site.world)
    return site


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_kept_machines_are_on_the_page_of_the_installation(kept: Site) -> None:
    page = between(one_line(kept.text("/installation")), 'id="kept"', "</section>")
    assert '<tr id="kept-digits_1">' in page
    assert "anna@example.com" in page
    assert "us-central1-a" in page
    assert "3 x n1-standard-4" in page, "one chief and two workers"
    machines = kept.world.store.kept_machines()[0].machine_set
    for at in (machines.ended_at, machines.until):
        assert f'datetime="{at.isoformat()}"' in page
    assert f'href="{PATH}"' in page
    assert "Cost per hour" not in page, "prices are not known"


def test_price_of_kept_machines_is_unknown_without_a_price_list(kept: Site) -> None:
    machines = kept.world.store.kept_machines()[0].machine_set
    no_list = Unknown("there is no price list")
    assert kept_machines.kept_price(machines, kept.world.job, no_list) is None
    (row,) = read_installation_page(kept.console()).kept
    assert row.price == ""


def test_price_of_kept_machines_is_that_of_all_of_them(kept: Site) -> None:
    machines = kept.world.store.kept_machines()[0].machine_set
    job, prices = kept.world.job, price_list()
    (chief, workers) = machines.groups
    assert (chief.count, workers.count) == (1, 2)
    price = machine_price(job.placed.plan, chief, prices, at=chief.purchase.price)
    assert isinstance(price, Decimal)
    assert kept_machines.kept_price(machines, job, prices) == 3 * price


def test_user_releases_kept_machines_once(kept: Site) -> None:
    assert f'href="{PATH}"' in kept.text("/jobs/digits_1")
    fields = form_of(kept, PATH)
    for _ in range(2):
        response = send(kept, PATH, fields)
        assert (response.status_code, response.headers["Location"]) == (303, "/jobs/digits_1")
    assert kept.world.store.kept_machines() == ()
    loaded = kept.world.store.load("digits_1")
    assert loaded is not None
    assert loaded.state.machine_set is not None
    assert loaded.state.machine_set.state is SetState.RELEASED
    by_anna = [entry for entry in kept.world.ledger if "anna@example.com" in entry.decision.text]
    assert len(by_anna) == 1, "the second click changes nothing"
    kept.world.deliver()
    assert not kept.world.vms
    assert PATH not in kept.text("/jobs/digits_1")
    assert "The job keeps no machines." in one_line(kept.text(PATH))


def test_reader_sees_kept_machines_and_cannot_release_them(kept: Site) -> None:
    fields = form_of(kept, PATH)
    kept.is_read_only = True
    page = one_line(kept.text("/installation"))
    assert '<button disabled aria-describedby="denied">Release…</button>' in page
    assert READ_ONLY in page
    assert "<form" not in kept.text(PATH)
    assert send(kept, PATH, fields).status_code == 403
    assert len(kept.world.store.kept_machines()) == 1


def test_job_without_kept_machines_offers_no_release(site: Site) -> None:
    site.world.start_running()
    assert PATH not in site.text("/jobs/digits_1")
    assert "<form" not in site.text(PATH)
    assert "None. A job keeps" in site.text("/installation")
