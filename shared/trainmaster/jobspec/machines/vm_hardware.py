"""Resolve the hardware of one role: machine type, GPUs and boot disk.

Retired hardware is replaced, with a note.

The rules: GPUs can only be attached to Compute Engine's machine types, in the numbers of the table;
machine types with built-in GPUs need no `acceleratorConfig` and accept no other. Source: the API's
schema and "Using GPUs" of AI Platform Training (the service).
"""

from __future__ import annotations

import difflib
from typing import Final

from trainmaster.core.machines.families import HYPERDISK_BALANCED, PD_BALANCED, PD_SSD, PD_STANDARD
from trainmaster.core.machines.machine_types import family_of, find_machine_type, refusal_of
from trainmaster.core.model.purchase import OnDemand
from trainmaster.core.model.task_group import Accelerator, TaskGroup
from trainmaster.core.reconcile.machine_families import boot_disk_type
from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    GPU_NAMES,
    LEGACY_MACHINES,
    RETIRED_GPUS,
    Gpu,
    valid_gpu_counts,
)
from trainmaster.jobspec.formats.ai_platform import DiskConfig
from trainmaster.jobspec.machines.nearest import GpuMachine, machine_of_gpu, nearest_machines
from trainmaster.jobspec.machines.role_request import AcceleratorRequest, RoleRequest
from trainmaster.jobspec.machines.tpu_slices import resolve_slice
from trainmaster.jobspec.problems import FieldPath, Problems, quoted, yaml_line
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT

DISK_TYPES: Final = (PD_SSD, PD_STANDARD, PD_BALANCED, HYPERDISK_BALANCED)
"""The service had the first two; newer machine families need the others."""
DISK_TYPE_DEFAULT: Final = PD_SSD
DISK_GIB_DEFAULT: Final = 100
"""Source: the API's schema, DiskConfig."""


