"""The task groups of a job: each role's equipment, and what the roles may be together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.core.model.job import Substitution, TaskGroup
from shared.jobspec.machines.role_request import Role
from shared.jobspec.machines.vm_hardware import Equipment
from shared.jobspec.reading.problems import Findings

REPLICAS_MAX: Final = 1_000
"""What one bulk insert can create. Source: Compute Engine, `count` of instances.bulkInsert."""


def crew_of(
    roles: Sequence[Role], found: Findings, substitutions: list[Substitution], *, has_containers: bool
) -> tuple[TaskGroup, ...]:
    if not roles:
        return ()
    _check_size(roles, found)
    if not has_containers:
        _check_one_kind(roles, found)
    groups = (Equipment(role, found, substitutions).group() for role in roles)
    return tuple(group for group in groups if group is not None)


def _check_size(roles: Sequence[Role], found: Findings) -> None:
    for role in roles:
        if role.count > REPLICAS_MAX:
            found.add(role.at.count, f"must be at most {REPLICAS_MAX}, not {role.count}", REPLICAS_MAX - 1)
    total = sum(role.count for role in roles)
    largest = max(roles, key=lambda role: role.count)
    if total > REPLICAS_MAX and not found.doubtful(largest.at.count):
        rest = max(total - largest.count, 0)
        problem = f"makes {total} replicas in all, and a job has at most {REPLICAS_MAX}"
        found.add(largest.at.count, problem, max(REPLICAS_MAX - rest, 1))


def _check_one_kind(roles: Sequence[Role], found: Findings) -> None:
    """One set of packages is installed everywhere, and a TPU needs others than a GPU."""
    first = roles[0]
    for role in roles:
        if role.is_tpu is not first.is_tpu and role.machine is not None:
            problem = f"cannot be {role.machine} beside {first.machine}: Python packages run on TPUs or beside none"
            found.add_text(
                role.at.machine, f"{problem}; containers may", f"{found.name(role.at.machine)}: {first.machine}"
            )
