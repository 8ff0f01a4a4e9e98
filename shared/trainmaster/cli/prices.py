"""`trainmaster prices …`: fetch Google's list prices, and show what machines cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from trainmaster.cli.installation import choose_installation
from trainmaster.cli.options import DEFAULT_REGION, OutputFormat, given
from trainmaster.cli.output import Format, complain, print_json, print_table, say
from trainmaster.core.machines.machine_types import MACHINE_TYPES
from trainmaster.core.model.purchase import Pricing
from trainmaster.cost.machine_price import list_price
from trainmaster.cost.price_list import PriceList, make_price_file, write_price_list
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError
from trainmaster.presentation.cost_view import money_words

app = typer.Typer(
    help="Fetch Google's list prices, and show what machines cost.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def update(
    currency: Annotated[
        str, typer.Option(metavar="CURRENCY", help="Currency of the prices: USD, EUR and others.")
    ] = "USD",
    api_key: Annotated[
        str,
        typer.Option(
            envvar="TRAINMASTER_BILLING_API_KEY",
            metavar="KEY",
            help="API key; without one, your credentials are used.",
        ),
    ] = "",
) -> None:
    """Fetch the list prices of Compute Engine, Cloud TPU and transfers, and store them in the
    installation's bucket.

    Needs the Cloud Billing API (cloudbilling.googleapis.com) in your project, and write access to
    the bucket.
    """
    choose_installation()
    from trainmaster.gcp.tools.price_catalogue import SERVICES
    from trainmaster.wiring.objects import objects
    from trainmaster.wiring.price_list import price_list_uri
    from trainmaster.wiring.prices import price_catalogue

    uri = price_list_uri()
    catalogue = price_catalogue(api_key)
    skus = catalogue.all_skus(currency.upper())
    catalogue.close()
    file = make_price_file(skus, datetime.now(UTC), "Cloud Billing catalogue")
    objects().write(uri, write_price_list(file), content_type="application/json")
    resources = {entry.resource for entry in file.prices}
    places = set().union(*(entry.regions for entry in file.prices))
    regions = places - {"global"}
    say(
        f"{uri}: prices of {len(resources)} resources in {len(regions)} regions, in {file.currency}"
    )
    say(f"read {len(skus)} SKUs of {', '.join(SERVICES)}")
    for entry in file.prices:
        if entry.amount is None:
            complain(
                f"not known: {entry.pricing} {entry.resource} in {', '.join(entry.regions)}:"
                f" {entry.reason}"
            )


@app.command("list")
def list_prices(
    machine_types: Annotated[
        list[str] | None,
        typer.Argument(
            help="Machine types; without any, all that have a price.", metavar="MACHINE"
        ),
    ] = None,
    region: Annotated[
        str, typer.Option(callback=given, metavar="REGION", help="Region of the machines.")
    ] = DEFAULT_REGION,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show what machine types and accelerators cost per hour, without boot disks."""
    choose_installation()
    from trainmaster.wiring.price_list import price_list

    prices = price_list()
    if isinstance(prices, Unknown):
        raise PermanentError(f"prices are not known: {prices.reason}")
    known = {place for _, place, _ in prices.prices}
    if region not in known:
        raise PermanentError(
            f"--region: no price in {region!r} is stored, but in {', '.join(sorted(known))}"
        )
    rows = [_row(name, region, prices) for name in machine_types or _names(prices, region)]
    if form is Format.JSON:
        print_json(
            {
                "currency": prices.currency,
                "fetchedAt": prices.fetched_at.isoformat(),
                "region": region,
                "prices": rows,
            }
        )
        return
    say(f"list prices of {prices.fetched_at:%Y-%m-%d} in {region}, {prices.currency} per hour")
    if prices.is_old(datetime.now(UTC)):
        complain("The price list is old: run `trainmaster prices update`.")
    print_table(["machine", "on demand", "spot", "note"], [list(row.values()) for row in rows])


def _names(prices: PriceList, region: str) -> list[str]:
    """Return the machine types and accelerators that have a price in the region."""
    machines = [name for name in MACHINE_TYPES if _row(name, region, prices)["onDemand"]]
    resources = {name for name, place, _ in prices.prices if place == region}
    # The other resources are parts of machines (`n1 core`), transfers and disks.
    accelerators = [
        name for name in resources if " " not in name and not name.startswith(("pd-", "local-"))
    ]
    return [*machines, *sorted(accelerators)]


def _row(name: str, region: str, prices: PriceList) -> dict[str, str]:
    """Return the prices of a machine per hour, or why one is not known, by column."""
    row = {"machine": name, "onDemand": "", "spot": "", "note": ""}
    for column, pricing in (("onDemand", Pricing.ON_DEMAND), ("spot", Pricing.SPOT)):
        price = list_price(name, region, prices, pricing)
        if not isinstance(price, Unknown):
            row[column] = money_words(price, prices.currency, digits=4)
        elif not row["note"]:
            row["note"] = price.reason
    return row
