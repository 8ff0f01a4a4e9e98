"""Select a machine where none is named: the smallest one with given resources or GPUs.

Tasks of other tools, pods of Kubernetes and messages about wrong machine types need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

from trainmaster.core.machines.machine_types import MACHINE_TYPES
from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_NAMES,
    TPU_TYPES,
    Gpu,
    valid_gpu_counts,
)

CPU_LEAST: Final = 4
MEMORY_GIB_LEAST: Final = 15
"""Resources are lower bounds: even a small demand gets an n1-standard-4, as the tier BASIC."""
_LARGE_A100_GIB: Final = 80
"""Memory of the larger A100; the smaller one has 40 GiB."""
_GPUS: Final = {re.sub(r"NVIDIA_|TESLA_|_|80GB$|141GB$", "", name): name for name in GPU_NAMES} | {
    "A10080GB": "NVIDIA_A100_80GB",
    "A100": "NVIDIA_TESLA_A100",
    "RTXPRO6000": "NVIDIA_RTX_PRO_6000",
}
"""Other tools' name, without punctuation → the API's accelerator type."""
_TPU: Final = re.compile(r"(?:tpu-)?(v2|v3|v4|v5litepod|v5e|v5p|v6e)-(\d+)", re.IGNORECASE)
_TPU_TYPES: Final = {
    "v2": "TPU_V2",
    "v3": "TPU_V3",
    "v4": "TPU_V4",
    "v5litepod": "TPU_V5_LITEPOD",
    "v5e": "TPU_V5_LITEPOD",
    "v5p": "TPU_V5P",
    "v6e": "TPU_V6E",
}


@dataclass(frozen=True, slots=True)
class Demand:
    """The resources that one machine must have."""

    vcpus: Decimal
    memory_gib: Decimal
    gpu_type: str | None = None
    """The API's accelerator type."""
    gpus: int = 0

    @classmethod
    def of_gpus(cls, gpu_type: str, gpus: int) -> Demand:
        return cls(Decimal(0), Decimal(0), gpu_type, gpus)

    @classmethod
    def of_cpus(cls, vcpus: int, memory_gib: float) -> Demand:
        return cls(Decimal(vcpus), Decimal(memory_gib))


class _Shape(NamedTuple):
    """The size of a machine type."""

    machine: str
    vcpus: int
    memory_gib: Decimal


def select_machine(demand: Demand) -> str | None:
    """Return the smallest machine type for the demand; None if no known one is large enough.

    Fewer vCPUs count as smaller, then less memory.
    """
    vcpus_min = max(demand.vcpus, Decimal(CPU_LEAST))
    memory_gib_min = max(demand.memory_gib, Decimal(MEMORY_GIB_LEAST))
    fitting = [
        shape
        for shape in _shapes(demand)
        if shape.vcpus >= vcpus_min and shape.memory_gib >= memory_gib_min
    ]
    if not fitting:
        return None
    return min(fitting, key=lambda shape: (shape.vcpus, shape.memory_gib)).machine


def _shapes(demand: Demand) -> Iterator[_Shape]:
    """Yield each machine type with exactly the GPUs of the demand, built in or attached."""
    gpu = Gpu(demand.gpu_type, demand.gpus) if demand.gpu_type else None
    for name, machine in MACHINE_TYPES.items():
        if machine.family.attaches_gpus:
            has_gpus = gpu is None or gpu.count in valid_gpu_counts(gpu.type, name)
        else:
            has_gpus = gpu is not None and BUILT_IN_GPUS.get(name) == gpu
        if has_gpus and machine.memory_gib is not None:
            yield _Shape(name, machine.vcpus, machine.memory_gib)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """GPUs or a TPU of one node, in the API's names."""

    type: str
    count: int

    @property
    def is_tpu(self) -> bool:
        return self.type in TPU_TYPES


def accelerator_of(name: str, count: int, memory_gib: Decimal | None = None) -> Accelerator | None:
    """Return the accelerator that another tool names; None: Compute Engine has none of it."""
    tpu = _TPU.fullmatch(name.strip())
    if tpu:
        generation, size = tpu.groups()
        return Accelerator(_TPU_TYPES[generation.lower()], int(size))
    key = re.sub(r"^NVIDIA(TESLA)?|[^A-Z0-9]", "", re.sub(r"[^A-Z0-9]", "", name.upper()))
    if key == "A100" and memory_gib is not None and memory_gib >= _LARGE_A100_GIB:
        key = "A10080GB"
    gpu = _GPUS.get(key) or _GPUS.get(key.removesuffix("80GB"))
    return Accelerator(gpu, count) if gpu else None
