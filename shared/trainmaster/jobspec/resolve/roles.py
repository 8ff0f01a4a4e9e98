"""Resolve what each role of a TrainingInput requests: its count, machine, accelerators and disk.

The rules: types, counts and accelerators may be set for CUSTOM only; CUSTOM needs masterType; any
other type is given exactly if its count is more than zero; all types are of one category, Compute
Engine's names or AI Platform Training's own. Source: the API's schema and AI Platform Training's
pages on scale tiers, GPUs and TPUs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trainmaster.core.machines.machine_types import find_machine_type
from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.catalog.machine_types import LEGACY_MACHINES, TPU_DEFAULT, TPU_MACHINES
from trainmaster.jobspec.catalog.scale_tiers import TIERS, TierRole
from trainmaster.jobspec.formats.ai_platform import ReplicaConfig, ScaleTier, TrainingInput
from trainmaster.jobspec.machines.role_request import (
    AcceleratorRequest,
    RolePaths,
    RoleRequest,
    request_accelerator,
)
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT

ROLE_NAMES: Final = ("master", "worker", "parameterServer", "evaluator")
"""Beginnings of the names of the roles' fields, such as `masterType`."""
_TIER_PATH: Final[FieldPath] = (TRAINING_INPUT, "scaleTier")
_TPU_HOST: Final = "one replica on the TPU's own host"
_TPU_HOST_REASON: Final = (
    "A Cloud TPU is no longer driven by a separate VM: the program runs on the TPU's host (a TPU"
    " VM)."
)


def role_configs(training: TrainingInput) -> dict[str, ReplicaConfig]:
    """Return the config of each role, by the role's name."""
    return {
        "master": training.master_config,
        "worker": training.worker_config,
        "parameterServer": training.parameter_server_config,
        "evaluator": training.evaluator_config,
    }


def request_roles(
    training: TrainingInput, primary: TaskType, problems: Problems
) -> tuple[RoleRequest, ...]:
    """Return the roles that have replicas.

    `primary`: the task type of the master, `chief` or `master`.
    """
    if problems.has_any_at(_TIER_PATH):
        return ()
    roles = _all_roles(training, primary)
    if training.scale_tier is ScaleTier.CUSTOM:
        _check_custom(roles, problems)
    else:
        _refuse_custom_fields(roles, problems)
    roles = _move_to_tpu_host(roles, training.scale_tier, problems)
    return tuple(role for role in roles if role.count > 0)


def _all_roles(training: TrainingInput, primary: TaskType) -> tuple[RoleRequest, ...]:
    """Return the four roles in the order of ROLE_NAMES, as all tuples here have them."""
    tier = TIERS.get(training.scale_tier or ScaleTier.BASIC)
    tier_roles: tuple[TierRole | None, ...] = (None, None, None, None)
    if tier is not None:  # not CUSTOM
        tier_roles = (tier.master, tier.worker, tier.parameter_server, None)
    counts = (1, training.worker_count, training.parameter_server_count, training.evaluator_count)
    types = (primary, TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)
    machines = (
        training.master_type,
        training.worker_type,
        training.parameter_server_type,
        training.evaluator_type,
    )
    return tuple(
        RoleRequest(
            name=name,
            task_type=task_type,
            count=tier_role.count if tier_role else count or 0,
            machine=machine,
            paths=_role_paths(name),
            accelerator=request_accelerator(
                config.accelerator_config.type, config.accelerator_config.count
            ),
            disk=config.disk_config,
            tier=tier_role,
        )
        for (name, config), task_type, count, machine, tier_role in zip(
            role_configs(training).items(), types, counts, machines, tier_roles, strict=True
        )
    )


def _role_paths(name: str) -> RolePaths:
    accelerator: FieldPath = (TRAINING_INPUT, f"{name}Config", "acceleratorConfig")
    return RolePaths(
        machine=(TRAINING_INPUT, f"{name}Type"),
        count=(TRAINING_INPUT, f"{name}Count"),
        accelerator=accelerator,
        accelerator_type=(*accelerator, "type"),
        accelerator_count=(*accelerator, "count"),
        disk=(TRAINING_INPUT, f"{name}Config", "diskConfig"),
    )


