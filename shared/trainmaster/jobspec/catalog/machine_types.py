"""The names of machines, GPUs and TPUs in the job formats, and what replaces retired GPUs.

`core.machines` has the properties of each machine type, GPU and TPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from trainmaster.core.machines.gpus import GPUS
from trainmaster.core.machines.machine_types import MACHINE_TYPES
from trainmaster.core.machines.tpus import GENERATIONS


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPUs of a VM."""

    type: str
    """In the API's spelling: `NVIDIA_TESLA_T4`."""
    count: int
    """Number per VM."""

    def __str__(self) -> str:
        return f"{self.count} x {self.type}"


@dataclass(frozen=True, slots=True)
class LegacyMachine:
    """The Compute Engine machine behind a machine type of AI Platform Training, the service."""

    machine_type: str
    gpu: Gpu | None = None

    def __str__(self) -> str:
        return f"{self.machine_type} + {self.gpu}" if self.gpu else self.machine_type


# Source: the service's table of legacy machine types. The Compute shapes of the V100 types are
# those of the corresponding K80 and P100 types, because no public page names them.
LEGACY_MACHINES: Final = {
    "standard": LegacyMachine("n1-standard-4"),
    "large_model": LegacyMachine("n1-highmem-8"),
    "complex_model_s": LegacyMachine("n1-highcpu-8"),
    "complex_model_m": LegacyMachine("n1-highcpu-16"),
    "complex_model_l": LegacyMachine("n1-highcpu-32"),
    "standard_gpu": LegacyMachine("n1-standard-8", Gpu("NVIDIA_TESLA_K80", 1)),
    "complex_model_m_gpu": LegacyMachine("n1-standard-16", Gpu("NVIDIA_TESLA_K80", 4)),
    "complex_model_l_gpu": LegacyMachine("n1-standard-32", Gpu("NVIDIA_TESLA_K80", 8)),
    "standard_p100": LegacyMachine("n1-standard-8", Gpu("NVIDIA_TESLA_P100", 1)),
    "complex_model_m_p100": LegacyMachine("n1-standard-16", Gpu("NVIDIA_TESLA_P100", 4)),
    "standard_v100": LegacyMachine("n1-standard-8", Gpu("NVIDIA_TESLA_V100", 1)),
    "large_model_v100": LegacyMachine("n1-highmem-8", Gpu("NVIDIA_TESLA_V100", 1)),
    "complex_model_m_v100": LegacyMachine("n1-standard-16", Gpu("NVIDIA_TESLA_V100", 4)),
    "complex_model_l_v100": LegacyMachine("n1-standard-32", Gpu("NVIDIA_TESLA_V100", 8)),
}


@dataclass(frozen=True, slots=True)
class RetiredGpu:
    """A GPU type that Google no longer offers."""

    replaced_by: str
    """The replacement, in the API's spelling."""
    counts: dict[int, int]
    """Number of retired GPUs → number of replacements; both fit the same machine (GPU_COUNTS)."""
    reason: str
    """The sentence that the substitution shows."""


RETIRED_GPUS: Final = {
    "NVIDIA_TESLA_K80": RetiredGpu(
        "NVIDIA_TESLA_T4",
        {1: 1, 2: 2, 4: 4, 8: 4},  # a T4 has twice the throughput of a K80 die; four is the maximum
        "Google stopped offering the NVIDIA K80 on 2024-05-01; the T4 is faster and has more memory"
        " per GPU.",
    ),
    "NVIDIA_TESLA_P100": RetiredGpu(
        "NVIDIA_TESLA_T4",
        {1: 1, 2: 2, 4: 4},
        "Google stopped offering the NVIDIA P100 on 2026-09-15; the T4 has the same 16 GB.",
    ),
}
"""Source: Compute Engine's end-of-support pages.

P4 and T4 have a date as well, 2027-08-01; the V100 has none.
"""


class TpuType(NamedTuple):
    """A value of `acceleratorConfig.type`. `sizes`: legal values of `acceleratorConfig.count`."""

    generation: str
    sizes: tuple[int, ...]


def _sizes(generation: str, *, pods: bool | None = None) -> tuple[int, ...]:
    """Return the sizes of slices: of several hosts (`pods`), of one host (not `pods`), or all."""
    table = GENERATIONS[generation]
    if pods is None:
        return tuple(table.topologies)
    return tuple(size for size in table.topologies if (table.hosts(size) > 1) is pods)


# AI Platform's types, then later ones. AI Platform's TPU_V2 and TPU_V3 are single hosts; its pods
# are separate types.
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
VERTEX_TPU_TYPES: Final = {
    **TPU_TYPES,
    **{f"TPU_{name.upper()}": TpuType(name, _sizes(name)) for name in ("v2", "v3")},
}
"""Vertex AI has no types of pods: TPU_V3 with 32 and more is one.

Source: its page "Configure compute", 2026-11.
"""
TPU_MACHINES: Final = ("cloud_tpu", "cloud-tpu")
"""Machine types whose TPU acceleratorConfig names: that of AI Platform, and that of Vertex AI for
v2 and v3.
"""
TPU_DEFAULT: Final = ("TPU_V2", 8)
"""Type and size of `cloud_tpu` without an acceleratorConfig.

Source: the service's table of legacy machine types.
"""

GPU_NAMES: Final = {name.upper().replace("-", "_"): name for name in GPUS}
"""The API's spelling → Compute Engine's.

Source: the service's enum, and Vertex AI's for later types.
"""
ACCELERATOR_TYPES: Final = (*GPU_NAMES, *TPU_TYPES)
"""All values of `acceleratorConfig.type` in AI Platform's format."""
GPU_COUNTS: Final = {name: GPUS[gpu].counts for name, gpu in GPU_NAMES.items() if GPUS[gpu].counts}
"""GPU that can be attached, in the API's spelling → column → valid counts.

A column is the largest number of vCPUs of the n1 machines for which it holds.
"""
_API_NAMES: Final = {gpu: name for name, gpu in GPU_NAMES.items()}
"""Compute Engine's spelling of a GPU → the API's."""
BUILT_IN_GPUS: Final = {
    name: Gpu(_API_NAMES[machine.gpu.type], machine.gpu.count)
    for name, machine in MACHINE_TYPES.items()
    if machine.gpu
}
"""Machine type that has GPUs → which, and how many."""
N1_MACHINES: Final = {
    name: machine.vcpus for name, machine in MACHINE_TYPES.items() if machine.family.attaches_gpus
}
"""n1 machine type → vCPUs."""


def valid_gpu_counts(gpu_type: str, machine_type: str) -> tuple[int, ...]:
    """Return how many GPUs of the type can be attached to the machine; empty if none can."""
    vcpus = N1_MACHINES.get(machine_type)
    if vcpus is None or gpu_type not in GPU_COUNTS:
        return ()
    # Google's table has a column for each range of vCPUs, named by its largest number. The GPUs of
    # some types can be attached to the largest n1 machines of one kind only.
    column = min(limit for limit in GPU_COUNTS[gpu_type] if vcpus <= limit)
    is_only_for_highcpu = (
        column == N1_MACHINES["n1-highcpu-64"] and GPUS[GPU_NAMES[gpu_type]].only_highcpu_at_64
    )
    if is_only_for_highcpu and "highcpu" not in machine_type:
        return ()
    return GPU_COUNTS[gpu_type][column]
