"""Cloud TPUs: generations, slices and hosts, and their names in three APIs.

A replica gets a *slice*: connected chips, and the hosts (TPU VMs) that contain them. The number in its type name is its
*size*. It counts TensorCores up to v5p (two per chip), and chips for v5e and v6e (one TensorCore each):

    AI Platform  cloud_tpu + {type: TPU_V3, count: 8}          the count is the size
    Vertex AI    ct5lp-hightpu-4t + tpuTopology 4x4            the topology counts chips
    Cloud TPU    v3-8, v5litepod-16                            the type name in a plan
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CHIPS_PER_HOST: Final = 4
"""Chips per host of a slice of several hosts, in every generation. Source: Cloud TPU's pages of v2 to v6e."""
_CUBE_EDGE: Final = 4


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
    whole_hosts: tuple[int, ...] = (CHIPS_PER_HOST,)
    """Numbers of chips that one host has."""
    pod_zones: tuple[str, ...] = ()
    """Zones of slices of several hosts; empty: the same as `zones`."""
    chips_max: int = 0
    """Chips of the largest slice that may have any arrangement of cubes of 4x4x4; 0: only those in the table."""

    def type_name(self, size: int) -> str:
        return f"{self.prefix}-{size}"

    def chips(self, size: int) -> int:
        return size // self.cores_per_chip

    def hosts(self, size: int) -> int:
        chips = self.chips(size)
        return 1 if chips in self.whole_hosts else chips // CHIPS_PER_HOST

    def size_of(self, topology: str) -> int | None:
        """Return the size of a slice with this topology; None if there is none."""
        for size, known in self.topologies.items():
            if known == topology:
                return size
        is_three_dimensional = re.fullmatch(r"[0-9]{1,4}(x[0-9]{1,4}){2}", topology) is not None
        edges = [int(edge) for edge in topology.split("x")] if is_three_dimensional else []
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

# Sources (all 2026): Cloud TPU's pages of each version (sizes, topologies, hosts), "TPU regions and zones" (zones),
# "TPU software versions" (runtime). v2 and v3 have no end date; only Cloud TPU's own API offers them.
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
    """A value of `acceleratorConfig.type`."""

    generation: str
    sizes: tuple[int, ...]
    """Legal values of `acceleratorConfig.count`."""


def _sizes(generation: str, *, pods: bool | None = None) -> tuple[int, ...]:
    """Return the sizes of slices of several hosts (`pods`), of single hosts (not `pods`), or all (None)."""
    table = GENERATIONS[generation]
    return tuple(size for size in table.topologies if pods is None or (table.hosts(size) > 1) is pods)


# AI Platform's types, then later ones. AI Platform's TPU_V2 and TPU_V3 are single hosts; its pods are separate types.
TPU_TYPES: Final = {
    "TPU_V2": TpuType("v2", _sizes("v2", pods=False)),
    "TPU_V3": TpuType("v3", _sizes("v3", pods=False)),
    "TPU_V2_POD": TpuType("v2", _sizes("v2", pods=True)),
    "TPU_V3_POD": TpuType("v3", _sizes("v3", pods=True)),
    "TPU_V4_POD": TpuType("v4", _sizes("v4")),
    "TPU_V4": TpuType("v4", _sizes("v4")),
    "TPU_V5_LITEPOD": TpuType("v5e", _sizes("v5e")),
    "TPU_V5P": TpuType("v5p", _sizes("v5p")),
    "TPU_V6E": TpuType("v6e", _sizes("v6e")),
}
TPU_MACHINES: Final = ("cloud_tpu", "cloud-tpu")
"""Machine types whose TPU acceleratorConfig names: that of AI Platform, and that of Vertex AI for v2 and v3."""
TPU_DEFAULT: Final = ("TPU_V2", 8)
"""Type and size of `cloud_tpu` without an acceleratorConfig. Source: the service's table of legacy machine types."""


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
        return chips == self.chips if chips in self.generation_table.whole_hosts else self.chips == CHIPS_PER_HOST


TPU_VMS: Final = {
    "ct4p-hightpu-4t": TpuVm("v4", 4),
    **{f"ct5lp-hightpu-{chips}t": TpuVm("v5e", chips) for chips in (1, 4, 8)},
    "ct5p-hightpu-4t": TpuVm("v5p", 4),
    **{f"ct6e-standard-{chips}t": TpuVm("v6e", chips) for chips in (1, 4, 8)},
}


def zones_of(tpu_type: str) -> tuple[str, ...]:
    """Return the zones in which Cloud TPU offers slices of this type (`v5litepod-16`)."""
    prefix, _, size = tpu_type.rpartition("-")
    table = next(table for table in GENERATIONS.values() if table.prefix == prefix)
    return table.pod_zones or table.zones if table.hosts(int(size)) > 1 else table.zones
