"""Resolve a role's request for a Cloud TPU to a slice.

A job names its TPU in one of two ways. With `cloud_tpu` (`TPU_MACHINES`), the acceleratorConfig
names type and size. The machine type of a TPU VM (`TPU_VMS`), such as `ct5lp-hightpu-4t`, belongs
to one generation; the topology or the accelerator's count selects the size, else it is one VM.

A size is the number in the name of a slice, 8 for `v3-8`. It counts TensorCores up to v5p, and
chips for v5e and v6e.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.core.machines.tpus import GENERATIONS, TPU_VMS, Generation, TpuVm
from trainmaster.core.model.task_group import Tpu
from trainmaster.jobspec.catalog.machine_types import TPU_DEFAULT, TPU_MACHINES, TPU_TYPES
from trainmaster.jobspec.machines.role_request import AcceleratorRequest, RoleRequest
from trainmaster.jobspec.problems import FieldPath, Problems, quoted


def resolve_slice(role: RoleRequest, problems: Problems) -> Tpu | None:
    """Return the slice of a role whose machine is a TPU; None if the request has a problem."""
    paths = role.paths
    if problems.has_any_at(paths.accelerator, paths.accelerator_type, paths.accelerator_count):
        return None
    size = None
    if role.accelerator is not None:
        size = _requested_size(role.accelerator, role, problems)
        if size is None:
            return None
    machine = role.machine_type
    is_of_any_type = machine in TPU_MACHINES
    if is_of_any_type:
        tpu_type, default_size = TPU_DEFAULT
        if role.accelerator is not None and role.accelerator.type is not None:
            tpu_type = role.accelerator.type
        generation = GENERATIONS[role.tpu_types[tpu_type].generation]
        return _slice_of_type(generation, size or default_size, role, problems)
    return _slice_of_machine(machine, TPU_VMS[machine], size, role, problems)


def _requested_size(
    accelerator: AcceleratorRequest, role: RoleRequest, problems: Problems
) -> int | None:
    """Return the size that the request names; None if it has a problem, which is added."""
    type_path = role.paths.accelerator_type
    type_example = _types_of_machine(role.machine_type)[0]
    if accelerator.type is None:
        problems.add(type_path, "is required", example=type_example)
        return None
    if accelerator.type not in role.tpu_types:
        problem = f"must be a TPU type on {role.machine_type}, not {quoted(accelerator.type)}"
        problems.add(type_path, problem, example=type_example)
        return None
    sizes = role.tpu_types[accelerator.type].sizes
    if accelerator.count in sizes:
        return accelerator.count
    count = accelerator.count
    if count is None:
        problems.add(role.paths.accelerator_count, "is required", example=sizes[0])
    else:
        problem = f"must be {_join_or(sizes)} for {accelerator.type}, not {count}"
        larger = (size for size in sizes if size >= count)
        problems.add(role.paths.accelerator_count, problem, example=next(larger, sizes[-1]))
    return None


def _slice_of_type(
    generation: Generation, size: int, role: RoleRequest, problems: Problems
) -> Tpu | None:
    topology = generation.topologies[size]
    if role.topology is not None and role.topology != topology:
        problem = (
            f"must be {topology} for {generation.type_name(size)}, not {quoted(role.topology)}"
        )
        problems.add(_topology_path(role), problem, example=topology)
        return None
    return Tpu(generation.type_name(size), generation.runtime, generation.hosts(size))


def _slice_of_machine(
    machine: str, vm: TpuVm, requested_size: int | None, role: RoleRequest, problems: Problems
) -> Tpu | None:
    generation = vm.generation_table
    types = _types_of_machine(machine)
    if role.accelerator is not None and role.accelerator.type not in types:
        problem = f"must be {_join_or(types)} on {machine}, not {quoted(role.accelerator.type)}"
        problems.add(role.paths.accelerator_type, problem, example=types[-1])
        return None
    if role.topology is not None:
        return _slice_of_topology(machine, vm, role.topology, requested_size, role, problems)
    size = requested_size or vm.chips * generation.cores_per_chip
    if vm.is_host_of(size):
        return Tpu(generation.type_name(size), generation.runtime, generation.hosts(size))
    problem = f"cannot be {machine} for a {generation.type_name(size)}"
    problems.add(role.paths.machine, problem, example=_machine_for(vm.generation, size))
    return None


def _slice_of_topology(
    machine: str,
    vm: TpuVm,
    topology: str,
    requested_size: int | None,
    role: RoleRequest,
    problems: Problems,
) -> Tpu | None:
    generation = vm.generation_table
    size = generation.size_of(topology)
    path = _topology_path(role)
    if size is None or not vm.is_host_of(size):
        fitting = [shape for known, shape in generation.topologies.items() if vm.is_host_of(known)]
        # The topology exists, but consists of other VMs.
        hint = f" (which is one of {_machine_for(vm.generation, size)})" if size else ""
        problems.add(
            path,
            f"must be {_join_or(fitting)} on {machine}, not {quoted(topology)}{hint}",
            example=fitting[0],
        )
        return None
    if requested_size is not None and requested_size != size:
        expected = generation.topologies[requested_size]
        count_path = problems.spelled_path(role.paths.accelerator_count)
        problems.add(
            path,
            f"must be {expected}, because {count_path} is {requested_size}, not {topology}",
            example=expected,
        )
        return None
    is_default = generation.topologies.get(size) == topology
    return Tpu(
        generation.type_name(size),
        generation.runtime,
        generation.hosts(size),
        None if is_default else topology,
    )


def _types_of_machine(machine: str) -> tuple[str, ...]:
    """Return the TPU types of a machine type; of `cloud_tpu`, all."""
    if machine not in TPU_VMS:
        return tuple(TPU_TYPES)
    generation = TPU_VMS[machine].generation
    return tuple(name for name, of_type in TPU_TYPES.items() if of_type.generation == generation)


def _topology_path(role: RoleRequest) -> FieldPath:
    """Return the path for a problem of the topology that the job gives."""
    return role.paths.topology or role.paths.machine


def _machine_for(generation: str, size: int) -> str:
    """Return the machine type of which slices of this size consist."""
    return next(
        name for name, vm in TPU_VMS.items() if vm.generation == generation and vm.is_host_of(size)
    )


def _join_or(choices: Iterable[object]) -> str:
    """Return the choices as in `1, 4 or 8`."""
    *others, last = map(str, choices)
    return f"{', '.join(others)} or {last}" if others else last
