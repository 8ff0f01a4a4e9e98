"""Resolve the task groups of a job: the hardware of each role, and which roles may be combined."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.model.plan import Substitution, TaskGroup
from trainmaster.jobspec.formats.ai_platform import REPLICAS_MAX
from trainmaster.jobspec.machines.role_request import RoleRequest
from trainmaster.jobspec.machines.vm_hardware import HardwareResolver
from trainmaster.jobspec.problems import Problems


def resolve_task_groups(
    roles: Sequence[RoleRequest], problems: Problems, substitutions: list[Substitution], *, has_containers: bool
) -> tuple[TaskGroup, ...]:
    """Return a group for each role without problems."""
    if not roles:
        return ()
    _check_replicas(roles, problems)
    if not has_containers:
        _check_one_platform(roles, problems)
    groups = (HardwareResolver(role, problems, substitutions).resolve() for role in roles)
    return tuple(group for group in groups if group is not None)


def _check_replicas(roles: Sequence[RoleRequest], problems: Problems) -> None:
    total = sum(role.count for role in roles)
    largest = max(roles, key=lambda role: role.count)
    if total > REPLICAS_MAX:
        others = total - largest.count
        problem = f"results in {total} replicas in all; a job has at most {REPLICAS_MAX}"
        problems.add(largest.paths.count, problem, max(REPLICAS_MAX - others, 1))


def _check_one_platform(roles: Sequence[RoleRequest], problems: Problems) -> None:
    """Python packages are installed in one runtime, and that of a TPU differs from that of a VM."""
    first = roles[0]
    for role in roles:
        if role.is_tpu is not first.is_tpu and role.machine is not None:
            tpu, other = (role, first) if role.is_tpu else (first, role)
            problem = (
                f"cannot combine TPU {tpu.machine} with {other.machine} when the job uses Python packages; "
                "use containers, or the same kind of machine for all roles"
            )
            example = f"{problems.spelled_name(role.paths.machine)}: {first.machine}"
            problems.add_text(role.paths.machine, problem, example)
