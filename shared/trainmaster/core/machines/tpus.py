"""Cloud TPUs: generations, slices and hosts, and their names in four APIs.

A replica gets a *slice*: connected chips, and the hosts (TPU VMs) that contain them. The number in
its type name is its *size*. It counts TensorCores up to v5p (two per chip), and chips for v5e and
v6e (one TensorCore each):

    AI Platform  cloud_tpu + {type: TPU_V3, count: 8}          the count is the size
    Vertex AI    ct5lp-hightpu-4t + tpuTopology 4x4            the topology counts chips
    GKE          tpu-v5-lite-podslice + topology 4x4           likewise
    Cloud TPU    v3-8, v5litepod-16                            the type name in a plan
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CHIPS_PER_HOST: Final = 4
"""Chips per host of a slice of several hosts, in every generation.

Source: Cloud TPU's pages of v2 to v6e.
"""
_CUBE_EDGE: Final = 4
"""Chips along each edge of the cubes that slices of any arrangement consist of."""


@dataclass(frozen=True, slots=True)
class Host:
    """What one TPU VM has besides its chips. None: not published for certain."""

    vcpus: int | None = None
    memory_gib: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of Cloud TPUs."""

    prefix: str
    """First part of Cloud TPU's type names."""
    cores_per_chip: int
    """TensorCores per chip, as the size counts them."""
    runtime: str
    """Cloud TPU's software version, for PyTorch and JAX, and for TensorFlow from a package."""
    topologies: Mapping[int, str]
    """Size → arrangement of the chips."""
    zones: tuple[str, ...]
    hosts_by_chips: Mapping[int, Host]
    """Number of chips that one host has → that host."""
    machine_family: str = ""
    """Compute Engine's name of the hosts, which GKE and Vertex AI use as well.

    Empty: only Cloud TPU has them.
    """
    gke_label: str = ""
    """Value of GKE's label `cloud.google.com/gke-tpu-accelerator`. Source: GKE, "Plan TPUs"."""
    sku: str = ""
    """Its name in the descriptions of prices per chip.

    Empty: it is priced by device or pod and by continent, and no source says which SKU a slice has.
    """
    pod_zones: tuple[str, ...] = ()
    """Zones of slices of several hosts; empty: the same as `zones`."""
    chips_max: int = 0
    """Chips of the largest slice that may have any arrangement of cubes of 4x4x4; 0: only those in
    the table.
    """

    def type_name(self, size: int) -> str:
        return f"{self.prefix}-{size}"

    def chips(self, size: int) -> int:
        return size // self.cores_per_chip

    def hosts(self, size: int) -> int:
        chips = self.chips(size)
        return 1 if chips in self.hosts_by_chips else chips // CHIPS_PER_HOST

    def size_of(self, topology: str) -> int | None:
        """Return the size of a slice with this topology; None if there is none."""
        for size, known in self.topologies.items():
            if known == topology:
                return size
        is_three_dimensional = re.fullmatch(r"[0-9]{1,4}(x[0-9]{1,4}){2}", topology) is not None
        edges = [int(edge) for edge in topology.split("x")] if is_three_dimensional else []
        chips = math.prod(edges)
        is_cubes = (
            bool(edges)
            and edges == sorted(edges)
            and all(edge and edge % _CUBE_EDGE == 0 for edge in edges)
        )
        return chips * self.cores_per_chip if is_cubes and chips <= self.chips_max else None


def _slices(cores_per_chip: int, shapes: str) -> dict[int, str]:
    """Return the slices with these arrangements of chips, by size."""
    return {
        cores_per_chip * math.prod(map(int, shape.split("x"))): shape for shape in shapes.split()
    }


# Arrangements that several generations share: in two and in three dimensions
_FLAT: Final = _slices(cores_per_chip=1, shapes="1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16")
_SOLID: Final = _slices(
    cores_per_chip=2, shapes="2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16"
)