def _refuse_custom_fields(roles: tuple[RoleRequest, ...], problems: Problems) -> None:
    """Refuse types, counts and accelerators of a job on a predefined cluster."""
    problem = "can only be set for scaleTier CUSTOM"
    example = f'{problems.spelled_name(_TIER_PATH)}: "CUSTOM"'
    for role in roles:
        if role.machine is not None:
            problems.add_text(role.paths.machine, problem, advice=example)
        if role.tier is None and role.count > 0:
            problems.add_text(role.paths.count, problem, advice=example)
        if role.accelerator is not None:
            problems.add_text(role.paths.accelerator, problem, advice=example)


def _check_custom(roles: tuple[RoleRequest, ...], problems: Problems) -> None:
    for role in roles:
        type_path = role.paths.machine
        count_path = role.paths.count
        is_master = role.name == "master"  # which has no field for its count
        if problems.has_any_at(type_path) or (not is_master and problems.has_any_at(count_path)):
            continue
        if role.machine is None and role.count > 0:
            reason = "for scaleTier CUSTOM"
            if not is_master:
                reason = f"because {problems.spelled_path(count_path)} is {role.count}"
            problems.add(type_path, f"is required {reason}", example=example_at(type_path))
        elif role.machine is not None and role.count == 0:
            problem = f"needs {problems.spelled_path(count_path)} as well: the number of replicas"
            example = f"{problems.spelled_name(count_path)}: {example_at(count_path)}"
            problems.add_text(type_path, problem, advice=example)
    _check_categories(roles, problems)


def _check_categories(roles: tuple[RoleRequest, ...], problems: Problems) -> None:
    """Check that all machine types are of one category. Cloud TPUs may be combined with either."""
    with_machine = [role for role in roles if role.machine is not None]
    legacy = [role for role in with_machine if role.machine in LEGACY_MACHINES]
    compute = [role for role in with_machine if find_machine_type(role.machine or "")]
    if not legacy or not compute:
        return
    is_legacy_first = with_machine.index(legacy[0]) < with_machine.index(compute[0])
    first, others = (legacy[0], compute) if is_legacy_first else (compute[0], legacy)
    for role in others:
        machine = role.machine or ""
        example = "large_model"
        if machine in LEGACY_MACHINES:
            example = LEGACY_MACHINES[machine].machine_type
        problem = (
            f"must be of the same category as {problems.spelled_path(first.paths.machine)}"
            f" ({first.machine}), not {machine}: use either Compute Engine's machine types or the"
            " service's own for all roles"
        )
        problems.add(role.paths.machine, problem, example=example)


def _move_to_tpu_host(
    roles: tuple[RoleRequest, ...], tier: ScaleTier | None, problems: Problems
) -> tuple[RoleRequest, ...]:
    """Replace a master and the Cloud TPU that it drives by one primary replica on the TPU's host.

    Such a TPU is requested by the workerType `cloud_tpu`.
    """
    master, worker, *others = roles
    drives_tpu = worker.machine_type in TPU_MACHINES and worker.count != 0 and not master.is_tpu
    if not drives_tpu or problems.has_any_at(worker.paths.count):
        return roles
    if worker.count != 1:
        problem = (
            f"must be 1 for {worker.machine}, not {worker.count}: a job can have one Cloud TPU of"
            " this kind"
        )
        problems.add(worker.paths.count, problem, example=1)
    for role in others:
        if role.count > 0:
            problem = (
                f"must be 0 for a job with {worker.machine}: the TPU's host runs the whole program"
            )
            problems.add(role.paths.count, problem, example=0)
    name = tier if worker.tier else worker.machine_type
    requested = f"{name} ({_tpu_name(worker.accelerator)}), driven by {master.machine_type}"
    field = _TIER_PATH if worker.tier else worker.paths.machine
    problems.substitute(field, requested, _TPU_HOST, _TPU_HOST_REASON)
    return (replace(worker, task_type=master.task_type, count=1, disk=None),)


def _tpu_name(accelerator: AcceleratorRequest | None) -> str:
    tpu_type, count = (accelerator.type, accelerator.count) if accelerator else TPU_DEFAULT
    return f"{count} x {tpu_type}"
