"""Resolve the task groups of a job: the hardware of each role, and which roles may be combined.

Source of the rules for built-in algorithms: AI Platform Training's page of each algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.model.origin import BuiltInAlgorithm
from trainmaster.core.model.replica_id import PRIMARY_TYPES, TaskType
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.jobspec.catalog.algorithms import ALGORITHMS, XGBOOST_ON_GPU, Algorithm
from trainmaster.jobspec.catalog.runtimes import Runtime
from trainmaster.jobspec.formats.ai_platform import REPLICAS_MAX
from trainmaster.jobspec.machines.role_request import RoleRequest
from trainmaster.jobspec.machines.vm_hardware import HardwareResolver
from trainmaster.jobspec.problems import Problems
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT


def resolve_task_groups(
    roles: Sequence[RoleRequest], problems: Problems, *, has_containers: bool
) -> tuple[TaskGroup, ...]:
    """Return a group for each role without problems."""
    if not roles:
        return ()
    _check_replicas(roles, problems)
    if not has_containers:
        _check_one_platform(roles, problems)
    groups = (HardwareResolver(role, problems).resolve() for role in roles)
    return tuple(group for group in groups if group is not None)


def _check_replicas(roles: Sequence[RoleRequest], problems: Problems) -> None:
    total = sum(role.count for role in roles)
    largest = max(roles, key=lambda role: role.count)
    if total > REPLICAS_MAX:
        others = total - largest.count
        problem = f"results in {total} replicas in all; a job has at most {REPLICAS_MAX}"
        problems.add(largest.paths.count, problem, example=max(REPLICAS_MAX - others, 1))


def _check_one_platform(roles: Sequence[RoleRequest], problems: Problems) -> None:
    """Refuse TPUs beside VMs.

    Python packages are installed in one runtime, and that of a TPU differs from that of a VM.
    """
    first = roles[0]
    for role in roles:
        if role.is_tpu is not first.is_tpu and role.machine is not None:
            tpu, other = (role, first) if role.is_tpu else (first, role)
            problem = (
                f"cannot combine TPU {tpu.machine} with {other.machine} when the job uses Python"
                " packages; use containers, or the same kind of machine for all roles"
            )
            example = f"{problems.spelled_name(role.paths.machine)}: {first.machine}"
            problems.add_text(role.paths.machine, problem, advice=example)


def check_algorithm_machines(
    stored: BuiltInAlgorithm,
    roles: Sequence[RoleRequest],
    groups: Sequence[TaskGroup],
    problems: Problems,
) -> None:
    """Check roles and accelerators of a built-in algorithm. `groups`: the hardware of the roles."""
    algorithm = ALGORITHMS[stored.name]
    _check_roles(algorithm, roles, problems)
    accelerators = {group.task_type: group.accelerator for group in groups}
    of_master = groups[0].accelerator if groups else None
    for role in roles:
        accelerator = accelerators.get(role.task_type)
        count = accelerator.count if accelerator else 0
        where = role.paths.accelerator if role.accelerator else role.paths.machine
        if role.is_tpu:
            field = (TRAINING_INPUT, "scaleTier") if role.tier else role.paths.machine
            problem = f"is a TPU, which {algorithm.name} cannot use"
            problems.add(field, problem, example="BASIC" if role.tier else "n1-standard-8")
        elif count > algorithm.gpus_max:
            allowed = "no GPU" if algorithm.gpus_max == 0 else "one GPU per VM"
            problem = f"requests {count} per VM, and {algorithm.name} uses {allowed}"
            problems.add_text(where, problem, advice="leave it out")
        elif algorithm.is_distributed and accelerator != of_master:
            problem = (
                f"must be the GPU of the master: {algorithm.name} uses one GPU of the same type on"
                " every VM"
            )
            problems.add_text(where, problem, advice="give all roles the same accelerator, or none")


def gpu_runtime(stored: BuiltInAlgorithm, groups: Sequence[TaskGroup], runtime: Runtime) -> Runtime:
    """Return the runtime for these machines: XGBoost has another build for GPUs."""
    is_xgboost = ALGORITHMS[stored.name].framework == "XGBOOST"
    has_gpus = any(group.accelerator for group in groups)
    return XGBOOST_ON_GPU if is_xgboost and has_gpus else runtime


def _check_roles(algorithm: Algorithm, roles: Sequence[RoleRequest], problems: Problems) -> None:
    if algorithm.is_distributed:
        needs = "a master and workers, without other roles"
        fitting_tier = "CUSTOM"
    else:
        needs = "a master alone"
        fitting_tier = "BASIC"
    for role in roles:
        is_allowed = algorithm.is_distributed and role.task_type is TaskType.WORKER
        if role.task_type in PRIMARY_TYPES or is_allowed:
            continue
        if role.tier is not None:
            problem = f"has roles that {algorithm.name} does not use; it needs {needs}"
            problems.add((TRAINING_INPUT, "scaleTier"), problem, example=fitting_tier)
        else:
            problem = f"must be 0 for {algorithm.name}, which needs {needs}"
            problems.add_text(role.paths.count, problem, advice="leave it out")
    if algorithm.is_distributed and not any(role.task_type is TaskType.WORKER for role in roles):
        problem = f"must be at least 1 for {algorithm.name}; boosted_trees runs on one machine"
        problems.add((TRAINING_INPUT, "workerCount"), problem, example=1)
