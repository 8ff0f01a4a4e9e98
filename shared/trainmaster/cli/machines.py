"""`trainmaster machines`: what jobs can use, what it costs, and which zones of the installation have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final

import typer

from trainmaster.cli.installation import choose_installation
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, complain, print_json, print_table, say
from trainmaster.core.machines.families import FAMILIES, Sale
from trainmaster.core.machines.gpus import GPUS
from trainmaster.core.machines.machine_types import MACHINE_TYPES, MachineType, find_machine_type, refusal_of
from trainmaster.core.machines.tpus import GENERATIONS
from trainmaster.cost.machine_price import list_price
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.cost.sku_resources import Pricing
from trainmaster.errors import PermanentError
from trainmaster.jobspec.catalog.machine_types import GPU_NAMES, RETIRED_GPUS
from trainmaster.jobspec.catalog.regions import REGION_ZONES

DEFAULT_REGION: Final = "us-central1"
_SALES: Final = {Sale.ON_DEMAND: "on demand", Sale.SPOT: "Spot", Sale.RESERVATION: "reservation"}
_ATTACHED: Final = "n1 + "


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of machine. None: not known, or different from job to job."""

    machine: str
    vcpus: int | None = None
    memory_gib: Decimal | int | None = None
    accelerators: str = ""
    """`8 x nvidia-h100-80gb`."""
    local_ssd_gib: int | None = None
    sales: tuple[Sale, ...] = tuple(Sale)
    tpu_zones: tuple[str, ...] = ()
    """All zones that have it, for a TPU."""
    nics: int | None = None
    """Network interfaces of the machine; the VMs of jobs use one."""

    @property
    def offer(self) -> str:
        """Compute Engine's name of what a zone has: a machine type, or the type of a GPU that is attached."""
        return self.machine.removeprefix(_ATTACHED)


def machines(
    name: Annotated[str, typer.Argument(help="Part of a name of machines or accelerators: a3-, h100, v5e.")] = "",
    region: Annotated[
        list[str] | None, typer.Option(help="Region; may be repeated. Default: those of the installation.")
    ] = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """List machine types, GPUs and TPUs with their list prices, and the zones that have them."""
    rows = [row for row in _rows() if name.lower() in f"{row.machine} {row.accelerators}".lower()]
    if not rows:
        rows = [_row(_find(name))]
    regions, prices, offers = _ask_installation(region or [])
    entries = [_entry(row, regions, prices, offers) for row in rows]
    if form is Format.JSON:
        print_json({"regions": regions, "currency": "" if isinstance(prices, Unknown) else prices.currency,
                    "machines": entries})  # fmt: skip
        return
    print_table(["machine", "vcpus", "gib", "accelerators", "ssd gib", "nics", "sold", "on demand", "spot", "zones"],
                [[_cell(value) for value in entry.values()] for entry in entries])  # fmt: skip
    if not isinstance(prices, Unknown):
        place = f"{regions[0]}, {prices.currency} per hour, without boot disks"
        say(f"list prices of {prices.fetched_at:%Y-%m-%d} in {place}")
    if not name:
        others = sorted({family.series for family in FAMILIES if not family.sizes})
        say(f"Also in their sizes: {', '.join(others)}, such as `trainmaster machines n2-standard-8`.")


def _rows() -> Iterator[Row]:
    yield from map(_row, MACHINE_TYPES.values())
    for api_name, gpu in GPU_NAMES.items():
        counts = sorted({count for row in GPUS[gpu].counts.values() for count in row})
        if counts and api_name not in RETIRED_GPUS:
            yield Row(f"{_ATTACHED}{gpu}", accelerators=f"{', '.join(map(str, counts))} x {gpu}")
    for generation, table in GENERATIONS.items():
        for chips, host in table.hosts_by_chips.items():
            machine = f"{table.machine_family}-{chips}t" if table.machine_family else "cloud_tpu"
            words = f"{chips} x TPU {generation} chips"
            yield Row(machine, host.vcpus, host.memory_gib, words, tpu_zones=(*table.zones, *table.pod_zones))


def _row(machine: MachineType) -> Row:
    gpus = f"{machine.gpu.count} x {machine.gpu.type}" if machine.gpu else ""
    ssd, family = machine.local_ssd_gib or None, machine.family
    return Row(machine.name, machine.vcpus, machine.memory_gib, gpus, ssd, family.sales, nics=family.nics)


def _find(name: str) -> MachineType:
    """Return a machine type that is not listed. Raises PermanentError with the reason if jobs cannot use it."""
    machine = find_machine_type(name)
    if machine is None:
        reason = refusal_of(name) or "no machine type, GPU or TPU has a name like it"
        raise PermanentError(f"{name}: {reason}; `trainmaster machines` lists all")
    return machine


def _ask_installation(regions: list[str]) -> tuple[list[str], PriceList | Unknown, Mapping[str, list[str]] | None]:
    """Return regions, prices, and the zones of each machine type or GPU. None: the zones are not known.

    Without an installation, no regions are all regions.
    """
    for region in regions:
        if region not in REGION_ZONES:
            raise PermanentError(f"--region {region}: not a region, such as {DEFAULT_REGION}")
    try:
        choose_installation()
    except PermanentError as error:
        complain(f"Prices and zones are not known: {error}")
        return regions, Unknown(str(error)), None
    from trainmaster.cli.doctor.checks import open_inspection
    from trainmaster.gcp.tools.inspection import InspectionError
    from trainmaster.settings import settings
    from trainmaster.wiring.price_list import price_list

    regions = regions or sorted(settings().regions) or [DEFAULT_REGION]
    prices, inspection = price_list(), open_inspection(settings())
    if isinstance(prices, Unknown):
        complain(f"Prices are not known: {prices.reason}")
    offers: dict[str, list[str]] = {}
    try:
        for zone in (zone for region in regions for zone in REGION_ZONES.get(region, ())):
            for offer in inspection.offers(zone):
                offers.setdefault(offer, []).append(zone)
    except InspectionError as error:
        complain(f"Zones are not known: {error}")
        return regions, prices, None
    return regions, prices, offers


def _entry(
    row: Row, regions: Sequence[str], prices: PriceList | Unknown, offers: Mapping[str, list[str]] | None
) -> dict[str, Any]:
    price: dict[Pricing, Decimal | Unknown] = {
        pricing: prices if isinstance(prices, Unknown) else list_price(row.offer, regions[0], prices, pricing)
        for pricing in Pricing
    }
    on_demand, spot = (None if isinstance(amount, Unknown) else f"{amount:.4f}" for amount in price.values())
    zones = None if offers is None else offers.get(row.offer, [])
    if row.tpu_zones:
        zones = sorted({zone for zone in row.tpu_zones if not regions or zone.rpartition("-")[0] in regions})
    return {
        "machine": row.machine,
        "vcpus": row.vcpus,
        "memoryGib": None if row.memory_gib is None else float(row.memory_gib),
        "accelerators": row.accelerators,
        "localSsdGib": row.local_ssd_gib,
        "networkInterfaces": row.nics,
        "sold": [_SALES[sale] for sale in row.sales],
        "onDemand": on_demand if Sale.ON_DEMAND in row.sales else None,
        "spot": spot,
        "zones": zones,
    }


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
