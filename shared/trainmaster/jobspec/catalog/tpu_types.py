"""How the job formats name Cloud TPUs. What each TPU is, is in `core.machines.tpus`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.core.machines.tpus import GENERATIONS


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
