"""Machine types and GPUs: the service's own names, the machines behind them, and what Compute Engine offers today.

Names are checked against these tables. They do not contain the sizes of families other than n1. Compute Engine checks
those, and its error for an impossible size is shown on the job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainmaster.jobspec.catalog.tpu_types import TPU_MACHINES, TPU_TYPES, TPU_VMS


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
    """The Compute Engine machine behind a machine type of the service."""

    machine_type: str
    gpu: Gpu | None = None

    def __str__(self) -> str:
        return f"{self.machine_type} + {self.gpu}" if self.gpu else self.machine_type


# Source: the service's table of legacy machine types. The Compute shapes of the V100 types are those of the
# corresponding K80 and P100 types, because no public page names them.
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
        "Google stopped offering the NVIDIA K80 on 2024-05-01; the T4 is faster and has more memory per GPU.",
    ),
    "NVIDIA_TESLA_P100": RetiredGpu(
        "NVIDIA_TESLA_T4",
        {1: 1, 2: 2, 4: 4},
        "Google stopped offering the NVIDIA P100 on 2026-09-15; the T4 has the same 16 GB.",
    ),
}
"""Source: Compute Engine's end-of-support pages. P4 and T4 have a date as well, 2027-08-01; the V100 has none."""

# The API's spelling → Compute Engine's. Source: the service's enum, and Vertex AI's for later types.
GPU_NAMES: Final = {
    "NVIDIA_TESLA_K80": "nvidia-tesla-k80",
    "NVIDIA_TESLA_P100": "nvidia-tesla-p100",
    "NVIDIA_TESLA_V100": "nvidia-tesla-v100",
    "NVIDIA_TESLA_P4": "nvidia-tesla-p4",
    "NVIDIA_TESLA_T4": "nvidia-tesla-t4",
    "NVIDIA_TESLA_A100": "nvidia-tesla-a100",
    "NVIDIA_A100_80GB": "nvidia-a100-80gb",
    "NVIDIA_L4": "nvidia-l4",
    "NVIDIA_H100_80GB": "nvidia-h100-80gb",
    "NVIDIA_H100_MEGA_80GB": "nvidia-h100-mega-80gb",
    "NVIDIA_H200_141GB": "nvidia-h200-141gb",
    "NVIDIA_B200": "nvidia-b200",
    "NVIDIA_RTX_PRO_6000": "nvidia-rtx-pro-6000",
}
ACCELERATOR_TYPES: Final = (*GPU_NAMES, *TPU_TYPES)

# Valid counts by the n1 machine's vCPUs. Source: the service's "Using GPUs" as encoded by tensorflow_cloud (gcp.py).
GPU_COUNTS: Final[dict[str, dict[int, tuple[int, ...]]]] = {
    # up to vCPUs:            8                 16               32             64         96
    "NVIDIA_TESLA_K80": {8: (1, 2, 4, 8), 16: (2, 4, 8), 32: (4, 8), 64: (8,), 96: ()},
    "NVIDIA_TESLA_P4": {8: (1, 2, 4), 16: (1, 2, 4), 32: (2, 4), 64: (4,), 96: (4,)},
    "NVIDIA_TESLA_T4": {8: (1, 2, 4), 16: (1, 2, 4), 32: (2, 4), 64: (4,), 96: (4,)},
    "NVIDIA_TESLA_P100": {8: (1, 2, 4), 16: (1, 2, 4), 32: (2, 4), 64: (4,), 96: ()},
    "NVIDIA_TESLA_V100": {8: (1, 2, 4, 8), 16: (2, 4, 8), 32: (4, 8), 64: (8,), 96: (8,)},
}
_ONLY_HIGHCPU_AT_64: Final = ("NVIDIA_TESLA_K80", "NVIDIA_TESLA_P100")

# Machine types with built-in GPUs. Source: Compute Engine "GPU machine types".
BUILT_IN_GPUS: Final = {
    **{f"g2-standard-{size}": Gpu("NVIDIA_L4", 1) for size in (4, 8, 12, 16, 32)},
    "g2-standard-24": Gpu("NVIDIA_L4", 2),
    "g2-standard-48": Gpu("NVIDIA_L4", 4),
    "g2-standard-96": Gpu("NVIDIA_L4", 8),
    **{f"a2-highgpu-{count}g": Gpu("NVIDIA_TESLA_A100", count) for count in (1, 2, 4, 8)},
    "a2-megagpu-16g": Gpu("NVIDIA_TESLA_A100", 16),
    **{f"a2-ultragpu-{count}g": Gpu("NVIDIA_A100_80GB", count) for count in (1, 2, 4, 8)},
    **{f"a3-highgpu-{count}g": Gpu("NVIDIA_H100_80GB", count) for count in (1, 2, 4, 8)},
    "a3-megagpu-8g": Gpu("NVIDIA_H100_MEGA_80GB", 8),
    "a3-ultragpu-8g": Gpu("NVIDIA_H200_141GB", 8),
    "a3-edgegpu-8g": Gpu("NVIDIA_H100_80GB", 8),
    "a4-highgpu-8g": Gpu("NVIDIA_B200", 8),
    **{f"g4-standard-{48 * count}": Gpu("NVIDIA_RTX_PRO_6000", count) for count in (1, 2, 4, 8)},
}

