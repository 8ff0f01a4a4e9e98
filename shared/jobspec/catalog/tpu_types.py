"""Cloud TPUs: generations, slices, hosts; the names of three APIs for them.

A *slice* is what a replica gets: some chips, connected, and the hosts (TPU VMs) they are in. It is named by what Cloud
TPU counts, which is TensorCores up to v5p (two to a chip) and chips for v5e and v6e (one TensorCore each):

    AI Platform  cloud_tpu + {type: TPU_V3, count: 8}          the count is the number in Cloud TPU's name
    Vertex AI    ct5lp-hightpu-4t + tpuTopology 4x4            the topology counts chips
    Cloud TPU    v3-8, v5litepod-16                            what the plan says
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CHIPS_PER_HOST: Final = 4
"""Of slices of several hosts, in every generation. Source: Cloud TPU, the configuration pages of v2 to v6e."""
_CUBE_EDGE: Final = 4


@dataclass(frozen=True, slots=True)
class Generation:
    """`prefix` of Cloud TPU's type names. `topologies`: the number in the name → how the chips are arranged.

    `whole_hosts`: sizes in chips that are one host. `runtime`: Cloud TPU's software version, for PyTorch and JAX and
    for TensorFlow from a package. `pod_zones`: of slices of several hosts, where these are fewer.
    `chips_max`: of the largest slice that is arranged freely (of cubes of 4x4x4); 0: only the table's.
    """

    prefix: str
    cores_per_chip: int
    runtime: str
    topologies: Mapping[int, str]
    zones: tuple[str, ...]
    whole_hosts: tuple[int, ...] = (CHIPS_PER_HOST,)
    pod_zones: tuple[str, ...] = ()
    chips_max: int = 0

    def name(self, number: int) -> str:
        return f"{self.prefix}-{number}"

    def chips(self, number: int) -> int:
        return number // self.cores_per_chip

    def hosts(self, number: int) -> int:
        chips = self.chips(number)
        return 1 if chips in self.whole_hosts else chips // CHIPS_PER_HOST

    def number_of(self, topology: str) -> int | None:
        """The number in the name of a slice of this shape; None where there is none."""
        for number, shape in self.topologies.items():
            if shape == topology:
                return number
        edges = (
            [int(edge) for edge in topology.split("x")] if re.fullmatch(r"[0-9]{1,4}(x[0-9]{1,4}){2}", topology) else []
        )
        chips = math.prod(edges)
        is_cubes = bool(edges) and edges == sorted(edges) and all(edge and edge % _CUBE_EDGE == 0 for edge in edges)
        return chips * self.cores_per_chip if is_cubes and chips <= self.chips_max else None


_FLAT: Final = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_SOLID: Final = {
    8: "2x2x1",
    16: "2x2x2",
    32: "2x2x4",
    64: "2x4x4",
    128: "4x4x4",
    256: "4x4x8",
    512: "4x8x8",
    1024: "8x8x8",
    2048: "8x8x16",
    4096: "8x16x16",
}

# Source of sizes, shapes and hosts: Cloud TPU's pages of each version; of zones: "TPU regions and zones"; of software
# versions: "TPU software versions" (all 2026). v2 and v3 have no end date, but only Cloud TPU's own API sells them.
GENERATIONS: Final = {
    "v2": Generation(
        "v2",
        2,
        "tpu-ubuntu2204-base",
        {8: "2x2", 32: "4x4", 128: "8x8", 256: "8x16", 512: "16x16"},
        zones=("us-central1-b", "us-central1-c", "europe-west4-a", "asia-east1-c"),
        pod_zones=("us-central1-a", "europe-west4-a"),
    ),
    "v3": Generation(
        "v3",
        2,
        "tpu-ubuntu2204-base",
        {8: "2x2", 32: "4x4", 64: "4x8", 128: "8x8", 256: "8x16", 512: "16x16", 1024: "16x32", 2048: "32x32"},
        zones=("us-central1-a", "us-central1-b", "europe-west4-a"),
        pod_zones=("europe-west4-a",),
    ),
    "v4": Generation("v4", 2, "tpu-ubuntu2204-base", _SOLID, zones=("us-central2-b",), chips_max=2048),
    "v5e": Generation(
        "v5litepod",
        1,
        "v2-alpha-tpuv5-lite",
        _FLAT,
        zones=("us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b", "asia-southeast1-b"),
        whole_hosts=(1, 4, 8),
    ),
    "v5p": Generation(
        "v5p",
        2,
        "v2-alpha-tpuv5",
        {**_SOLID, 8192: "16x16x16", 12288: "16x16x24"},
        zones=("us-central1-a", "us-east5-a", "europe-west4-b"),
        chips_max=6144,
    ),
    "v6e": Generation(
        "v6e",
        1,
        "v2-alpha-tpuv6e",
        _FLAT,
        zones=(
            "us-central1-b",
            "us-east1-d",
            "us-east5-a",
            "us-east5-b",
            "europe-west4-a",
            "asia-northeast1-b",
            "southamerica-west1-a",
        ),
        whole_hosts=(1, 4, 8),
    ),
}


@dataclass(frozen=True, slots=True)
class TpuType:
    """An `acceleratorConfig.type`. `counts`: what may stand beside it; it is the number in Cloud TPU's name."""

    generation: str
    counts: tuple[int, ...]


