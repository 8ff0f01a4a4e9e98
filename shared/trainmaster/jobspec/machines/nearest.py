"""The machine type that a user probably meant by one that does not exist, for the error message.

Nearest in shape counts, not in letters: `c4a-standard-4` has four vCPUs and no GPU.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher, get_close_matches
from typing import Final, NamedTuple

from trainmaster.core.machines.families import FAMILIES, Family
from trainmaster.core.machines.machine_types import find_machine_type
from trainmaster.core.machines.tpus import TPU_VMS
from trainmaster.core.model.purchase import OnDemand
from trainmaster.jobspec.catalog.machine_types import (
    LEGACY_MACHINES,
    TPU_MACHINES,
    valid_gpu_counts,
)
from trainmaster.jobspec.machines.selection import (
    Accelerator,
    Demand,
    accelerator_of,
    select_machine,
)

DEFAULT: Final = "n1-standard-4"
"""Suggested if no machine type is like what the job names."""
SUGGESTIONS_MAX: Final = 3
"""Machine types that a message suggests."""
_SIMILAR: Final = 0.6
"""Least likeness of two names, of `difflib`."""
_GPUS_MAX: Final = 16
"""GPUs of the largest machine type."""
_MIB_PER_GIB: Final = 1024
_SERIES: Final = ("n2", "n2d", "n4", "n4d", "c4", "c4d", "t2d")
_SIZES_OF_SERIES: Final = (2, 4, 8, 16, 32, 48)
"""vCPUs with which each of these series has machine types.

Source: "General-purpose machine family".
"""
_NAME: Final = re.compile(r"(?P<family>[a-z0-9]+-[a-z]+)-(?P<size>\d{1,4})(?P<unit>[a-z]*)")
_CUSTOM: Final = re.compile(r"[a-z0-9]+-custom-(?P<vcpus>\d{1,3})-(?P<mib>\d{1,7})(-ext)?")
_HAS_GPU: Final = re.compile(r"a\d+[a-z]*-.*|g\d+-.*|.*gpu.*")
_IS_TPU: Final = re.compile(r"(ct\d|tpu).*")
_GPU: Final = re.compile(
    r"(?:(?P<before>\d{1,2}) ?[x*:]? ?)?"
    r"(?P<gpu>[a-z][a-z0-9 _-]*?)"
    r"(?: ?[:x*=] ?(?P<after>\d{1,2}))?"
)
"""A GPU with its number, as users write it: `8x A100`, `A100:8`, `T4`."""


class _Distance(NamedTuple):
    """Distance of a machine type from the requested one. The first field that differs decides."""

    is_other_family: bool
    is_other_kind: bool
    """Of another kind, such as standard or highmem."""
    is_smaller: bool
    size_difference: int
    unlikeness: float
    """Difference of the names of the two families, from 0 (the same) to 1."""


class GpuMachine(NamedTuple):
    """The machine type for the GPUs or the TPU that stand in place of one."""

    machine: str
    accelerator: Accelerator
    is_attached: bool
    """Whether the accelerator must be named beside the machine type."""


def machine_of_gpu(name: str) -> GpuMachine | None:
    """Return the machine for `A100:8`, `8xH100` or `nvidia-tesla-t4`; None: the name is no GPU.

    The number of GPUs is the next that a machine can have.
    """
    match = _GPU.fullmatch(name.strip().lower())
    if match is None:
        return None
    requested = int(match["before"] or match["after"] or 1)
    accelerator = accelerator_of(match["gpu"], requested)
    if accelerator is None:
        return None
    if accelerator.is_tpu:
        return GpuMachine(TPU_MACHINES[0], accelerator, is_attached=True)
    for count in range(max(requested, 1), _GPUS_MAX + 1):
        machine = select_machine(Demand.of_gpus(accelerator.type, count))
        if machine:
            is_attached = bool(valid_gpu_counts(accelerator.type, machine))
            return GpuMachine(machine, Accelerator(accelerator.type, count), is_attached)
    return None


def nearest_machines(name: str) -> tuple[str, ...]:
    """Return the machine types that are most like the name's, the nearest one first.

    All of them are sold on demand, so that they fit any job.
    """
    lower = name.strip().lower()
    custom = _CUSTOM.fullmatch(lower)
    if custom is not None:
        demand = Demand.of_cpus(int(custom["vcpus"]), int(custom["mib"]) / _MIB_PER_GIB)
        return (select_machine(demand) or DEFAULT,)
    match = _NAME.fullmatch(lower)
    if match is None:
        names = (*LEGACY_MACHINES, *TPU_MACHINES, *TPU_VMS)
        spelled = lower.replace("-", "_")
        return tuple(get_close_matches(spelled, names, n=SUGGESTIONS_MAX, cutoff=_SIMILAR)) or (
            DEFAULT,
        )
    if _IS_TPU.fullmatch(lower):
        return tuple(get_close_matches(lower, TPU_VMS, n=SUGGESTIONS_MAX, cutoff=0))
    has_gpu = _HAS_GPU.fullmatch(lower) is not None
    families = [
        family for family in FAMILIES if bool(family.gpu) is has_gpu and OnDemand in family.sales
    ]
    size = int(match["size"])
    candidates = [
        (_differs_by(family, match["family"], size, candidate), _type_name(family, candidate))
        for family in families
        for candidate in _sizes(family)
    ]
    nearest = [machine for _, machine in sorted(candidates) if find_machine_type(machine)]
    return tuple(nearest[:SUGGESTIONS_MAX])


def _sizes(family: Family) -> tuple[int, ...]:
    """Return the sizes that certainly exist."""
    return family.sizes or (_SIZES_OF_SERIES if family.series in _SERIES else ())


def _type_name(family: Family, size: int) -> str:
    return f"{family.name}-{size}{'g' if family.name.endswith('gpu') else ''}"


def _differs_by(family: Family, name: str, size: int, candidate: int) -> _Distance:
    """Return how far the machine type of `family` and the size `candidate` is from the requested
    family `name` and `size`.
    """
    return _Distance(
        is_other_family=family.name != name,
        is_other_kind=_similarity_of_kinds(family.name, name) < _SIMILAR,
        is_smaller=candidate < size,
        size_difference=abs(candidate - size),
        unlikeness=1 - SequenceMatcher(None, name, family.name).ratio(),
    )


def _similarity_of_kinds(family: str, name: str) -> float:
    """Return how alike the parts of two families' names after the series are, from 0 to 1."""
    _, _, kind = family.partition("-")
    _, _, named_kind = name.partition("-")
    return SequenceMatcher(None, kind, named_kind).ratio()
