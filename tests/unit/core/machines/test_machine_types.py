"""The table of machine types against Compute Engine's recorded answers and pages.

The emulator reads the table, so it shows nothing about its figures.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import pytest
from google.cloud import compute_v1

from tests.unit.core.machines.recorded_machine_types import LISTED, NEWER, PAGES
from trainmaster.core.machines.families import FAMILIES, HYPERDISK_BALANCED, Family
from trainmaster.core.machines.gpus import GPUS
from trainmaster.core.machines.machine_types import (
    MACHINE_TYPES,
    family_of,
    find_machine_type,
    refusal_of,
)
from trainmaster.core.machines.tpus import CHIPS_PER_HOST, GENERATIONS
from trainmaster.core.model.purchase import OnDemand, PriceClass, Reserved, Spot
from trainmaster_emulators.machines.catalog import Catalog, Links

ZONE: Final = "us-central1-a"
EMULATOR: Final = Catalog(Links("http://localhost/compute/v1", "my-project"))

LOCAL_SSD_GIB: Final = 375
RECORDED: Final = [line for lines in (LISTED, NEWER, PAGES) for line in lines.splitlines() if line]
SOLD: Final[dict[str, tuple[type[PriceClass], ...]]] = {
    **dict.fromkeys(("a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"), (Spot,)),
    **dict.fromkeys(("a3-ultragpu-8g", "a4-highgpu-8g"), (Spot, Reserved)),
}
"""Machine types that are not sold on demand. Source: "Accelerator-optimized machine family"."""
PERSISTENT: Final = ("pd-standard", "pd-balanced", "pd-ssd")
_HYPERDISK: Final = ("hyperdisk-balanced",)
_MIXED: Final = ("pd-balanced", "pd-ssd", "hyperdisk-balanced")
DISKS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("n4", "n4d", "c4", "c4d", "h4d", "a4", "g4", "a3-ultragpu"), _HYPERDISK),
    **dict.fromkeys(("a3", "c3", "c3d", "m3"), _MIXED),
    "g2": ("pd-balanced", "pd-ssd"),
}
"""Series that do not boot from every Persistent Disk → disk types. Source: "Choose a disk type"."""


def recorded(line: str) -> compute_v1.MachineType:
    name, cpus, memory_mb, *rest = line.split()
    gpu, ssds = rest[:2], int(rest[2]) if len(rest) > 2 else 0
    accelerators = (
        [{"guest_accelerator_type": gpu[0], "guest_accelerator_count": int(gpu[1])}] if gpu else []
    )
    return compute_v1.MachineType(
        name=name,
        guest_cpus=int(cpus),
        memory_mb=int(memory_mb),
        accelerators=accelerators,
        bundled_local_ssds={"partition_count": ssds},
    )


def by_series(names: Iterable[str]) -> list[list[str]]:
    """Return the names of each series, such as `n2`.

    A test of a whole series names the row that is wrong.
    """
    series: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        series[name.partition("-")[0]].append(name)
    return list(series.values())


def series_of(names: Sequence[str]) -> str:
    return names[0].partition("-")[0]


@pytest.mark.parametrize("lines", by_series(RECORDED))
def test_machine_type_has_the_figures_of_the_recorded_answer(lines: Sequence[str]) -> None:
    for expected in map(recorded, lines):
        machine = find_machine_type(expected.name)
        assert machine is not None, f"{expected.name} is missing in core/machines/families.py"
        assert machine.vcpus == expected.guest_cpus, expected.name
        assert machine.memory_gib is not None, expected.name
        assert round(machine.memory_gib * 1024) == expected.memory_mb, expected.name
        assert (
            machine.local_ssd_gib == LOCAL_SSD_GIB * expected.bundled_local_ssds.partition_count
        ), expected.name
        gpus = [
            (gpu.guest_accelerator_type, gpu.guest_accelerator_count)
            for gpu in expected.accelerators
        ]
        assert gpus == ([(machine.gpu.type, machine.gpu.count)] if machine.gpu else []), (
            expected.name
        )


@pytest.mark.parametrize(("name", "sold"), SOLD.items())
def test_machine_type_is_sold_in_the_documented_ways(
    name: str, sold: tuple[type[PriceClass], ...]
) -> None:
    assert MACHINE_TYPES[name].family.sales == sold


@pytest.mark.parametrize("names", by_series(MACHINE_TYPES))
def test_other_machine_types_are_sold_in_every_way(names: Sequence[str]) -> None:
    for name in set(names) - set(SOLD):
        assert set(MACHINE_TYPES[name].family.sales) == {OnDemand, Spot, Reserved}, name


@pytest.mark.parametrize("lines", by_series(RECORDED))
def test_machine_type_boots_from_the_documented_disks(lines: Sequence[str]) -> None:
    for name in (line.split()[0] for line in lines):
        series, kind = name.split("-")[:2]
        disks = DISKS.get(f"{series}-{kind}") or DISKS.get(series) or PERSISTENT
        assert set(family_of(name).boot_disks) == set(disks), name


def test_every_gpu_of_a_machine_type_is_in_the_table() -> None:
    assert {family.gpu for family in FAMILIES if family.gpu} <= set(GPUS)


@pytest.mark.parametrize("names", by_series(line.split()[0] for line in PAGES.splitlines() if line))
def test_emulator_lists_the_machine_types_of_the_pages(names: Sequence[str]) -> None:
    listed = {item["name"] for item in EMULATOR.machine_types(ZONE)}
    assert set(names) <= listed


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.gpu])
def test_family_with_gpus_has_a_recorded_machine_type(family: Family) -> None:
    name = next(name for name, machine in MACHINE_TYPES.items() if machine.family == family)
    is_recorded = any(line.startswith(f"{family.name}-") for line in RECORDED)
    assert is_recorded, (
        f"add a line of {name} to tests/unit/core/machines/recorded_machine_types.py, with its"
        " source"
    )


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.gpu])
def test_family_with_gpus_has_memory_and_gpus_for_each_size(family: Family) -> None:
    assert family.gib
    assert set(family.gpus) == set(family.sizes) != set()


@pytest.mark.parametrize(
    ("name", "vcpus"),
    [
        ("c5-standard-8", 8),
        ("n5d-highmem-64", 64),
        ("e4-highcpu-4", 4),
        ("c6-standard-16-lssd", 16),
    ],
)
def test_newer_general_purpose_family_is_usable_and_boots_from_hyperdisk(
    name: str, vcpus: int
) -> None:
    machine = find_machine_type(name)
    assert machine is not None
    assert (machine.vcpus, machine.memory_gib, machine.gpu) == (vcpus, None, None)
    assert machine.family.boot_disks == (HYPERDISK_BALANCED,)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a9-ultragpu-8g", "does not know"),
        ("g9-standard-48", "does not know"),
        ("g10-standard-48", "does not know"),
        ("ct7e-standard-4t", "does not know"),
        ("a4x-highgpu-4g", "Arm"),
        ("c5a-standard-8", "Arm"),
        ("e4a-standard-8", "Arm"),
        ("g4-standard-24", "vGPU driver"),
        ("tpu7x-standard-4t", "TPU7x"),
    ],
)
def test_machine_type_that_no_job_can_use_is_refused_with_a_reason(name: str, reason: str) -> None:
    assert find_machine_type(name) is None
    assert re.search(reason, refusal_of(name) or "")


@pytest.mark.parametrize(
    "name", ["n1-standard-5", "g2-standard-5", "n3-standard-4", "a2-highgpu-3g", "g1-small", ""]
)
def test_other_unknown_name_has_no_reason(name: str) -> None:
    assert find_machine_type(name) is None
    assert refusal_of(name) is None


def test_machine_type_of_the_table_is_never_refused() -> None:
    assert {
        name: refusal
        for name in (*(line.split()[0] for line in RECORDED), *MACHINE_TYPES)
        if (refusal := refusal_of(name)) is not None
    } == {}


@pytest.mark.parametrize("name", GENERATIONS)
def test_slices_of_a_generation_consist_of_its_hosts(name: str) -> None:
    table = GENERATIONS[name]
    assert CHIPS_PER_HOST in table.hosts_by_chips
    for size, topology in table.topologies.items():
        chips = 1
        for edge in topology.split("x"):
            chips *= int(edge)
        assert table.chips(size) == chips
        assert chips in table.hosts_by_chips or chips == table.hosts(size) * CHIPS_PER_HOST
    assert bool(table.machine_family) is bool(table.gke_label), (
        "GKE names every host that is a machine type"
    )
