"""A TrainingInput's scale tier, types, counts and configs → what each role asks for.

The rules (source: the API's schema and the service's pages on scale tiers, GPUs and TPUs): types, counts and
accelerators are for CUSTOM only; CUSTOM needs masterType; a type is given if and only if its count is more than zero;
all types are of one category (Compute Engine's names or the service's own).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shared.core.model.job import Substitution
from shared.core.model.replica_id import TaskType
from shared.jobspec.catalog.machine_types import LEGACY_MACHINES, is_compute_machine
from shared.jobspec.catalog.scale_tiers import TIERS, TierRole
from shared.jobspec.catalog.tpu_types import TPU_DEFAULT, TPU_MACHINES
from shared.jobspec.formats.ai_platform import ReplicaConfig, TrainingInput
from shared.jobspec.machines.role_request import Chips, Places, Role, chips_of
from shared.jobspec.reading.document_kinds import TRAINING_INPUT, example_of
from shared.jobspec.reading.problems import Findings, Loc

CUSTOM: Final = "CUSTOM"
ROLE_NAMES: Final = ("master", "worker", "parameterServer", "evaluator")
_TIER_AT: Final[Loc] = (TRAINING_INPUT, "scaleTier")
_NODE_IS_GONE: Final = (
    "A Cloud TPU no longer stands beside a VM that drives it: the program runs on the TPU's own host (a TPU VM)."
)
_TPU_HOST: Final = "one replica on the TPU's own host"


def config_of(training: TrainingInput, name: str) -> ReplicaConfig:
    configs = (
        training.master_config,
        training.worker_config,
        training.parameter_server_config,
        training.evaluator_config,
    )
    return dict(zip(ROLE_NAMES, configs, strict=True))[name] or ReplicaConfig.model_validate({})


def roles_of(
    training: TrainingInput, primary: TaskType, found: Findings, substitutions: list[Substitution]
) -> tuple[Role, ...]:
    """Those with a count of more than zero."""
    if found.doubtful(_TIER_AT):
        return ()
    roles = _roles(training, primary)
    if (training.scale_tier or "BASIC") != CUSTOM:
        _refuse_custom_fields(roles, found)
    else:
        _check_custom(roles, found)
    return tuple(role for role in _on_tpu_hosts(roles, found, substitutions) if role.count > 0)


def _roles(training: TrainingInput, primary: TaskType) -> tuple[Role, ...]:
    it = training
    tier = TIERS.get(it.scale_tier or "BASIC")
    counts: tuple[int, ...] = (1, it.worker_count or 0, it.parameter_server_count or 0, it.evaluator_count or 0)
    by_tier: tuple[TierRole | None, ...] = (None,) * len(counts)
    if tier is not None:
        by_tier = (tier.master, tier.worker, tier.parameter_server, None)
        counts = tuple(role.count if role else count for role, count in zip(by_tier, counts, strict=True))
    types = (primary, TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)
    machines = (it.master_type, it.worker_type, it.parameter_server_type, it.evaluator_type)
    roles = []
    for name, task_type, count, machine, of_tier in zip(ROLE_NAMES, types, counts, machines, by_tier, strict=True):
        config = config_of(training, name)
        asked = config.accelerator_config
        chips = chips_of(asked.type, asked.count) if asked else None
        role = Role(name, task_type, count, machine, places_of(name), chips, disk=config.disk_config, tier=of_tier)
        roles.append(role)
    return tuple(roles)


def places_of(name: str) -> Places:
    chips: Loc = (TRAINING_INPUT, f"{name}Config", "acceleratorConfig")
    return Places(
        machine=(TRAINING_INPUT, f"{name}Type"),
        count=(TRAINING_INPUT, f"{name}Count"),
        chips=chips,
        chips_type=(*chips, "type"),
        chips_count=(*chips, "count"),
        disk=(TRAINING_INPUT, f"{name}Config", "diskConfig"),
    )


def _refuse_custom_fields(roles: tuple[Role, ...], found: Findings) -> None:
    example = f'{found.name(_TIER_AT)}: "{CUSTOM}"'
    for role in roles:
        problem = "is for scaleTier CUSTOM only"
        if role.machine is not None:
            found.add_text(role.at.machine, problem, example)
        if role.tier is None and role.count > 0:
            found.add_text(role.at.count, problem, example)
        if role.chips is not None:
            found.add_text(role.at.chips, problem, example)


def _check_custom(roles: tuple[Role, ...], found: Findings) -> None:
    for role in roles:
        type_at, count_at = role.at.machine, role.at.count
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
    named = [role for role in roles if role.machine is not None]
    legacy = [role for role in named if role.machine in LEGACY_MACHINES]
    compute = [role for role in named if is_compute_machine(role.machine or "")]
    if not legacy or not compute:
        return
    is_legacy_first = named.index(legacy[0]) < named.index(compute[0])
    base, strangers = (legacy[0], compute) if is_legacy_first else (compute[0], legacy)
    for role in strangers:
        machine = role.machine or ""
        want = LEGACY_MACHINES[machine].machine_type if machine in LEGACY_MACHINES else "large_model"
        problem = (
            f"must be of the same category as {found.path(base.at.machine)} ({base.machine}): "
            f"either all types are Compute Engine's or all are the service's own, and this is {machine}"
        )
        found.add(role.at.machine, problem, want)


def _on_tpu_hosts(roles: tuple[Role, ...], found: Findings, substitutions: list[Substitution]) -> tuple[Role, ...]:
    """A master that drives a Cloud TPU beside it (workerType cloud_tpu) becomes one primary replica on that TPU."""
    master, worker, *others = roles
    if master.tier is not None and master.is_tpu:
        asked = f"BASIC_TPU ({_named(None)}, driven by n1-standard-4)"
        substitutions.append(Substitution(found.path(_TIER_AT), asked, _TPU_HOST, _NODE_IS_GONE))
    is_driven = worker.machine in TPU_MACHINES and worker.count != 0 and not master.is_tpu
    if not is_driven or found.doubtful(worker.at.count):
        return roles
    if worker.count != 1:
        found.add(worker.at.count, f"must be 1 with {worker.machine}, not {worker.count}: a job has one Cloud TPU", 1)
    for role in others:
        if role.count > 0:
            found.add(role.at.count, f"must be 0 with {worker.machine}: the TPU's host runs the whole program", 0)
    asked = f"{worker.machine} ({_named(worker.chips)}), driven by {master.machine}"
    substitutions.append(Substitution(found.path(worker.at.machine), asked, _TPU_HOST, _NODE_IS_GONE))
    return (replace(worker, task_type=master.task_type, count=1, disk=None),)


def _named(chips: Chips | None) -> str:
    kind, count = (chips.type, chips.count) if chips else TPU_DEFAULT
    return f"{count} x {kind}"
