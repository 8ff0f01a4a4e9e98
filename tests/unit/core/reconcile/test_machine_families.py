"""Boot disks, live migration and compact placement of machine families."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.core.machines.machine_types import family_of
from trainmaster.core.model.purchase import OnDemand, PriceClass, Purchase, Reserved, Spot
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup
from trainmaster.core.reconcile.machine_families import (
    boot_disk_type,
    has_gpus,
    needs_compact_placement,
    supports_live_migration,
)

T4 = Accelerator("nvidia-tesla-t4", 1)


def a_group(machine_type: str, gpu: Accelerator | None = None, count: int = 4) -> TaskGroup:
    return TaskGroup(TaskType.WORKER, count, machine_type, gpu)


@pytest.mark.parametrize(
    ("machine_type", "requested", "disk_type"),
    [
        ("n1-standard-4", "pd-ssd", "pd-ssd"),
        ("n1-standard-4", "pd-standard", "pd-standard"),
        ("n1-standard-4", "hyperdisk-balanced", "pd-balanced"),
        ("a2-highgpu-8g", "pd-standard", "pd-standard"),
        ("c3-standard-8", "pd-ssd", "pd-ssd"),
        ("c3-standard-8", "pd-standard", "pd-balanced"),
        ("c3-standard-8", "hyperdisk-balanced", "hyperdisk-balanced"),
        ("g2-standard-8", "pd-standard", "pd-balanced"),
        ("g2-standard-8", "hyperdisk-balanced", "pd-balanced"),
        ("a3-highgpu-8g", "pd-standard", "pd-balanced"),
        ("a3-ultragpu-8g", "pd-ssd", "hyperdisk-balanced"),
        ("a4-highgpu-8g", "pd-standard", "hyperdisk-balanced"),
        ("c4-standard-8", "pd-ssd", "hyperdisk-balanced"),
        ("n4-standard-8", "pd-standard", "hyperdisk-balanced"),
    ],
)
def test_boot_disk_type_that_a_machine_cannot_boot_from_becomes_its_default(
    machine_type: str, requested: str, disk_type: str
) -> None:
    assert boot_disk_type(machine_type, requested) == disk_type
    assert disk_type in family_of(machine_type).boot_disks


@pytest.mark.parametrize(
    ("group", "gpus"),
    [
        (a_group("n1-standard-4"), False),
        (a_group("n1-standard-4", T4), True),
        (a_group("g2-standard-4"), True),
        (a_group("a2-highgpu-1g"), True),
        (a_group("e2-standard-4"), False),
    ],
)
def test_only_on_demand_vms_without_gpus_support_live_migration(
    group: TaskGroup, *, gpus: bool
) -> None:
    assert has_gpus(group) is gpus
    assert supports_live_migration(group, OnDemand()) is not gpus
    assert not supports_live_migration(group, Spot())


@pytest.mark.parametrize(
    ("group", "compact"),
    [
        (a_group("a2-highgpu-8g"), True),
        (a_group("a3-megagpu-8g", count=2), True),
        (a_group("a4-highgpu-8g"), True),
        (a_group("a2-highgpu-8g", count=1), False),
        (a_group("n1-standard-8", T4), False),
        (a_group("c3-standard-8"), False),
    ],
)
def test_gangs_of_machine_types_with_a_fast_network_need_compact_placement(
    group: TaskGroup, *, compact: bool
) -> None:
    assert needs_compact_placement(group) is compact
    on_spot_vms = replace(group, purchase=Purchase(Spot()))
    assert needs_compact_placement(on_spot_vms) is compact


@pytest.mark.parametrize("price", [Reserved("r"), Spot(1, Reserved("r"))])
def test_reservation_has_its_own_placement(price: PriceClass) -> None:
    gang = a_group("a2-highgpu-8g")
    assert not needs_compact_placement(replace(gang, purchase=Purchase(price)))
