"""`trainmaster machines`: what jobs can use, what it costs, and which zones have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple

import typer

from trainmaster.cli.installation import choose_installation
from trainmaster.cli.options import DEFAULT_REGION, OutputFormat
from trainmaster.cli.output import Format, complain, print_json, print_table, say
from trainmaster.core.machines.families import FAMILIES
from trainmaster.core.machines.gpus import GPUS
from trainmaster.core.machines.machine_types import (
    MACHINE_TYPES,
    MachineType,
    find_machine_type,
    refusal_of,
)
from trainmaster.core.machines.tpus import GENERATIONS
from trainmaster.core.model.purchase import OnDemand, Pricing, Reserved, Spot
from trainmaster.cost.machine_price import list_price
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError
from trainmaster.jobspec.catalog.machine_types import GPU_NAMES, RETIRED_GPUS
from trainmaster.jobspec.catalog.regions import REGION_ZONES

_ATTACHED: Final = "n1 + "
"""Beginning of the row of a GPU that jobs attach to machines of the family N1."""
Row = dict[str, Any]
"""One kind of machine, by column of the JSON output."""


def machines(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Part of a name of machines or accelerators: a3-, h100, v5e."
        ),
    ] = "",
    region: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGION", help="Region; may be repeated. Default: those of the installation."
        ),
    ] = None,
    kept: Annotated[
        bool, typer.Option("--kept", help="Show the machines that jobs keep for a next job.")
    ] = False,
    release: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Delete the machines that this job keeps."),
    ] = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """List machine types, GPUs and TPUs with their list prices, and the zones that have them."""
    if release or kept:
        from trainmaster.cli.kept_machines import release_kept, show_kept

        if release:
            release_kept(release)
        if kept:
            show_kept(form)
        return
    rows = [
        row for row in _rows() if name.lower() in f"{row['machine']} {row['accelerators']}".lower()
    ]
    rows = rows or [_row(_find(name))]
    regions, prices, offers = _ask_installation(region or [])
    for row in rows:
        _add_prices_and_zones(row, regions, prices, offers)
    if form is Format.JSON:
        currency = "" if isinstance(prices, Unknown) else prices.currency
        print_json({"regions": regions, "currency": currency, "machines": rows})
        return
    # In the order of a row's values.
    columns = (
        "machine",
        "vcpus",
        "gib",
        "accelerators",
        "ssd gib",
        "nics",
        "sold",
        "on demand",
        "spot",
        "zones",
    )
    print_table(columns, [list(map(_cell_text, row.values())) for row in rows])
    if not isinstance(prices, Unknown):
        place = f"{regions[0]}, {prices.currency} per hour, without boot disks"
        say(f"list prices of {prices.fetched_at:%Y-%m-%d} in {place}")
    if not name:
        others = sorted({family.series for family in FAMILIES if not family.sizes})
        say(
            f"Also in their sizes: {', '.join(others)}, such as `trainmaster machines"
            " n2-standard-8`."
        )


def _rows() -> Iterator[Row]:
    """Yield a row for each listed machine type, each GPU that can be attached, and each TPU VM."""
    yield from map(_row, MACHINE_TYPES.values())
    for api_name, gpu in GPU_NAMES.items():
        counts = sorted(set().union(*GPUS[gpu].counts.values()))
        if counts and api_name not in RETIRED_GPUS:
            yield _new_row(f"{_ATTACHED}{gpu}", f"{', '.join(map(str, counts))} x {gpu}")
    for generation, table in GENERATIONS.items():
        for chips, host in table.hosts_by_chips.items():
            machine = f"{table.machine_family}-{chips}t" if table.machine_family else "cloud_tpu"
            zones = sorted({*table.zones, *table.pod_zones})
            yield _new_row(
                machine,
                f"{chips} x TPU {generation} chips",
                host.vcpus,
                host.memory_gib,
                zones=zones,
            )


def _row(machine: MachineType) -> Row:
    family = machine.family
    gpus = f"{machine.gpu.count} x {machine.gpu.type}" if machine.gpu else ""
    memory = None if machine.memory_gib is None else float(machine.memory_gib)
    row = _new_row(
        machine.name, gpus, machine.vcpus, memory, machine.local_ssd_gib or None, family.nics
    )
    return row | {"sold": [price.label for price in family.sales]}


def _new_row(
    machine: str,
    accelerators: str,
    vcpus: int | None = None,
    memory_gib: float | None = None,
    ssd_gib: int | None = None,
    nics: int | None = None,
    zones: list[str] | None = None,
) -> Row:
    """Return a row, without prices.

    None: the value is not known, or differs from job to job. `zones`: all zones that have a type of
    TPU; None: the installation is asked.
    """
    return {
        "machine": machine,
        "vcpus": vcpus,
        "memoryGib": memory_gib,
        "accelerators": accelerators,
        "localSsdGib": ssd_gib,
        "networkInterfaces": nics,
        "sold": [OnDemand.label, Spot.label, Reserved.label],
        "onDemand": None,
        "spot": None,
        "zones": zones,
    }


def _find(name: str) -> MachineType:
    """Return a machine type that is not listed.

    Raises PermanentError with the reason if jobs cannot use it.
    """
    machine = find_machine_type(name)
    if machine is None:
        reason = refusal_of(name) or "no machine type, GPU or TPU has a name like it"
        raise PermanentError(f"{name}: {reason}; `trainmaster machines` lists all")
    return machine


class _Offers(NamedTuple):
    """The machines that the installation can use, with their prices."""

    regions: list[str]
    """Regions to show; empty: all, because there is no installation."""
    prices: PriceList | Unknown
    zones: Mapping[str, list[str]] | None
    """Name of a machine type or GPU → the zones that have it; None: they are not known."""


def _ask_installation(regions: list[str]) -> _Offers:
    """Return what the installation can use in these regions; empty: in its own.

    Raises PermanentError for an unknown region.
    """
    for region in regions:
        if region not in REGION_ZONES:
            raise PermanentError(f"--region {region}: not a region, such as {DEFAULT_REGION}")
    try:
        choose_installation()
    except PermanentError as error:
        complain(f"Prices and zones are not known: {error}")
        return _Offers(regions, Unknown(str(error)), zones=None)
    from trainmaster.cli.doctor.inspecting import open_inspection
    from trainmaster.gcp.tools.inspection import InspectionError
    from trainmaster.settings import settings
    from trainmaster.wiring.price_list import price_list

    regions = regions or sorted(settings().regions) or [DEFAULT_REGION]
    prices = price_list()
    inspection = open_inspection(settings())
    if isinstance(prices, Unknown):
        complain(f"Prices are not known: {prices.reason}")
    offers: dict[str, list[str]] = {}
    try:
        for region in regions:
            for zone in REGION_ZONES.get(region, ()):
                for offer in inspection.offers(zone):
                    offers.setdefault(offer, []).append(zone)
    except InspectionError as error:
        complain(f"Zones are not known: {error}")
        return _Offers(regions, prices, zones=None)
    return _Offers(regions, prices, offers)


def _add_prices_and_zones(
    row: Row,
    regions: Sequence[str],
    prices: PriceList | Unknown,
    offers: Mapping[str, list[str]] | None,
) -> None:
    offer = row["machine"].removeprefix(_ATTACHED)
    for key, pricing in {"onDemand": Pricing.ON_DEMAND, "spot": Pricing.SPOT}.items():
        is_sold = key == "spot" or OnDemand.label in row["sold"]
        if isinstance(prices, Unknown) or not is_sold:
            continue
        price = list_price(offer, regions[0], prices, pricing)
        if isinstance(price, Decimal):
            row[key] = f"{price:.4f}"
    if row["zones"] is not None:
        row["zones"] = [
            zone for zone in row["zones"] if not regions or zone.rpartition("-")[0] in regions
        ]
    elif offers is not None:
        row["zones"] = offers.get(offer, [])


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
