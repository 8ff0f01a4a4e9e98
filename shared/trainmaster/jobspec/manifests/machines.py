"""From a pod's resources and node selector to the machine of a worker pool.

GKE's labels name the accelerator; Compute Engine sells machine types. The smallest machine type with the GPUs, vCPUs
and memory is selected, unless `node.kubernetes.io/instance-type` names one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    GPU_NAMES,
    N1_MACHINES,
    valid_gpu_counts,
)

CPU_LEAST: Final = 4
MEMORY_GIB_LEAST: Final = 15
"""The smallest machine that is selected is n1-standard-4, as for the tier BASIC: requests are lower bounds."""

GPU_LABELS: Final = {name: accelerator for accelerator, name in GPU_NAMES.items()}
"""Value of `cloud.google.com/gke-accelerator` → the API's accelerator type. GKE uses Compute Engine's names."""
TPU_FAMILIES: Final = {
    "tpu-v4-podslice": "ct4p-hightpu",
    "tpu-v5-lite-podslice": "ct5lp-hightpu",
    "tpu-v5p-slice": "ct5p-hightpu",
    "tpu-v6e-slice": "ct6e-standard",
}
"""Value of `cloud.google.com/gke-tpu-accelerator` → machine family. Source: GKE, "Plan TPUs"."""

_N1_GIB_PER_VCPU: Final = {"standard": Decimal("3.75"), "highmem": Decimal("6.5"), "highcpu": Decimal("0.9")}
# vCPUs and GiB per GPU. Source: Compute Engine, "GPU machine types".
_SHAPES_PER_GPU: Final = {
    "a2-highgpu": (12, 85),
    "a2-megagpu": (6, 85),
    "a2-ultragpu": (12, 170),
    "a3-highgpu": (26, 234),
    "a3-megagpu": (26, 234),
    "a3-ultragpu": (28, 369),
    "a4-highgpu": (28, 496),
}
_GIB_PER_VCPU: Final = {"g2-standard": Decimal(4), "g4-standard": Decimal("3.75")}


@dataclass(frozen=True, slots=True)
class Demand:
    """The resources that one pod requests."""

    vcpus: Decimal
    memory_gib: Decimal
    gpu_type: str | None = None
    """The API's accelerator type."""
    gpus: int = 0


def select_machine(demand: Demand) -> str | None:
    """Return the smallest machine type for the demand; None if no known one is large enough."""
    vcpus, memory = max(demand.vcpus, Decimal(CPU_LEAST)), max(demand.memory_gib, Decimal(MEMORY_GIB_LEAST))
    fitting = [shape for shape in _shapes(demand) if shape[0] >= vcpus and shape[1] >= memory]
    return min(fitting)[2] if fitting else None


def _shapes(demand: Demand) -> Iterator[tuple[Decimal, Decimal, str]]:
    """Yield vCPUs, GiB and name of each machine type with exactly the GPUs of the demand."""
    if demand.gpu_type is None or demand.gpu_type in GPU_COUNTS:
        for name, vcpus in N1_MACHINES.items():
            if demand.gpu_type is None or demand.gpus in valid_gpu_counts(demand.gpu_type, name):
                yield Decimal(vcpus), vcpus * _N1_GIB_PER_VCPU[name.split("-")[1]], name
        return
    for name, gpu in BUILT_IN_GPUS.items():
        family, _, size = name.rpartition("-")
        if (gpu.type, gpu.count) != (demand.gpu_type, demand.gpus):
            continue
        if family in _SHAPES_PER_GPU:
            vcpus_per_gpu, gib_per_gpu = _SHAPES_PER_GPU[family]
            yield Decimal(vcpus_per_gpu * gpu.count), Decimal(gib_per_gpu * gpu.count), name
        elif family in _GIB_PER_VCPU:
            yield Decimal(size), int(size) * _GIB_PER_VCPU[family], name
