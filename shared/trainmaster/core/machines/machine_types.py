"""One machine type of Compute Engine, found by its name, and the reason why a name is refused.

`find_machine_type` builds it from the row of its family; this module adds the types that break the
rule of their family.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Final

from trainmaster.core.machines.families import FAMILIES, NEWER_FAMILY, Family
from trainmaster.core.model.task_group import Accelerator

SHARED_CORE_VCPUS: Final = 2
"""vCPUs that the system of a shared-core machine sees."""


@dataclass(frozen=True, slots=True)
class MachineType:
    """One machine type, such as `n2-standard-8`."""

    name: str
    vcpus: int
    memory_gib: Decimal | None
    """None: not certain."""
    family: Family
    gpu: Accelerator | None = None
    """The built-in GPUs."""
    local_ssd_gib: int | None = 0
    """Local SSDs that are part of the type; None: not certain."""
    billed_vcpus: Decimal | None = None
    """Billed vCPUs of a shared-core type, which has fractions of one; None: `vcpus`."""


def _of_family(family: Family, number: int) -> MachineType:
    """Return the type with this number in its name."""
    gpus = family.gpus.get(number, 0)
    memory = None if family.gib is None else family.gib * number
    if memory is not None and family.has_whole_gib:
        memory = Decimal(int(memory))
    return MachineType(
        f"{family.name}-{number}{'g' if family.name.endswith('gpu') else ''}",
        family.vcpus * number,
        memory,
        family,
        Accelerator(family.gpu, gpus) if gpus else None,
        family.local_ssd_gib * gpus,
    )


_BY_FAMILY: Final = {family.name: family for family in FAMILIES}
_E2: Final = _BY_FAMILY["e2-standard"]
_SHARED_CORE: Final = {"micro": ("0.25", 1), "small": ("0.5", 2), "medium": ("1", 4)}
"""Size of a shared-core machine → billed vCPUs, and GiB of memory."""
MACHINE_TYPES: Final = {
    **{
        machine.name: machine
        for family in FAMILIES
        for machine in (_of_family(family, number) for number in family.sizes)
    },
    **{
        f"e2-{size}": MachineType(
            f"e2-{size}", SHARED_CORE_VCPUS, Decimal(gib), _E2, billed_vcpus=Decimal(billed)
        )
        for size, (billed, gib) in _SHARED_CORE.items()
    },
    "n2-highmem-128": replace(_of_family(_BY_FAMILY["n2-highmem"], 128), memory_gib=Decimal(864)),
}
"""Every machine type whose size the table knows: all with GPUs, all of n1, and those that break
their family's rule.
"""

_NAME: Final = re.compile(
    r"(?P<family>[a-z0-9]+-[a-z]+)-(?P<number>[1-9][0-9]{0,2})(?P<ssd>-lssd)?"
)
_CUSTOM: Final = re.compile(
    r"(?P<series>[a-z0-9]+)-custom-(?P<vcpus>[1-9][0-9]{0,2})-(?P<mib>[1-9][0-9]{2,6})(-ext)?"
)
_NEWER: Final = re.compile(r"([cmn][5-9]|e[4-9])d?-(standard|highmem|highcpu)")
"""General-purpose x86 families of generations after this table. An Arm series ends in `a`."""
_REFUSED: Final = {
    r"(a4x|[a-z]+[0-9]+a)-.+": "it has Arm processors, and the images are for x86",
    r"g4-standard-(6|12|24)": (
        "it has a part of a GPU, which needs NVIDIA's vGPU driver, and the images have another"
    ),
    r"tpu7x-.+": "Cloud TPU's API, through which jobs get their TPUs, does not offer TPU7x",
}
"""Names → why they are refused.

Sources: "G4 machine series", fractional GPUs; Cloud TPU "TPU software versions".
"""
_ACCELERATED: Final = re.compile(r"(a[0-9]|g[2-9]|g[1-9][0-9]|ct[0-9]|tpu).*")
_UNKNOWN: Final = "it is an accelerator-optimized machine type that this release does not know"


@cache
def find_machine_type(name: str) -> MachineType | None:
    """Return the machine type; None if Compute Engine has none of this name that a job can use.

    Sizes of families without `Family.sizes` are not checked.
    """
    if name in MACHINE_TYPES:
        return MACHINE_TYPES[name]
    custom = _CUSTOM.fullmatch(name)
    if custom is not None:
        return _custom_type(name, custom["series"], int(custom["vcpus"]), int(custom["mib"]))
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    family = _find_family(match["family"])
    if family is None:
        return None
    size = int(match["number"])
    is_sold = not family.sizes or size in family.sizes
    has_local_ssd = match["ssd"] is not None
    takes_gpus = bool(family.gpu or family.attaches_gpus)
    if not is_sold or (has_local_ssd and takes_gpus):
        return None
    machine = _of_family(family, size)
    return replace(machine, name=name, local_ssd_gib=None if has_local_ssd else 0)


def _find_family(name: str) -> Family | None:
    """Return the family of the table, or one for a general-purpose series that is newer."""
    family = _BY_FAMILY.get(name)
    if family is None and _NEWER.fullmatch(name):
        return replace(NEWER_FAMILY, name=name)
    return family


def _custom_type(name: str, series: str, vcpus: int, mib: int) -> MachineType | None:
    """Return a machine type of the user's own size, whose prices differ from those of
    its series.
    """
    family = _BY_FAMILY.get(f"{series}-standard")
    if family is None or not family.has_custom_types:
        return None
    return MachineType(name, vcpus, Decimal(mib) / 1024, replace(family, sku=""))


def refusal_of(name: str) -> str | None:
    """Return why no job can use a machine type that the table does not have; None if nothing is
    known about it.
    """
    reason = next(
        (reason for pattern, reason in _REFUSED.items() if re.fullmatch(pattern, name)), None
    )
    if reason is not None:
        return reason
    family = "-".join(name.split("-")[:2])
    is_unknown = family not in _BY_FAMILY and _ACCELERATED.fullmatch(name) is not None
    return _UNKNOWN if is_unknown else None


def family_of(name: str) -> Family:
    """Return the family of a machine type. The empty name of a TPU slice has one without GPUs."""
    if not name:
        return Family("")
    machine = find_machine_type(name)
    return machine.family if machine else NEWER_FAMILY
