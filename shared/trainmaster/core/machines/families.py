"""Families of Compute Engine's machine types.

One row has all that the product knows about a family.

Sources: Compute Engine "Machine families resource and comparison guide", "Accelerator-optimized
machine family", "GPU machine types", "Choose a disk type", "Placement policies overview" (November
2026). Prices: the descriptions in Google's own SKU groups and billing examples, and the catalogues
of SkyPilot and dstack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from trainmaster.core.model.purchase import OnDemand, PriceClass, Reserved, Spot

PD_STANDARD: Final = "pd-standard"
PD_BALANCED: Final = "pd-balanced"
PD_SSD: Final = "pd-ssd"
HYPERDISK_BALANCED: Final = "hyperdisk-balanced"
_ANY_PERSISTENT_DISK: Final = (PD_BALANCED, PD_STANDARD, PD_SSD)
_ALSO_HYPERDISK: Final = (PD_BALANCED, PD_SSD, HYPERDISK_BALANCED)
_ONLY_HYPERDISK: Final = (HYPERDISK_BALANCED,)


@dataclass(frozen=True, slots=True)
class Family:
    """Machine types that differ in the number at the end of their name: vCPUs, or GPUs in names
    that end in `g`.
    """

    name: str
    """The part before that number: `n2-standard`, `a3-highgpu`."""
    gib: Decimal | None = None
    """Memory for each one in that number; None: no rule."""
    has_whole_gib: bool = False
    """Whether the memory of its types is rounded down to whole GiB."""
    vcpus: int = 1
    """vCPUs for each one in that number."""
    gpu: str = ""
    """Compute Engine's name of the built-in GPUs; empty: none."""
    gpus: Mapping[int, int] = field(default_factory=dict)
    """Number in the name → built-in GPUs."""
    local_ssd_gib: int = 0
    """Local SSDs that are part of the type, per built-in GPU."""
    sizes_without_gpus: tuple[int, ...] = ()
    boot_disks: tuple[str, ...] = _ANY_PERSISTENT_DISK
    """Disk types that it can boot from, the default first."""
    sales: tuple[type[PriceClass], ...] = (OnDemand, Spot, Reserved)
    """The ways in which Compute Engine sells it."""
    is_reservation_bound: bool = False
    """Whether a VM in a reservation needs the provisioning model RESERVATION_BOUND, and ends with
    the reservation. Source: "About reservation-bound VMs".
    """
    needs_compact_placement: bool = False
    """Whether gangs need a fast network between VMs."""
    nics: int = 1
    """Network interfaces of the largest type.

    VMs of jobs have one, so that a gang cannot use the bandwidth of more.
    """
    attaches_gpus: bool = False
    has_custom_types: bool = False
    sku: str = ""
    """Name of its series in the descriptions of vCPU and memory prices, as a regular expression.

    Empty: not certain.
    """

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers that exist.

        Empty: Compute Engine checks them, and its error is shown on the job.
        """
        return tuple(self.gpus) or self.sizes_without_gpus

    @property
    def series(self) -> str:
        return self.name.partition("-")[0]


def _rows(series: str, memory: Mapping[str, str], **columns: Any) -> Iterator[Family]:
    """Yield a family per kind. `memory`: kind → GiB per vCPU, empty if no rule gives it."""
    for kind, gib in memory.items():
        yield Family(f"{series}-{kind}", Decimal(gib) if gib else None, **columns)


def _with_gpus(
    name: str, gpu: str, gpus: tuple[int, ...], *, vcpus: int, gib: int, **columns: Any
) -> Family:
    """Return a family whose types have their number of GPUs in the name.

    `vcpus`, `gib`: for each GPU.
    """
    return Family(
        name, Decimal(gib), vcpus=vcpus, gpu=gpu, gpus={count: count for count in gpus}, **columns
    )


_MEMORY: Final = {"standard": "4", "highmem": "8", "highcpu": "1"}
_MUCH_MEMORY: Final = {"standard": "4", "highmem": "8", "highcpu": "2"}
_N1_SIZES: Final = (2, 4, 8, 16, 32, 64, 96)
_N1: Final = {"attaches_gpus": True, "has_custom_types": True, "sku": "N1 Predefined Instance"}
_C4: Final = {"boot_disks": _ONLY_HYPERDISK, "has_whole_gib": True}
_A3: Final = {"local_ssd_gib": 750, "boot_disks": _ALSO_HYPERDISK, "needs_compact_placement": True}
_NEVER_ON_DEMAND: Final = {
    "local_ssd_gib": 1500,
    "boot_disks": _ONLY_HYPERDISK,
    "sales": (Spot, Reserved),
    "is_reservation_bound": True,
    "needs_compact_placement": True,
    "nics": 10,
}
_A2: Final = {"needs_compact_placement": True, "sku": "A2 Instance"}

FAMILIES: Final = (
    *_rows("n1", {"standard": "3.75"}, sizes_without_gpus=(1, *_N1_SIZES), **_N1),
    *_rows("n1", {"highmem": "6.5", "highcpu": "0.9"}, sizes_without_gpus=_N1_SIZES, **_N1),
    *_rows("n2", _MEMORY, has_custom_types=True, sku="N2 Instance"),
    *_rows("n2d", _MEMORY, has_custom_types=True, sku="N2D AMD Instance"),
    *_rows(
        "n4", _MUCH_MEMORY, boot_disks=_ONLY_HYPERDISK, has_custom_types=True, sku="N4 Instance"
    ),
    *_rows("n4d", _MUCH_MEMORY, boot_disks=_ONLY_HYPERDISK),
    *_rows("e2", _MEMORY, has_custom_types=True, sku="E2 Instance"),
    *_rows("c2", {"standard": "4"}, sku="Compute optimized(?: Instance)?"),
    *_rows("c2d", _MUCH_MEMORY, sku="C2D AMD Instance"),
    *_rows("c3", _MUCH_MEMORY, boot_disks=_ALSO_HYPERDISK, sku="C3 Instance"),
    *_rows(
        "c3d",
        {"standard": "4", "highmem": "8", "highcpu": ""},
        boot_disks=_ALSO_HYPERDISK,
        sku="C3D Instance",
    ),
    *_rows("c4", {"standard": "3.75", "highmem": "7.75", "highcpu": "2"}, sku="C4 Instance", **_C4),
    *_rows("c4d", {"standard": "3.875", "highmem": "7.75", "highcpu": "1.875"}, **_C4),
    *_rows(
        "h4d",
        {"standard": "3.75", "highmem": "7.75"},
        sizes_without_gpus=(192,),
        boot_disks=_ONLY_HYPERDISK,
    ),
    *_rows("t2d", {"standard": "4"}, sku="T2D AMD Instance"),
    *_rows("m1", {"ultramem": "", "megamem": ""}),
    *_rows("m2", {"ultramem": "", "megamem": "", "hypermem": ""}),
    *_rows("m3", {"ultramem": "30.5", "megamem": "15.25"}, boot_disks=_ALSO_HYPERDISK),
    Family(
        "g2-standard",
        Decimal(4),
        gpu="nvidia-l4",
        gpus={4: 1, 8: 1, 12: 1, 16: 1, 32: 1, 24: 2, 48: 4, 96: 8},
        boot_disks=(PD_BALANCED, PD_SSD),
        sku="G2 Instance",
    ),
    _with_gpus("a2-highgpu", "nvidia-tesla-a100", (1, 2, 4, 8), vcpus=12, gib=85, **_A2),
    _with_gpus("a2-megagpu", "nvidia-tesla-a100", (16,), vcpus=6, gib=85, **_A2),
    _with_gpus(
        "a2-ultragpu", "nvidia-a100-80gb", (1, 2, 4, 8), vcpus=12, gib=170, local_ssd_gib=375, **_A2
    ),
    _with_gpus(
        "a3-highgpu",
        "nvidia-h100-80gb",
        (1, 2, 4),
        vcpus=26,
        gib=234,
        sales=(Spot,),
        sku="A3 Instance",
        **_A3,
    ),
    _with_gpus(
        "a3-highgpu", "nvidia-h100-80gb", (8,), vcpus=26, gib=234, nics=5, sku="A3 Instance", **_A3
    ),
    _with_gpus("a3-megagpu", "nvidia-h100-mega-80gb", (8,), vcpus=26, gib=234, nics=9, **_A3),
    _with_gpus("a3-ultragpu", "nvidia-h200-141gb", (8,), vcpus=28, gib=369, **_NEVER_ON_DEMAND),
    _with_gpus("a3-edgegpu", "nvidia-h100-80gb", (8,), vcpus=26, gib=234, nics=5, **_A3),
    _with_gpus("a4-highgpu", "nvidia-b200", (8,), vcpus=28, gib=496, **_NEVER_ON_DEMAND),
    Family(
        "g4-standard",
        Decimal("3.75"),
        gpu="nvidia-rtx-pro-6000",
        gpus={48: 1, 96: 2, 192: 4, 384: 8},
        boot_disks=_ONLY_HYPERDISK,
    ),
)
"""Only x86 families, because the images are for x86."""
NEWER_FAMILY: Final = Family("", boot_disks=_ONLY_HYPERDISK)
"""What is assumed of general-purpose families that are newer than this table: like all families
since n4 and c4, they boot from Hyperdisk only.
"""