def _counts(generation: str, *, pods: bool | None = None) -> tuple[int, ...]:
    """All sizes; or only those of several hosts (`pods`); or only the others."""
    table = GENERATIONS[generation]
    return tuple(number for number in table.topologies if pods is None or (table.hosts(number) > 1) is pods)


# AI Platform's types, then those that came after it. Its TPU_V2 and TPU_V3 were single hosts, their pods extra types.
TPU_TYPES: Final = {
    "TPU_V2": TpuType("v2", _counts("v2", pods=False)),
    "TPU_V3": TpuType("v3", _counts("v3", pods=False)),
    "TPU_V2_POD": TpuType("v2", _counts("v2", pods=True)),
    "TPU_V3_POD": TpuType("v3", _counts("v3", pods=True)),
    "TPU_V4_POD": TpuType("v4", _counts("v4")),
    "TPU_V4": TpuType("v4", _counts("v4")),
    "TPU_V5_LITEPOD": TpuType("v5e", _counts("v5e")),
    "TPU_V5P": TpuType("v5p", _counts("v5p")),
    "TPU_V6E": TpuType("v6e", _counts("v6e")),
}
TPU_MACHINES: Final = ("cloud_tpu", "cloud-tpu")
"""A machine type that leaves all else to acceleratorConfig: AI Platform's, and Vertex AI's for v2 and v3."""
TPU_DEFAULT: Final = ("TPU_V2", 8)
"""What `cloud_tpu` without an acceleratorConfig is. Source: the service's table of legacy machine types."""


@dataclass(frozen=True, slots=True)
class TpuVm:
    """A machine type whose VMs have TPU chips: those of Compute Engine, GKE and Vertex AI."""

    generation: str
    chips: int

    @property
    def table(self) -> Generation:
        return GENERATIONS[self.generation]

    def makes(self, number: int) -> bool:
        """Whether slices of this size consist of such VMs."""
        chips = self.table.chips(number)
        return chips == self.chips if chips in self.table.whole_hosts else self.chips == CHIPS_PER_HOST


TPU_VMS: Final = {
    "ct4p-hightpu-4t": TpuVm("v4", 4),
    **{f"ct5lp-hightpu-{chips}t": TpuVm("v5e", chips) for chips in (1, 4, 8)},
    "ct5p-hightpu-4t": TpuVm("v5p", 4),
    **{f"ct6e-standard-{chips}t": TpuVm("v6e", chips) for chips in (1, 4, 8)},
}


def zones_of(tpu_type: str) -> tuple[str, ...]:
    """Where Cloud TPU offers slices of this type (`v5litepod-16`)."""
    prefix, _, number = tpu_type.rpartition("-")
    table = next(table for table in GENERATIONS.values() if table.prefix == prefix)
    return table.pod_zones or table.zones if table.hosts(int(number)) > 1 else table.zones
