"""Types of GPUs, by Compute Engine's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class GpuType:
    """One type of GPU."""

    sku: str = ""
    """Its name in the descriptions of prices, as a regular expression. Empty: not certain."""
    counts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """vCPUs of an n1 machine, at most → numbers of GPUs that can be attached.

    Empty: built into machine types only.
    """
    has_driver: bool = True
    """Whether the driver of the default images supports it.

    They have NVIDIA's open kernel modules, which begin with Turing. Source: NVIDIA's driver
    installation guide, "Kernel Modules".
    """
    only_highcpu_at_64: bool = False
    """Whether n1-standard-64 and n1-highmem-64 cannot have it."""
    api_number: int | None = None
    """Number of its name in Vertex AI's enum AcceleratorType; None: it has none."""


# Counts: AI Platform Training's "Using GPUs" as encoded by tensorflow_cloud (gcp.py).
_FOUR: Final = {8: (1, 2, 4), 16: (1, 2, 4), 32: (2, 4), 64: (4,), 96: (4,)}
_EIGHT: Final = {8: (1, 2, 4, 8), 16: (2, 4, 8), 32: (4, 8), 64: (8,), 96: (8,)}

GPUS: Final = {
    "nvidia-tesla-k80": GpuType(
        counts={**_EIGHT, 96: ()}, has_driver=False, only_highcpu_at_64=True, api_number=1
    ),
    "nvidia-tesla-p100": GpuType(
        "Nvidia Tesla P100",
        {**_FOUR, 96: ()},
        has_driver=False,
        only_highcpu_at_64=True,
        api_number=2,
    ),
    "nvidia-tesla-v100": GpuType("Nvidia Tesla V100", _EIGHT, has_driver=False, api_number=3),
    "nvidia-tesla-p4": GpuType("Nvidia Tesla P4", _FOUR, has_driver=False, api_number=4),
    "nvidia-tesla-t4": GpuType("Nvidia Tesla T4", _FOUR, api_number=5),
    "nvidia-tesla-a100": GpuType("Nvidia Tesla A100", api_number=8),
    "nvidia-a100-80gb": GpuType("Nvidia (?:Tesla )?A100 80GB", api_number=9),
    "nvidia-l4": GpuType("Nvidia L4", api_number=11),
    "nvidia-h100-80gb": GpuType("Nvidia H100 80GB", api_number=13),
    "nvidia-h100-mega-80gb": GpuType(api_number=14),
    "nvidia-h200-141gb": GpuType(api_number=15),
    "nvidia-b200": GpuType(api_number=16),
    "nvidia-rtx-pro-6000": GpuType(api_number=18),
}
