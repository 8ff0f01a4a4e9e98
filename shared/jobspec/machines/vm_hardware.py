"""What one role's VMs consist of: machine type, GPUs, boot disk; and what no longer exists replaced, with a note.

The rules (source: the API's schema and the service's "Using GPUs"): GPUs are attached to Compute Engine's machine
names only, in the counts of the table; machine types with GPUs of their own need none and take no other.
"""

from __future__ import annotations

import difflib
from typing import Final

from shared.core.model.job import Accelerator, Substitution, TaskGroup
from shared.core.reconcile.machine_families import (
    HYPERDISK_BALANCED,
    PD_BALANCED,
    PD_SSD,
    PD_STANDARD,
    boot_disk_type,
    boot_disk_types,
)
from shared.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    GPU_NAMES,
    LEGACY_MACHINES,
    RETIRED_GPUS,
    Gpu,
    is_arm_machine,
    is_compute_machine,
    known_machine_names,
    valid_gpu_counts,
)
from shared.jobspec.formats.ai_platform import DiskConfig
from shared.jobspec.machines.role_request import Chips, Role
from shared.jobspec.machines.tpu_slices import slice_of
from shared.jobspec.reading.document_kinds import TRAINING_INPUT, example_of
from shared.jobspec.reading.problems import Findings, Loc, given

DISK_TYPES: Final = (PD_SSD, PD_STANDARD, PD_BALANCED, HYPERDISK_BALANCED)
"""The service had the first two. Newer machine families need the others."""
DISK_TYPE_DEFAULT: Final = PD_SSD
"""The service's, with 100 GB."""
DISK_GIB_DEFAULT: Final = 100
DISK_GIB_MIN: Final = 10
DISK_GIB_MAX: Final = 65_536
"""Source: Compute Engine, size limits of persistent disks."""