class HardwareResolver:
    """Resolves one role.

    Adds a problem for what is wrong (`add`: with a value that would be right; `add_text`: with
    words to copy), and a substitution where the job or its scale tier names something that no
    longer exists.
    """

    def __init__(self, role: RoleRequest, problems: Problems) -> None:
        self._role = role
        self._paths = role.paths
        self._problems = problems

    def resolve(self) -> TaskGroup | None:
        """Return the role's task group; None if its machine cannot be determined.

        A group is also returned beside problems with its GPUs or disk: all are reported at once.
        """
        role = self._role
        if role.is_tpu:
            return self._tpu_group()
        if role.topology is not None and role.paths.topology:
            self._problems.add_text(
                role.paths.topology, "can only be set for a TPU", advice="leave it out"
            )
        if role.tier is not None:
            machine = role.tier.machine_type
            gpu = role.tier.gpu
            accelerator = self._replace_retired(gpu, (TRAINING_INPUT, "scaleTier")) if gpu else None
        elif role.machine is None:
            return None  # reported as missing when the role was read
        elif role.machine in LEGACY_MACHINES:
            machine, accelerator = self._replace_legacy(role.machine)
        elif find_machine_type(role.machine):
            machine = role.machine
            accelerator = self._gpus_of(role.machine)
        else:
            self._refuse_machine(role.machine)
            return None
        disk_gib, disk_type = self._boot_disk(machine)
        return TaskGroup(role.task_type, role.count, machine, accelerator, disk_gib, disk_type)

    def _tpu_group(self) -> TaskGroup | None:
        role = self._role
        tpu = resolve_slice(role, self._problems)
        if role.disk is not None:
            requested = f"{role.disk.boot_disk_size_gb or DISK_GIB_DEFAULT} GB"
            reason = "TPU VMs have a boot disk of fixed size."
            self._problems.substitute(self._paths.disk, requested, "a TPU VM's own", reason)
        return TaskGroup(role.task_type, role.count, machine_type="", tpu=tpu) if tpu else None

    def _refuse_machine(self, name: str) -> None:
        """Refuse a name that is no machine type which jobs can use, and name a similar one."""
        of_gpu = machine_of_gpu(name)
        if of_gpu is not None:
            self._refuse_accelerator(name, of_gpu)
            return
        nearest = nearest_machines(name)
        reason = refusal_of(name)
        if reason:
            problem = (
                f"cannot be {quoted(name)}: {reason}; `trainmaster machines` lists what jobs"
                " can use"
            )
        else:
            problem = (
                f"is not a known machine type: {quoted(name)}; did you mean {' or '.join(nearest)}?"
            )
        self._problems.add(self._paths.machine, problem, example=nearest[0])

    def _refuse_accelerator(self, name: str, meant: GpuMachine) -> None:
        """Refuse a GPU or TPU in place of a machine type, and name the machine that has it."""
        has = "can have" if meant.is_attached else "has"
        accelerator = meant.accelerator
        problem = (
            f"is an accelerator, and no machine type: {quoted(name)}; {meant.machine} {has}"
            f" {accelerator.count} x {accelerator.type}"
        )
        sales = family_of(meant.machine).sales
        if not accelerator.is_tpu and OnDemand not in sales:
            problem += f", and is sold {' and '.join(price.sold for price in sales)} only"
        example = self._machine_example(meant.machine)
        if meant.is_attached:
            example += f", {self._accelerator_example(accelerator.type, accelerator.count)}"
        self._problems.add_text(self._paths.machine, problem, advice=example)

    def _accelerator_example(self, accelerator_type: str, count: int) -> str:
        """Return the fields that attach an accelerator, in the format of the job."""
        paths = self._paths
        names = [
            self._problems.spelled_name(path)
            for path in (paths.accelerator_type, paths.accelerator_count)
        ]
        fields = dict(zip(names, (accelerator_type, count), strict=True))
        if paths.accelerator == paths.accelerator_type:
            return yaml_line(fields)
        *_, outer, inner = map(str, paths.accelerator)  # such as masterConfig.acceleratorConfig
        return yaml_line({outer: {inner: fields}})

    def _replace_legacy(self, name: str) -> tuple[str, Accelerator | None]:
        """Return the Compute Engine machine type and GPUs that the service's name means.

        Note the substitution.
        """
        legacy = LEGACY_MACHINES[name]
        machine = legacy.machine_type
        gpu = legacy.gpu
        if self._role.accelerator is not None:
            problem = f"can only be set for Compute Engine machine types, not for {name}"
            self._problems.add_text(
                self._paths.accelerator, problem, advice=self._machine_example(machine)
            )
        accelerator = _accelerator(_replacement(gpu)) if gpu else None
        replacement = machine
        if accelerator is not None:
            replacement += f" + {accelerator.count} x {accelerator.type}"
        reason = f"{name} is AI Platform's own name for {legacy}; Compute Engine does not know it."
        if gpu is not None and gpu.type in RETIRED_GPUS:
            reason = f"{name} means {legacy}; {RETIRED_GPUS[gpu.type].reason}"
        self._problems.substitute(self._paths.machine, name, replacement, reason)
        return machine, accelerator

    def _gpus_of(self, machine: str) -> Accelerator | None:
        """Return the GPUs of a Compute Engine machine type: built-in ones, or those of the job."""
        built_in = BUILT_IN_GPUS.get(machine)
        paths = self._paths
        is_refused = self._problems.has_any_at(
            paths.accelerator, paths.accelerator_type, paths.accelerator_count
        )
        if self._role.accelerator is None or is_refused:
            return _accelerator(built_in) if built_in else None
        gpu = self._requested_gpu(self._role.accelerator, machine)
        if gpu is None:
            return None
        if built_in is not None:
            self._check_built_in(gpu, built_in, machine)
            return _accelerator(built_in)
        if not self._check_count(gpu, machine):
            return None
        return self._replace_retired(gpu, paths.accelerator)

    def _requested_gpu(self, request: AcceleratorRequest, machine: str) -> Gpu | None:
        paths = self._paths
        if request.type is not None and request.type not in GPU_NAMES:  # the schema has TPUs, too
            problem = f"is a Cloud TPU, which needs cloud_tpu or a TPU machine type, not {machine}"
            self._problems.add_text(
                paths.accelerator_type, problem, advice=self._machine_example("cloud_tpu")
            )
        elif request.type is not None and request.count is not None:
            return Gpu(request.type, request.count)
        else:
            missing = paths.accelerator_type if request.type is None else paths.accelerator_count
            self._problems.add(missing, "is required", example=example_at(missing))
        return None

    def _check_built_in(self, gpu: Gpu, built_in: Gpu, machine: str) -> None:
        if gpu != built_in:
            type_name = self._problems.spelled_name(self._paths.accelerator_type)
            count_name = self._problems.spelled_name(self._paths.accelerator_count)
            problem = f"must be {built_in} on {machine}, or be left out, not {gpu}"
            example = f'{type_name}: "{built_in.type}", {count_name}: {built_in.count}'
            self._problems.add_text(self._paths.accelerator, problem, advice=example)

    def _check_count(self, gpu: Gpu, machine: str) -> bool:
        """Return whether the machine can have this number of GPUs; add a problem if not."""
        counts = valid_gpu_counts(gpu.type, machine)
        if gpu.count in counts:
            return True
        if counts:
            problem = (
                f"must be {' or '.join(map(str, counts))} for {gpu.type} on {machine}, not"
                f" {gpu.count}"
            )
            larger = (count for count in counts if count >= gpu.count)
            self._problems.add(
                self._paths.accelerator_count, problem, example=next(larger, counts[-1])
            )
        elif gpu.type in GPU_COUNTS:
            problem = (
                f"cannot be {gpu.type} on {machine}: GPUs need an n1 machine type of sufficient"
                " size"
            )
            self._problems.add_text(
                self._paths.accelerator, problem, advice=self._machine_example("n1-standard-8")
            )
        else:
            machines = [
                name for name, built_in in BUILT_IN_GPUS.items() if built_in.type == gpu.type
            ]
            problem = f"cannot be {gpu.type} on {machine}: it is built into {', '.join(machines)}"
            self._problems.add_text(
                self._paths.accelerator, problem, advice=self._machine_example(machines[0])
            )
        return False

    def _replace_retired(self, gpu: Gpu, path: FieldPath) -> Accelerator:
        accelerator = _accelerator(_replacement(gpu))
        if gpu.type in RETIRED_GPUS:
            replacement = f"{accelerator.count} x {accelerator.type}"
            self._problems.substitute(path, str(gpu), replacement, RETIRED_GPUS[gpu.type].reason)
        return accelerator

    def _boot_disk(self, machine: str) -> tuple[int, str]:
        """Return size and type of the boot disk. The API's "GB" are GiB."""
        disk = self._role.disk or DiskConfig()
        disk_type = disk.boot_disk_type or boot_disk_type(machine, DISK_TYPE_DEFAULT)
        if disk_type not in family_of(machine).boot_disks:
            self._refuse_disk_type(disk_type, machine)
        return disk.boot_disk_size_gb or DISK_GIB_DEFAULT, disk_type

    def _refuse_disk_type(self, disk_type: str, machine: str) -> None:
        """Add a problem for a type that the machine cannot have, or that does not exist."""
        types = family_of(machine).boot_disks
        path = (*self._paths.disk, "bootDiskType")
        if disk_type in DISK_TYPES:
            self._problems.add(
                path,
                f"must be {' or '.join(types)} on {machine}, not {disk_type}",
                example=types[0],
            )
        else:
            nearest = difflib.get_close_matches(disk_type.lower(), types, n=1) or list(types)
            self._problems.add(
                path,
                f"must be one of {', '.join(types)}, not {quoted(disk_type)}",
                example=nearest[0],
            )

    def _machine_example(self, machine: str) -> str:
        return f'{self._problems.spelled_name(self._paths.machine)}: "{machine}"'


def _replacement(gpu: Gpu) -> Gpu:
    retired = RETIRED_GPUS.get(gpu.type)  # its table has every count that `_check_count` accepts
    return Gpu(retired.replaced_by, retired.counts[gpu.count]) if retired else gpu


def _accelerator(gpu: Gpu) -> Accelerator:
    return Accelerator(GPU_NAMES[gpu.type], gpu.count)
