"""`trainmaster mcp --budget`: which jobs count against the budget, and which are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
import yaml

from tests.support.jobs import a_spec, a_tuning_spec
from tests.unit.cli.mcp.sessions import EXAMPLE, call, document, tools
from tests.unit.cost.price_lists import price_list
from trainmaster.cli.mcp import MARK
from trainmaster.cli.mcp_budget import read_budget
from trainmaster.errors import PermanentError
from trainmaster_local.testing import Installation


@pytest.mark.parametrize(
    "text",
    ["", "20USD", "agents:", ":20USD", "Agents:20USD", "a:0USD", "a:-1USD", "a:1", "a:1USD\n"],
)
def test_a_wrong_budget_is_refused(installation: Installation, text: str) -> None:
    with pytest.raises(PermanentError, match="--budget: must be a label"):
        read_budget(text, installation.client, installation._store, price_list())


@pytest.mark.parametrize("currency", ["XXX", "EUR"])
def test_a_budget_in_another_currency_than_the_prices_is_refused(
    installation: Installation, currency: str
) -> None:
    with pytest.raises(
        PermanentError, match=f"--budget: must be in USD, as the list prices are, not in {currency}"
    ):
        tools(installation, f"agents:20{currency}")


@pytest.mark.parametrize("cap", [None, "5 EUR", "20.01 USD"])
def test_a_job_whose_cap_does_not_fit_is_refused(
    installation: Installation, cap: str | None
) -> None:
    text, is_error = call(tools(installation, "agents:20USD"), "submit", document=document(cap=cap))
    assert is_error
    assert "trainmaster.maxCost" in text
    assert not installation._store.recent_jobs(1)


def test_job_outside_of_the_budget_is_not_cancelled(installation: Installation) -> None:
    """A line of a log may talk an agent into it."""
    other = installation.client.submit({"jobId": "digits_9", **a_spec()})
    text, is_error = call(tools(installation, "agents:5USD"), "cancel", job="digits_9")
    assert is_error
    assert "is not a job of the budget agents" in text
    assert installation.client.describe(other).state != "CANCELLED"
    assert call(tools(installation), "cancel", job="digits_9") == ("digits_9: CANCELLED", False)


def test_a_job_of_the_budget_without_a_cap_stops_it(installation: Installation) -> None:
    installation.client.submit({"jobId": "foreign", **a_spec(), "labels": {"budget": "agents"}})
    text, is_error = call(tools(installation, "agents:20USD"), "submit", document=document())
    assert is_error
    assert "foreign" in text


def test_an_ended_job_counts_with_what_it_has_cost(installation: Installation) -> None:
    served = tools(installation, "agents:7USD")
    assert not call(
        served, "submit", document=document("first", labels={"team": "a", "budget": "other"})
    )[1]
    assert call(served, "submit", document=document("second"))[1]
    installation.start("first")
    installation.now += timedelta(hours=1)
    installation.client.cancel("first")
    assert not call(served, "submit", document=document("second"))[1]
    words = call(served, "status")[0].splitlines()[1].removeprefix(MARK)
    assert 5.3 < float(words.partition(" ")[0]) < 6.5
    assert installation.client.describe("first").document["labels"] == {
        "team": "a",
        "budget": "agents",
    }


def test_an_ended_tuning_job_counts_with_its_cap(installation: Installation) -> None:
    served = tools(installation, "agents:7USD")
    tuning = yaml.safe_dump(
        {"jobId": "tune", **a_tuning_spec(), "trainmaster": {"maxCost": "5 USD"}}
    )
    assert not call(served, "submit", document=tuning)[1]
    installation.client.cancel("tune")
    assert call(served, "submit", document=document("second"))[1]


def test_jobs_that_were_there_before_are_never_cancelled(installation: Installation) -> None:
    client, store = installation.client, installation._store
    assert not call(tools(installation, "agents:20USD"), "submit", document=document(cap="15 USD"))[
        1
    ]
    smaller = read_budget("agents:10USD", client, store, price_list())
    with pytest.raises(PermanentError, match=r"15.00 of 10 USD of the budget agents"):
        smaller.submit({"jobId": "second", **EXAMPLE}, None)
    smaller._cancel_excess(smaller.jobs())
    assert client.describe("digits_1").state == "QUEUED"
