"""The price list, and the prices of machines that follow from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.support.jobs import a_plan, change_plan
from tests.unit.cost.price_lists import FETCHED_AT, emulated_skus, price_file, price_list
from trainmaster.core.machines.machine_types import MACHINE_TYPES
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import (
    FlexStart,
    OnDemand,
    PriceClass,
    Pricing,
    Purchase,
    Reserved,
    Spot,
)
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup, Tpu
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.machine_price import Part, machine_price, vm_parts
from trainmaster.cost.price_list import make_price_file, read_price_list, write_price_list
from trainmaster.cost.sku import Unknown
from trainmaster.cost.sku_resources import RESOURCES, Resource
from trainmaster.errors import PermanentError


def plan_of(group: TaskGroup, **changes: Any) -> Plan:
    return change_plan(a_plan(workers=0), groups=(group,), **changes)


def a_group(machine_type: str = "n1-standard-4", **changes: object) -> TaskGroup:
    values: dict[str, object] = {"boot_disk_gib": 100, "boot_disk_type": "pd-ssd", **changes}
    return TaskGroup(TaskType.CHIEF, 1, machine_type, **values)  # type: ignore[arg-type]


def a_tpu_group(tpu_type: str, hosts: int = 1) -> TaskGroup:
    return a_group("", tpu=Tpu(tpu_type, runtime="any", hosts=hosts))


def price_of(
    group: TaskGroup, price: PriceClass | None = None, **changes: Any
) -> Decimal | Unknown:
    return machine_price(plan_of(group, **changes), group, price_list(), at=price or OnDemand())


# Prices of the emulated catalogue, in USD per hour unless the name says a month.
N1_CORE, N1_CORE_SPOT = Decimal("0.031611"), Decimal("0.006655")
N1_GIB, N1_GIB_SPOT = Decimal("0.004237"), Decimal("0.000892")
T4, T4_SPOT = Decimal("0.35"), Decimal("0.14")
A100_80GB = Decimal("3.9276")
STANDARD_GIB_MONTH, LOCAL_SSD_GIB_MONTH = Decimal("0.04"), Decimal("0.08")
HOURS_OF_MONTH = 730
DISK = 100 * Decimal("0.17") / HOURS_OF_MONTH


@pytest.mark.parametrize(
    ("group", "is_spot", "expected"),
    [
        (
            a_group("n1-standard-4"),
            False,
            4 * N1_CORE + 15 * N1_GIB + DISK,
        ),
        (a_group("n1-standard-4"), True, 4 * N1_CORE_SPOT + 15 * N1_GIB_SPOT + DISK),
        (
            a_group("n1-standard-8", accelerator=Accelerator("nvidia-tesla-t4", 2)),
            False,
            8 * N1_CORE + 30 * N1_GIB + 2 * T4 + DISK,
        ),
        (
            a_group("n1-standard-8", accelerator=Accelerator("nvidia-tesla-t4", 2)),
            True,
            8 * N1_CORE_SPOT + 30 * N1_GIB_SPOT + 2 * T4_SPOT + DISK,
        ),
        (
            a_group("n1-highcpu-16", boot_disk_type="pd-standard"),
            False,
            16 * N1_CORE + Decimal("14.4") * N1_GIB + 100 * STANDARD_GIB_MONTH / HOURS_OF_MONTH,
        ),
        (
            a_group("g2-standard-8", accelerator=Accelerator("nvidia-l4", 1)),
            False,
            Decimal("0.853608") + DISK,
        ),
        (
            a_group("a2-ultragpu-1g", accelerator=Accelerator("nvidia-a100-80gb", 1)),
            False,
            12 * N1_CORE
            + 170 * N1_GIB
            + A100_80GB
            + 375 * LOCAL_SSD_GIB_MONTH / HOURS_OF_MONTH
            + DISK,
        ),
        # The price of a TPU slice is that of one host: its chips, four in a slice of several hosts.
        (a_tpu_group("v5litepod-8"), False, 8 * Decimal("1.2")),
        (a_tpu_group("v5litepod-16", hosts=4), True, 4 * Decimal("0.54")),
        (a_tpu_group("v5p-16", hosts=2), False, 4 * Decimal("4.2")),
    ],
)
def test_price_of_a_machine_is_the_sum_of_its_parts(
    group: TaskGroup, is_spot: bool, expected: Decimal
) -> None:
    price = Spot() if is_spot else OnDemand()
    assert price_of(group, price) == pytest.approx(expected, rel=Decimal("1e-20"))


def test_price_of_a_worked_example_equals_the_published_one() -> None:
    """g2-standard-8 in us-central1: 0.853608 USD per hour with its L4, and a quarter of that
    without.
    """
    group = a_group("g2-standard-8", accelerator=Accelerator("nvidia-l4", 1), boot_disk_gib=0)
    assert price_of(group) == Decimal("0.853608")


@pytest.mark.parametrize(
    ("group", "changes", "reason"),
    [
        (a_group("m3-ultramem-32"), {}, "m3-ultramem-32"),
        (a_group("e2-custom-4-8192"), {}, "e2-custom-4-8192"),
        (a_group("n4-standard-4"), {}, "hyperdisk-balanced"),
        (
            a_group("n1-standard-4"),
            {"region": "me-west1"},
            "no on-demand price of n1 core in me-west1",
        ),
        (a_group("n1-standard-4"), {"price": Reserved("mine")}, "reservation mine"),
        (
            a_group("n1-standard-4", accelerator=Accelerator("nvidia-tesla-k80", 1)),
            {},
            "nvidia-tesla-k80",
        ),
        (a_tpu_group("v2-8"), {}, "chips of v2"),
        (a_tpu_group("v6e-8"), {"price": FlexStart()}, "flex-start"),
    ],
)
def test_price_that_is_not_certain_is_unknown_with_a_reason(
    group: TaskGroup, changes: dict[str, Any], reason: str
) -> None:
    price = price_of(group, **changes)
    assert isinstance(price, Unknown)
    assert reason in price.reason


def parts_of(machine_type: str) -> tuple[Part, ...] | Unknown:
    return vm_parts(machine_type, None, Pricing.ON_DEMAND)


UNPRICED = {
    "a3-megagpu",
    "a3-ultragpu",
    "a3-edgegpu",
    "a4-highgpu",
    "g4-standard",
    "h4d-standard",
    "h4d-highmem",
}
"""Families whose SKUs are not certain."""


def test_every_listed_machine_type_has_parts_with_skus_unless_its_family_is_unpriced() -> None:
    parts = {name: parts_of(name) for name in MACHINE_TYPES}
    unknown = {name for name, found in parts.items() if isinstance(found, Unknown)}
    families = {MACHINE_TYPES[name].family.name for name in unknown}
    assert families == UNPRICED, "give their SKUs in core/machines, or name them in UNPRICED"
    known = [found for found in parts.values() if not isinstance(found, Unknown)]
    assert {resource for found in known for resource, _, _ in found} <= RESOURCES


@pytest.mark.parametrize(
    ("machine_type", "vcpus", "memory_gib"),
    [
        ("n1-standard-96", 96, 360),
        ("n1-highmem-96", 96, 624),
        ("n1-highcpu-96", 96, Decimal("86.4")),
        ("n2-highmem-128", 128, 864),
        ("c2-standard-60", 60, 240),
        ("c4-standard-2", 2, 7),
        ("e2-small", Decimal("0.5"), 2),
        ("a2-highgpu-8g", 96, 680),
        ("a3-highgpu-8g", 208, 1872),
    ],
)
def test_priced_vcpus_and_memory_are_those_of_compute_engine(
    machine_type: str, vcpus: Decimal, memory_gib: Decimal
) -> None:
    parts = parts_of(machine_type)
    assert not isinstance(parts, Unknown)
    (_, priced_vcpus, _), (_, priced_memory_gib, _), *_others = parts
    assert (priced_vcpus, priced_memory_gib) == (vcpus, memory_gib)


@pytest.mark.parametrize(
    "name",
    [
        "c3d-highcpu-360",
        "c4d-standard-8",
        "n1-standard-x",
        "c3-standard-8-lssd",
        "n1-custom-6-24576",
        "c5-standard-8",
        "",
    ],
)
def test_machine_type_without_certain_skus_has_no_price(name: str) -> None:
    assert isinstance(parts_of(name), Unknown)


def test_hourly_cost_of_a_job_counts_all_machines_and_uses_spot_prices() -> None:
    plan = a_plan(workers=3)
    spot = replace(
        plan, groups=(plan.groups[0], replace(plan.groups[1], purchase=Purchase(Spot())))
    )
    chief = machine_price(plan, plan.groups[0], price_list(), at=OnDemand())
    worker = machine_price(plan, plan.groups[1], price_list(), at=Spot())
    assert isinstance(chief, Decimal)
    assert isinstance(worker, Decimal)
    assert hourly_cost(plan, price_list()) == 4 * chief
    assert hourly_cost(spot, price_list()) == chief + 3 * worker


def test_two_prices_of_one_resource_leave_it_without_a_price() -> None:
    skus = emulated_skus()
    core = next(
        sku for sku in skus if sku.description == "N1 Predefined Instance Core running in Americas"
    )
    other = replace(core, sku_id="ZZZZ", tiers=(replace(core.tiers[0], price=Decimal("0.05")),))
    prices = read_price_list(write_price_list(make_price_file([*skus, other], FETCHED_AT)))
    price = prices.price(Resource("n1 core", "h"), "us-central1", Pricing.ON_DEMAND)
    assert isinstance(price, Unknown)
    assert "several SKUs" in price.reason
    assert isinstance(
        prices.price(Resource("n1 core", "h"), "europe-west4", Pricing.ON_DEMAND), Decimal
    )


def test_same_price_in_two_skus_is_known() -> None:
    skus = emulated_skus()
    core = next(
        sku for sku in skus if sku.description == "N1 Predefined Instance Core running in Americas"
    )
    prices = read_price_list(
        write_price_list(make_price_file([*skus, replace(core, sku_id="ZZZZ")], FETCHED_AT))
    )
    assert prices.price(Resource("n1 core", "h"), "us-central1", Pricing.ON_DEMAND) == Decimal(
        "0.031611"
    )


def test_price_list_is_read_as_it_was_written() -> None:
    prices = price_list()
    assert prices.currency == "USD"
    assert prices.fetched_at == FETCHED_AT
    assert not prices.is_old(FETCHED_AT + timedelta(days=89))
    assert prices.is_old(FETCHED_AT + timedelta(days=90))
    assert len(write_price_list(price_file())) < 100_000


def test_unknown_fields_of_a_newer_release_are_ignored() -> None:
    data = write_price_list(price_file()).replace(
        b'"currency"', b'"newer": {"a": 1}, "currency"', 1
    )
    assert read_price_list(data) == price_list()


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"{}", "version"),
        (b"not json", "file"),
        (write_price_list(price_file()).replace(b'"version": 1', b'"version": 2', 1), "version"),
        (write_price_list(price_file()).replace(b'"0.031611', b'"-0.031611', 1), "amount"),
    ],
)
def test_invalid_price_list_names_the_field_and_the_repair(data: bytes, field: str) -> None:
    with pytest.raises(PermanentError, match=rf"{field}.*trainmaster prices update"):
        read_price_list(data)


def test_catalogue_without_prices_of_machines_is_refused() -> None:
    with pytest.raises(PermanentError, match="none of the prices"):
        make_price_file(
            [sku for sku in emulated_skus() if sku.usage_type == "Commit1Yr"], FETCHED_AT
        )


def test_catalogue_with_two_currencies_is_refused() -> None:
    first, *others = emulated_skus()
    with pytest.raises(PermanentError, match="EUR, USD"):
        make_price_file([replace(first, currency="EUR"), *others], FETCHED_AT)
