"""A role's words for a Cloud TPU → the slice it gets, or what is wrong with them."""

from __future__ import annotations

from shared.core.model.job import Tpu
from shared.jobspec.catalog.tpu_types import (
    GENERATIONS,
    TPU_DEFAULT,
    TPU_MACHINES,
    TPU_TYPES,
    TPU_VMS,
    Generation,
    TpuVm,
)
from shared.jobspec.machines.role_request import Chips, Role
from shared.jobspec.reading.problems import Findings, given


def slice_of(role: Role, found: Findings) -> Tpu | None:
    """The slice of a role whose machine is a TPU; None where that cannot be said."""
    if found.doubtful(role.at.chips, role.at.chips_type, role.at.chips_count):
        return None
    number = None
    if role.chips is not None:
        number = _counted(role.chips, role, found)
        if number is None:
            return None
    machine = role.tier.machine_type if role.tier else role.machine or ""
    if machine in TPU_MACHINES:
        kind = role.chips.type if role.chips and role.chips.type else TPU_DEFAULT[0]
        return _by_type(GENERATIONS[TPU_TYPES[kind].generation], number or TPU_DEFAULT[1], role, found)
    return _by_machine(machine, TPU_VMS[machine], number, role, found)


def _counted(chips: Chips, role: Role, found: Findings) -> int | None:
    """The number in Cloud TPU's name."""
    if chips.type is None:
        found.add(role.at.chips_type, "is required", _types_of(role.machine or "")[0])
        return None
    if chips.type not in TPU_TYPES:
        problem = f"must be a TPU on {role.machine}, not {given(chips.type)}"
        found.add(role.at.chips_type, problem, _types_of(role.machine or "")[0])
        return None
    counts = TPU_TYPES[chips.type].counts
    if chips.count is None:
        found.add(role.at.chips_count, "is required", counts[0])
    elif chips.count not in counts:
        problem = f"must be {_either(counts)} for {chips.type}, not {chips.count}"
        found.add(role.at.chips_count, problem, next((it for it in counts if it >= chips.count), counts[-1]))
    else:
        return chips.count
    return None


def _by_type(table: Generation, number: int, role: Role, found: Findings) -> Tpu | None:
    if role.topology is not None and role.topology != table.topologies[number] and role.at.topology:
        problem = f"must be {table.topologies[number]} for {table.name(number)}, not {given(role.topology)}"
        found.add(role.at.topology, problem, table.topologies[number])
        return None
    return Tpu(table.name(number), table.runtime, table.hosts(number))


def _by_machine(machine: str, vm: TpuVm, number: int | None, role: Role, found: Findings) -> Tpu | None:
    table = vm.table
    if role.chips is not None and role.chips.type not in _types_of(machine):
        problem = f"does not go with {machine}, whose chips are {' or '.join(_types_of(machine))}"
        found.add(role.at.chips_type, problem, _types_of(machine)[-1])
        return None
    if role.topology is None:
        size = number or vm.chips * table.cores_per_chip
        if vm.makes(size):
            return Tpu(table.name(size), table.runtime, table.hosts(size))
        found.add(role.at.machine, f"does not make a {table.name(size)}", _machine_for(vm.generation, size))
        return None
    size_of_shape = table.number_of(role.topology)
    at = role.at.topology or role.at.machine
    if size_of_shape is None or not vm.makes(size_of_shape):
        fitting = [shape for known, shape in table.topologies.items() if vm.makes(known)]
        hint = f" (which goes with {_machine_for(vm.generation, size_of_shape)})" if size_of_shape else ""
        found.add(at, f"must be {_either(fitting)} on {machine}, not {given(role.topology)}{hint}", fitting[0])
    elif number is not None and number != size_of_shape:
        problem = f"is a {table.name(size_of_shape)}, but {found.path(role.at.chips_count)} is {number}"
        found.add(at, problem, table.topologies[number])
    else:
        is_usual = table.topologies.get(size_of_shape) == role.topology
        return Tpu(
            table.name(size_of_shape), table.runtime, table.hosts(size_of_shape), None if is_usual else role.topology
        )
    return None


def _types_of(machine: str) -> tuple[str, ...]:
    generation = TPU_VMS[machine].generation if machine in TPU_VMS else None
    return tuple(name for name, kind in TPU_TYPES.items() if generation in (None, kind.generation))


def _machine_for(generation: str, number: int) -> str:
    return next(name for name, vm in TPU_VMS.items() if vm.generation == generation and vm.makes(number))


def _either(choices: tuple[int, ...] | list[str]) -> str:
    return " or ".join(", ".join(map(str, choices)).rsplit(", ", 1))
