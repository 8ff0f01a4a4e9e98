"""The parts of a machine type that have prices: vCPUs, memory and local SSDs.

Source: Compute Engine "Machine families resource and comparison guide" and "GPU machine types". Types whose memory does
not follow from their name by one rule are left out, unless they are listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

_GIB_PER_VCPU: Final = {
    "n1": {"standard": "3.75", "highmem": "6.5", "highcpu": "0.9"},
    "n2": {"standard": "4", "highmem": "8", "highcpu": "1"},
    "n2d": {"standard": "4", "highmem": "8", "highcpu": "1"},
    "n4": {"standard": "4", "highmem": "8", "highcpu": "2"},
    "e2": {"standard": "4", "highmem": "8", "highcpu": "1"},
    "c2": {"standard": "4"},
    "c2d": {"standard": "4", "highmem": "8", "highcpu": "2"},
    "c3": {"standard": "4", "highmem": "8", "highcpu": "2"},
    "c3d": {"standard": "4", "highmem": "8"},
    "c4": {"standard": "3.75", "highmem": "7.75", "highcpu": "2"},
    "t2d": {"standard": "4"},
    "g2": {"standard": "4"},
}
"""Series → kind → memory per vCPU."""
_EXCEPTIONS: Final = {"n2-highmem-128", "c4-standard-2", "c4-highmem-2"}
"""Types with less memory than the rule of their kind says."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The priced parts of a machine type."""

    series: str
    vcpus: Decimal
    """Billed vCPUs; shared-core types have fractions of one."""
    memory_gib: Decimal
    local_ssd_gib: int = 0
    """Local SSDs that are part of the type, and are charged separately."""


def _shape(series: str, vcpus: float, memory_gib: float, local_ssd_gib: int = 0) -> Shape:
    return Shape(series, Decimal(str(vcpus)), Decimal(str(memory_gib)), local_ssd_gib)


_LISTED: Final = {
    "n2-highmem-128": _shape("n2", 128, 864),
    "e2-micro": _shape("e2", 0.25, 1),
    "e2-small": _shape("e2", 0.5, 2),
    "e2-medium": _shape("e2", 1, 4),
    **{f"a2-highgpu-{gpus}g": _shape("a2", 12 * gpus, 85 * gpus) for gpus in (1, 2, 4, 8)},
    "a2-megagpu-16g": _shape("a2", 96, 1360),
    **{f"a2-ultragpu-{gpus}g": _shape("a2", 12 * gpus, 170 * gpus, 375 * gpus) for gpus in (1, 2, 4, 8)},
    **{f"a3-highgpu-{gpus}g": _shape("a3", 26 * gpus, 234 * gpus, 750 * gpus) for gpus in (1, 2, 4, 8)},
}
_NAME: Final = re.compile(r"([a-z0-9]+)-(standard|highmem|highcpu)-([1-9][0-9]{0,2})")


def shape_of(machine_type: str) -> Shape | None:
    """Return the shape; None if it is not certain."""
    if machine_type in _LISTED:
        return _LISTED[machine_type]
    match = _NAME.fullmatch(machine_type)
    per_vcpu = _GIB_PER_VCPU.get(match[1], {}).get(match[2]) if match else None
    if match is None or per_vcpu is None or machine_type in _EXCEPTIONS:
        return None
    vcpus = Decimal(match[3])
    return Shape(match[1], vcpus, vcpus * Decimal(per_vcpu))
