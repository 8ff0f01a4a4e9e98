"""What one role's VMs consist of: machine type, GPUs, boot disk; and what no longer exists replaced, with a note.

The rules (source: the API's schema and the service's "Using GPUs"): acceleratorConfig goes with Compute Engine's
machine names only, in the counts of the table; machine types with GPUs of their own need none and take no other.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from shared.core.jobs import Accelerator, Substitution, TaskGroup
from shared.core.seats import TaskType
from shared.jobspec.machines import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    GPU_NAMES,
    LEGACY_MACHINES,
    RETIRED_GPUS,
    TPU_MACHINE,
    Gpu,
    is_compute_machine,
    known_machine_names,
    valid_gpu_counts,
)
from shared.jobspec.model import AcceleratorConfig, DiskConfig, ReplicaConfig, example_of
from shared.jobspec.problems import Findings, Loc, given
from shared.jobspec.reading import TRAINING_INPUT
from shared.jobspec.tiers import TierRole

DISK_TYPES: Final = ("pd-ssd", "pd-standard", "pd-balanced", "hyperdisk-balanced")
"""The service had the first two; its default was pd-ssd with 100 GB. Newer machine families need the others."""
DISK_GIB_DEFAULT: Final = 100
DISK_GIB_MIN: Final = 10
DISK_GIB_MAX: Final = 65_536
"""Source: Compute Engine, size limits of persistent disks."""


@dataclass(frozen=True, slots=True)
class Role:
    """One of the four roles with its fields' values. `name` is the service's: `master`, `parameterServer` …"""

    name: str
    task_type: TaskType
    machine: str | None
    count: int
    config: ReplicaConfig | None
    tier: TierRole | None = None

    def at(self, field: str) -> Loc:
        return (TRAINING_INPUT, f"{self.name}{field}")


def gpu_of(config: ReplicaConfig | None) -> AcceleratorConfig | None:
    """None where it only says "no accelerator" (type unspecified, count 0), as tensorflow_cloud sends it."""
    asked = config.accelerator_config if config else None
    return asked if asked is not None and (asked.type is not None or asked.count is not None) else None


class Equipment:
    """One role's machine, GPUs and disk. Substitutions are noted where the job (or its tier) named what is gone."""

    def __init__(self, role: Role, found: Findings, substitutions: list[Substitution]) -> None:
        self._role = role
        self._found = found
        self._substitutions = substitutions
        self._gpu_at: Loc = (*role.at("Config"), "acceleratorConfig")

    def group(self) -> TaskGroup | None:
        disk_gib, disk_type = self._disk()
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
        return TaskGroup(self._role.task_type, self._role.count, machine, accelerator, disk_gib, disk_type)

    def _unknown_machine(self, name: str) -> None:
        near = difflib.get_close_matches(name.lower(), known_machine_names(), n=3) or ["n1-standard-4"]
        if name != TPU_MACHINE:
            problem = f"is not a known machine type: {given(name)}; did you mean {' or '.join(near)}?"
            self._found.add(self._role.at("Type"), problem, near[0])

    def _legacy(self, name: str) -> tuple[str, Accelerator | None]:
        stood_for = LEGACY_MACHINES[name]
        if gpu_of(self._role.config) is not None:
            problem = f"goes with Compute Engine machine types only, not with {name}"
            self._found.add_text(self._gpu_at, problem, self._type_example(stood_for.machine_type))
        gpu = stood_for.gpu
        accelerator = _accelerator(_replacement(gpu)) if gpu else None
        machine = stood_for.machine_type
        given_now = f"{machine} + {accelerator.count} x {accelerator.type}" if accelerator else machine
        why = f"{name} was AI Platform's own name for {stood_for} and means nothing to Compute Engine."
        if gpu is not None and gpu.type in RETIRED_GPUS:
            why = f"{name} stood for {stood_for}; {RETIRED_GPUS[gpu.type].why}"
        self._substitutions.append(Substitution(self._found.path(self._role.at("Type")), name, given_now, why))
        return machine, accelerator

    def _attached(self, machine: str) -> Accelerator | None:
        """The GPUs of a Compute Engine type: its own, or those the job attaches."""
        built_in = BUILT_IN_GPUS.get(machine)
        asked = gpu_of(self._role.config)
        if asked is None or self._found.doubtful(self._gpu_at):
            return _accelerator(built_in) if built_in else None
        gpu = self._complete(asked)
        if gpu is None:
            return None
        if built_in is not None:
            self._check_built_in(gpu, built_in, machine)
            return _accelerator(built_in)
        return self._today(gpu, self._gpu_at, str(gpu)) if self._check_count(gpu, machine) else None

    def _complete(self, asked: AcceleratorConfig) -> Gpu | None:
        """None as well for a TPU, which `unsupported` speaks about."""
        if asked.type is not None and asked.count is not None:
            return Gpu(asked.type, asked.count) if asked.type in GPU_NAMES else None
        missing = "type" if asked.type is None else "count"
        self._found.add((*self._gpu_at, missing), "is required", example_of((*self._gpu_at, missing)))
        return None

    def _type_example(self, machine: str) -> str:
        return f'{self._found.name(self._role.at("Type"))}: "{machine}"'

    def _check_built_in(self, gpu: Gpu, built_in: Gpu, machine: str) -> None:
        right = {"type": built_in.type, "count": built_in.count}
        if gpu != built_in:
            problem = f"does not go with {machine}, which comes with {built_in}, not with {gpu}"
            self._found.add(self._gpu_at, problem, right)

    def _check_count(self, gpu: Gpu, machine: str) -> bool:
        counts = valid_gpu_counts(gpu.type, machine)
        if gpu.count in counts:
            return True
        if counts:
            problem = f"must be {' or '.join(map(str, counts))} for {gpu.type} on {machine}, not {gpu.count}"
            self._found.add(
                (*self._gpu_at, "count"), problem, next((it for it in counts if it >= gpu.count), counts[-1])
            )
        elif gpu.type in GPU_COUNTS:
            problem = f"{gpu.type} cannot be attached to {machine}: GPUs go with n1 machine types of a fitting size"
            self._found.add_text(self._gpu_at, problem, self._type_example("n1-standard-8"))
        else:
            homes = [name for name, built_in in BUILT_IN_GPUS.items() if built_in.type == gpu.type]
            problem = f"{gpu.type} cannot be attached to {machine}: it comes with {', '.join(homes)}"
            self._found.add_text(self._gpu_at, problem, self._type_example(homes[0]))
        return False

    def _today(self, gpu: Gpu, at: Loc, asked: str) -> Accelerator:
        accelerator = _accelerator(_replacement(gpu))
        if gpu.type in RETIRED_GPUS:
            now = f"{accelerator.count} x {accelerator.type}"
            path = self._found.path(at)
            self._substitutions.append(Substitution(path, asked, now, RETIRED_GPUS[gpu.type].why))
        return accelerator

    def _disk(self) -> tuple[int, str]:
        disk = (self._role.config.disk_config if self._role.config else None) or DiskConfig.model_validate({})
        at: Loc = (*self._role.at("Config"), "diskConfig")
        gib, kind = disk.boot_disk_size_gb or DISK_GIB_DEFAULT, disk.boot_disk_type or DISK_TYPES[0]
        if not DISK_GIB_MIN <= gib <= DISK_GIB_MAX:
            problem = f"must be between {DISK_GIB_MIN} and {DISK_GIB_MAX}, not {gib}"
            self._found.add((*at, "bootDiskSizeGb"), problem, DISK_GIB_DEFAULT)
        if kind not in DISK_TYPES:
            near = difflib.get_close_matches(kind.lower(), DISK_TYPES, n=1) or list(DISK_TYPES)
            problem = f"must be one of {', '.join(DISK_TYPES)}, not {given(kind)}"
            self._found.add((*at, "bootDiskType"), problem, near[0])
        return gib, kind


def _replacement(gpu: Gpu) -> Gpu:
    retired = RETIRED_GPUS.get(gpu.type)
    return Gpu(retired.replaced_by, retired.counts[gpu.count]) if retired else gpu


def _accelerator(gpu: Gpu) -> Accelerator:
    return Accelerator(GPU_NAMES[gpu.type], gpu.count)