# Sources (all 2026): Cloud TPU's pages of each version (sizes, topologies, hosts), "TPU regions and
# zones" (zones), "TPU software versions" (runtime), GKE's "Plan TPUs" (vCPUs, memory). v2 and v3
# have no end date; only Cloud TPU's own API offers them. TPU7x is missing, because that API does
# not offer it.
GENERATIONS: Final = {
    "v2": Generation(
        prefix="v2",
        cores_per_chip=2,
        runtime="tpu-ubuntu2204-base",
        topologies=_slices(cores_per_chip=2, shapes="2x2 4x4 8x8 8x16 16x16"),
        zones=("us-central1-b", "us-central1-c", "europe-west4-a", "asia-east1-c"),
        hosts_by_chips={4: Host()},
        pod_zones=("us-central1-a", "europe-west4-a"),
    ),
    "v3": Generation(
        prefix="v3",
        cores_per_chip=2,
        runtime="tpu-ubuntu2204-base",
        topologies=_slices(cores_per_chip=2, shapes="2x2 4x4 4x8 8x8 8x16 16x16 16x32 32x32"),
        zones=("us-central1-a", "us-central1-b", "europe-west4-a"),
        hosts_by_chips={4: Host()},
        pod_zones=("europe-west4-a",),
    ),
    "v4": Generation(
        prefix="v4",
        cores_per_chip=2,
        runtime="tpu-ubuntu2204-base",
        topologies=_SOLID,
        zones=("us-central2-b",),
        hosts_by_chips={4: Host(vcpus=240, memory_gib=407)},
        machine_family="ct4p-hightpu",
        gke_label="tpu-v4-podslice",
        chips_max=2048,
    ),
    "v5e": Generation(
        prefix="v5litepod",
        cores_per_chip=1,
        runtime="v2-alpha-tpuv5-lite",
        topologies=_FLAT,
        zones=(
            "us-central1-a",
            "us-south1-a",
            "us-west1-c",
            "us-west4-a",
            "europe-west4-b",
            "asia-southeast1-b",
        ),
        hosts_by_chips={
            1: Host(vcpus=24, memory_gib=48),
            4: Host(vcpus=112, memory_gib=192),
            8: Host(vcpus=224, memory_gib=384),
        },
        machine_family="ct5lp-hightpu",
        gke_label="tpu-v5-lite-podslice",
        sku="TpuV5e",
    ),
    "v5p": Generation(
        prefix="v5p",
        cores_per_chip=2,
        runtime="v2-alpha-tpuv5",
        topologies={**_SOLID, **_slices(cores_per_chip=2, shapes="16x16x16 16x16x24")},
        zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
        hosts_by_chips={4: Host(vcpus=208, memory_gib=448)},
        machine_family="ct5p-hightpu",
        gke_label="tpu-v5p-slice",
        sku="TpuV5p",
        chips_max=6144,
    ),
    "v6e": Generation(
        prefix="v6e",
        cores_per_chip=1,
        runtime="v2-alpha-tpuv6e",
        topologies=_FLAT,
        zones=(
            "us-central1-b",
            "us-east1-d",
            "us-east5-a",
            "us-east5-b",
            "europe-west4-a",
            "asia-northeast1-b",
            "southamerica-west1-a",
        ),
        # GKE's page has 448 GB for one chip; GKE's own autoscaler counts 176
        hosts_by_chips={
            1: Host(vcpus=44),
            4: Host(vcpus=180, memory_gib=720),
            8: Host(vcpus=180, memory_gib=1440),
        },
        machine_family="ct6e-standard",
        gke_label="tpu-v6e-slice",
        sku="TpuV6e",
    ),
}


@dataclass(frozen=True, slots=True)
class TpuVm:
    """A machine type of Compute Engine, GKE and Vertex AI whose VMs have TPU chips."""

    generation: str
    chips: int
    """Chips per VM."""

    @property
    def generation_table(self) -> Generation:
        return GENERATIONS[self.generation]

    def is_host_of(self, size: int) -> bool:
        """Return True if slices of this size consist of such VMs."""
        chips = self.generation_table.chips(size)
        return (
            chips == self.chips
            if chips in self.generation_table.hosts_by_chips
            else self.chips == CHIPS_PER_HOST
        )


TPU_VMS: Final = {
    f"{table.machine_family}-{chips}t": TpuVm(name, chips)
    for name, table in GENERATIONS.items()
    if table.machine_family
    for chips in table.hosts_by_chips
}


def generation_of(tpu_type: str) -> Generation | None:
    """Return the generation of a type name such as `v5litepod-16`."""
    prefix = tpu_type.rpartition("-")[0]
    return next((table for table in GENERATIONS.values() if table.prefix == prefix), None)


def zones_of(tpu_type: str) -> tuple[str, ...]:
    """Return the zones in which Cloud TPU offers slices of this type (`v5litepod-16`).

    Raises LookupError.
    """
    table = generation_of(tpu_type)
    if table is None:
        raise LookupError(tpu_type)
    return (
        table.pod_zones or table.zones
        if table.hosts(int(tpu_type.rpartition("-")[2])) > 1
        else table.zones
    )