class Equipment:
    """One role's machine, GPUs and disk. Substitutions are noted where the job (or its tier) named what is gone."""

    def __init__(self, role: Role, found: Findings, substitutions: list[Substitution]) -> None:
        self._role = role
        self._found = found
        self._substitutions = substitutions

    def group(self) -> TaskGroup | None:
        if self._role.is_tpu:
            return self._slice()
        if self._role.tier is not None:
            machine, gpu = self._role.tier.machine_type, self._role.tier.gpu
            accelerator = self._today(gpu, (TRAINING_INPUT, "scaleTier"), f"{gpu}") if gpu else None
        elif self._role.machine is None:
            return None
        elif self._role.machine in LEGACY_MACHINES:
            machine, accelerator = self._legacy(self._role.machine)
        elif is_compute_machine(self._role.machine):
            machine, accelerator = self._role.machine, self._attached(self._role.machine)
        else:
            self._unknown_machine(self._role.machine)
            return None
        disk_gib, disk_type = self._disk(machine)
        return TaskGroup(self._role.task_type, self._role.count, machine, accelerator, disk_gib, disk_type)

    def _slice(self) -> TaskGroup | None:
        tpu = slice_of(self._role, self._found)
        if self._role.disk is not None:
            path, asked = self._found.path(self._role.at.disk), self._role.disk.boot_disk_size_gb
            why = "The boot disk of a TPU VM comes with it, in one size."
            self._substitutions.append(Substitution(path, f"{asked or DISK_GIB_DEFAULT} GB", "a TPU VM's own", why))
        return TaskGroup(self._role.task_type, self._role.count, "", tpu=tpu) if tpu else None

    def _unknown_machine(self, name: str) -> None:
        if is_arm_machine(name):
            problem = f"has Arm processors, and the images are for x86: {given(name)}"
            self._found.add(self._role.at.machine, problem, "a3-highgpu-8g")
            return
        near = difflib.get_close_matches(name.lower(), known_machine_names(), n=3) or ["n1-standard-4"]
        problem = f"is not a known machine type: {given(name)}; did you mean {' or '.join(near)}?"
        self._found.add(self._role.at.machine, problem, near[0])

    def _legacy(self, name: str) -> tuple[str, Accelerator | None]:
        stood_for = LEGACY_MACHINES[name]
        if self._role.chips is not None:
            problem = f"goes with Compute Engine machine types only, not with {name}"
            self._found.add_text(self._role.at.chips, problem, self._machine_example(stood_for.machine_type))
        gpu = stood_for.gpu
        accelerator = _accelerator(_replacement(gpu)) if gpu else None
        machine = stood_for.machine_type
        given_now = f"{machine} + {accelerator.count} x {accelerator.type}" if accelerator else machine
        why = f"{name} was AI Platform's own name for {stood_for} and means nothing to Compute Engine."
        if gpu is not None and gpu.type in RETIRED_GPUS:
            why = f"{name} stood for {stood_for}; {RETIRED_GPUS[gpu.type].why}"
        self._substitutions.append(Substitution(self._found.path(self._role.at.machine), name, given_now, why))
        return machine, accelerator

    def _attached(self, machine: str) -> Accelerator | None:
        """The GPUs of a Compute Engine type: its own, or those the job attaches."""
        built_in, at = BUILT_IN_GPUS.get(machine), self._role.at
        if self._role.chips is None or self._found.doubtful(at.chips, at.chips_type, at.chips_count):
            return _accelerator(built_in) if built_in else None
        gpu = self._complete(self._role.chips, machine)
        if gpu is None:
            return None
        if built_in is not None:
            self._check_built_in(gpu, built_in, machine)
            return _accelerator(built_in)
        return self._today(gpu, self._role.at.chips, str(gpu)) if self._check_count(gpu, machine) else None

    def _complete(self, asked: Chips, machine: str) -> Gpu | None:
        at = self._role.at
        if asked.type is not None and asked.type not in GPU_NAMES:
            problem = f"is a Cloud TPU, which goes with cloud_tpu or a TPU machine type, not with {machine}"
            self._found.add_text(at.chips_type, problem, self._machine_example("cloud_tpu"))
        elif asked.type is not None and asked.count is not None:
            return Gpu(asked.type, asked.count)
        else:
            missing = at.chips_type if asked.type is None else at.chips_count
            self._found.add(missing, "is required", example_of(missing))
        return None

    def _machine_example(self, machine: str) -> str:
        return f'{self._found.name(self._role.at.machine)}: "{machine}"'

    def _check_built_in(self, gpu: Gpu, built_in: Gpu, machine: str) -> None:
        if gpu != built_in:
            names = (self._found.name(loc) for loc in (self._role.at.chips_type, self._role.at.chips_count))
            values = (f'"{built_in.type}"', str(built_in.count))
            problem = f"does not go with {machine}, which comes with {built_in}, not with {gpu}"
            example = ", ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
            self._found.add_text(self._role.at.chips, problem, example)

    def _check_count(self, gpu: Gpu, machine: str) -> bool:
        counts = valid_gpu_counts(gpu.type, machine)
        if gpu.count in counts:
            return True
        if counts:
            problem = f"must be {' or '.join(map(str, counts))} for {gpu.type} on {machine}, not {gpu.count}"
            larger = (count for count in counts if count >= gpu.count)
            self._found.add(self._role.at.chips_count, problem, next(larger, counts[-1]))
        elif gpu.type in GPU_COUNTS:
            problem = f"{gpu.type} cannot be attached to {machine}: GPUs go with n1 machine types of a fitting size"
            self._found.add_text(self._role.at.chips, problem, self._machine_example("n1-standard-8"))
        else:
            homes = [name for name, built_in in BUILT_IN_GPUS.items() if built_in.type == gpu.type]
            problem = f"{gpu.type} cannot be attached to {machine}: it comes with {', '.join(homes)}"
            self._found.add_text(self._role.at.chips, problem, self._machine_example(homes[0]))
        return False

    def _today(self, gpu: Gpu, at: Loc, asked: str) -> Accelerator:
        accelerator = _accelerator(_replacement(gpu))
        if gpu.type in RETIRED_GPUS:
            now = f"{accelerator.count} x {accelerator.type}"
            self._substitutions.append(Substitution(self._found.path(at), asked, now, RETIRED_GPUS[gpu.type].why))
        return accelerator

    def _disk(self, machine: str) -> tuple[int, str]:
        disk = self._role.disk or DiskConfig.model_validate({})
        gib = disk.boot_disk_size_gb or DISK_GIB_DEFAULT
        if not DISK_GIB_MIN <= gib <= DISK_GIB_MAX:
            problem = f"must be between {DISK_GIB_MIN} and {DISK_GIB_MAX}, not {gib}"
            self._found.add((*self._role.at.disk, "bootDiskSizeGb"), problem, DISK_GIB_DEFAULT)
        known, at = boot_disk_types(machine), (*self._role.at.disk, "bootDiskType")
        kind = disk.boot_disk_type or boot_disk_type(machine, DISK_TYPE_DEFAULT)
        if kind not in known and kind in DISK_TYPES:
            self._found.add(at, f"must be {' or '.join(known)} on {machine}, not {kind}", known[0])
        elif kind not in known:
            near = difflib.get_close_matches(kind.lower(), known, n=1) or list(known)
            self._found.add(at, f"must be one of {', '.join(known)}, not {given(kind)}", near[0])
        return gib, kind


def _replacement(gpu: Gpu) -> Gpu:
    retired = RETIRED_GPUS.get(gpu.type)
    return Gpu(retired.replaced_by, retired.counts[gpu.count]) if retired else gpu


def _accelerator(gpu: Gpu) -> Accelerator:
    return Accelerator(GPU_NAMES[gpu.type], gpu.count)