GPUS_WITHOUT_DRIVER: Final = {"nvidia-tesla-v100": "NVIDIA_TESLA_V100", "nvidia-tesla-p4": "NVIDIA_TESLA_P4"}
"""GPUs older than Turing, in both spellings: the default images have NVIDIA's open kernel modules, which begin with it.
Source: NVIDIA's driver installation guide, "Kernel Modules"."""

_SPOT: Final = "as Spot VMs"
_SPOT_OR_RESERVED: Final = "as Spot VMs and from a reservation"
NEVER_ON_DEMAND: Final = {
    **{f"a3-highgpu-{count}g": _SPOT for count in (1, 2, 4)},
    "a3-ultragpu-8g": _SPOT_OR_RESERVED,
    "a4-highgpu-8g": _SPOT_OR_RESERVED,
}
"""Machine types that Compute Engine does not sell on demand, and how it sells them. Flex-start, which it offers for all
of them, is not supported here for VMs. Source: "Accelerator-optimized machine family", provisioning options."""

_N1_SIZES: Final = {
    "standard": (1, 2, 4, 8, 16, 32, 64, 96),
    "highmem": (2, 4, 8, 16, 32, 64, 96),
    "highcpu": (2, 4, 8, 16, 32, 64, 96),
}
N1_MACHINES: Final = {f"n1-{kind}-{size}": size for kind, sizes in _N1_SIZES.items() for size in sizes}
"""n1 machine type → vCPUs. The service did not list the smallest ones; Compute Engine offers them."""

# Only x86 families, because the images are for x86. Source: Compute Engine "Machine families".
_OTHER_MACHINES: Final = re.compile(
    r"(n2|n2d|n4|n4d|e2|c2|c2d|c3|c3d|c4|c4d|t2d|m1|m2|m3)-(standard|highmem|highcpu|ultramem|megamem|hypermem)"
    r"-[1-9][0-9]{0,2}(-lssd)?"
    r"|e2-(micro|small|medium)"
    r"|(e2|n1|n2|n2d|n4)-custom-[1-9][0-9]{0,2}-[1-9][0-9]{2,6}(-ext)?"
)
_ARM_MACHINES: Final = re.compile(r"(a4x|c4a|n4a|t2a)-.+")


def is_compute_machine(name: str) -> bool:
    return name in N1_MACHINES or name in BUILT_IN_GPUS or _OTHER_MACHINES.fullmatch(name) is not None


def is_arm_machine(name: str) -> bool:
    return _ARM_MACHINES.fullmatch(name) is not None


def valid_gpu_counts(gpu_type: str, machine_type: str) -> tuple[int, ...]:
    """Return the numbers of GPUs of the type that can be attached to the machine; empty if none can."""
    vcpus = N1_MACHINES.get(machine_type)
    if vcpus is None or gpu_type not in GPU_COUNTS:
        return ()
    column = min(limit for limit in GPU_COUNTS[gpu_type] if vcpus <= limit)
    if column == N1_MACHINES["n1-highcpu-64"] and gpu_type in _ONLY_HIGHCPU_AT_64 and "highcpu" not in machine_type:
        return ()
    return GPU_COUNTS[gpu_type][column]


def is_legal_offer(machine_type: str, *, spot: bool, reserved: bool) -> bool:
    """Return whether Compute Engine sells the machine type in this way."""
    offer = NEVER_ON_DEMAND.get(machine_type)
    return offer is None or spot or (reserved and offer == _SPOT_OR_RESERVED)


def known_machine_names() -> tuple[str, ...]:
    """Return names to suggest for an unknown one."""
    return (
        *LEGACY_MACHINES,
        *TPU_MACHINES,
        *TPU_VMS,
        *N1_MACHINES,
        *BUILT_IN_GPUS,
        "n2-standard-8",
        "e2-standard-4",
        "c3-standard-8",
    )
