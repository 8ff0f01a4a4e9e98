"""Scale tier, types, counts and configs → the task groups of the plan.

The rules (source: the API's schema and the service's pages on scale tiers and GPUs): types, counts and accelerators are
for CUSTOM only; CUSTOM needs masterType; a type is given if and only if its count is more than zero; all types are of
one category (Compute Engine's names or the service's own). What a role's machine consists of is in `equipment`.
"""

from __future__ import annotations

from typing import Final

from shared.core.jobs import Substitution, TaskGroup
from shared.core.seats import TaskType
from shared.jobspec.equipment import Equipment, Role, gpu_of
from shared.jobspec.machines import LEGACY_MACHINES, TPU_MACHINE, is_compute_machine
from shared.jobspec.model import TrainingInput, example_of
from shared.jobspec.problems import Findings, Loc
from shared.jobspec.reading import TRAINING_INPUT
from shared.jobspec.tiers import TIERS, TierRole

REPLICAS_MAX: Final = 1_000
"""What one bulk insert can create. Source: Compute Engine, `count` of instances.bulkInsert."""
CUSTOM: Final = "CUSTOM"


def resolve_groups(
    training: TrainingInput, primary: TaskType, found: Findings, substitutions: list[Substitution]
) -> tuple[TaskGroup, ...]:
    roles = _roles(training, primary)
    tier_at: Loc = (TRAINING_INPUT, "scaleTier")
    if found.doubtful(tier_at):
        return ()
    if (training.scale_tier or "BASIC") != CUSTOM:
        _refuse_custom_fields(roles, found)
    else:
        _check_custom(roles, found)
    _check_size(roles, found)
    groups = (Equipment(role, found, substitutions).group() for role in roles if role.count > 0)
    return tuple(group for group in groups if group is not None)


def _roles(training: TrainingInput, primary: TaskType) -> tuple[Role, ...]:
    it = training
    tier = TIERS.get(it.scale_tier or "BASIC")
    counts: tuple[int, ...] = (1, it.worker_count or 0, it.parameter_server_count or 0, it.evaluator_count or 0)
    by_tier: tuple[TierRole | None, ...] = (None,) * len(counts)
    if tier is not None:
        by_tier = (tier.master, tier.worker, tier.parameter_server, None)
        counts = tuple(role.count if role else count for role, count in zip(by_tier, counts, strict=True))
    names = ("master", "worker", "parameterServer", "evaluator")
    types = (primary, TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)
    machines = (it.master_type, it.worker_type, it.parameter_server_type, it.evaluator_type)
    configs = (it.master_config, it.worker_config, it.parameter_server_config, it.evaluator_config)
    return tuple(map(Role, names, types, machines, counts, configs, by_tier))


def _refuse_custom_fields(roles: tuple[Role, ...], found: Findings) -> None:
    example = f'{found.name((TRAINING_INPUT, "scaleTier"))}: "{CUSTOM}"'
    for role in roles:
        problem = "is for scaleTier CUSTOM only"
        if role.machine is not None:
            found.add_text(role.at("Type"), problem, example)
        if role.tier is None and role.count > 0:
            found.add_text(role.at("Count"), problem, example)
        if gpu_of(role.config) is not None:
            found.add_text((*role.at("Config"), "acceleratorConfig"), problem, example)


def _check_custom(roles: tuple[Role, ...], found: Findings) -> None:
    for role in roles:
        type_at, count_at = role.at("Type"), role.at("Count")
        if role.count < 0:
            found.add(count_at, f"must not be negative: {role.count}", example_of(count_at))
        elif found.doubtful(type_at) or (role.name != "master" and found.doubtful(count_at)):
            continue
        elif role.machine is None and role.count > 0:
            what = (
                "for scaleTier CUSTOM" if role.name == "master" else f"because {found.path(count_at)} is {role.count}"
            )
            found.add(type_at, f"is required {what}", example_of(type_at))
        elif role.machine is not None and role.count == 0:
            problem = f"is given, but {found.path(count_at)} is not: how many?"
            found.add_text(type_at, problem, f"{found.name(count_at)}: {example_of(count_at)}")
    _check_categories(roles, found)


def _check_categories(roles: tuple[Role, ...], found: Findings) -> None:
    """A Cloud TPU goes with either category."""
    named = [role for role in roles if role.machine is not None and role.machine != TPU_MACHINE]
    legacy = [role for role in named if role.machine in LEGACY_MACHINES]
    compute = [role for role in named if is_compute_machine(role.machine or "")]
    if not legacy or not compute:
        return
    base, strangers = (legacy[0], compute) if named[0] in legacy else (compute[0], legacy)
    for role in strangers:
        machine = role.machine or ""
        want = LEGACY_MACHINES[machine].machine_type if machine in LEGACY_MACHINES else "large_model"
        problem = (
            f"must be of the same category as {found.path(base.at('Type'))} ({base.machine}): "
            f"either all types are Compute Engine's or all are the service's own, and this is {machine}"
        )
        found.add(role.at("Type"), problem, want)


def _check_size(roles: tuple[Role, ...], found: Findings) -> None:
    for role in roles:
        if role.count > REPLICAS_MAX:
            found.add(role.at("Count"), f"must be at most {REPLICAS_MAX}, not {role.count}", REPLICAS_MAX - 1)
    total = sum(role.count for role in roles)
    largest = max(roles, key=lambda role: role.count)
    if total > REPLICAS_MAX and not found.doubtful(largest.at("Count")):
        rest = max(total - largest.count, 0)
        problem = f"makes {total} replicas in all, and a job has at most {REPLICAS_MAX}"
        found.add(largest.at("Count"), problem, max(REPLICAS_MAX - rest, 1))
