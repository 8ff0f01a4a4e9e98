"""A Vertex AI CustomJob → what it means, in parts.

Worker pools are roles by their position: primary (chief), workers, parameter servers, evaluators; `{}` is none.
Source: the API's schema, CustomJobSpec.workerPoolSpecs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.core.model.job import Dialect, Substitution
from shared.core.model.replica_id import TaskType
from shared.jobspec.fields.common import check_account, check_key, check_network, check_running_time, check_waiting_time
from shared.jobspec.fields.extension_fields import Extras
from shared.jobspec.fields.programs import check_directory, require
from shared.jobspec.formats.ai_platform import EncryptionConfig
from shared.jobspec.formats.extension import Extension
from shared.jobspec.formats.vertex import CustomJob, CustomJobScheduling, CustomJobSpec, MachineSpec, WorkerPoolSpec
from shared.jobspec.machines.role_request import Places, Role, chips_of
from shared.jobspec.reading.document_kinds import EXTENSION, JOB_SPEC, example_of
from shared.jobspec.reading.problems import Findings, Loc
from shared.jobspec.resolve.resolved_spec import Meaning
from shared.jobspec.resolve.worker_pool_programs import PoolPrograms

DISPLAY_NAME_CHARS_MAX: Final = 128
POOLS_AT: Final[Loc] = (JOB_SPEC, "workerPoolSpecs")
_POOL_TYPES: Final = (TaskType.CHIEF, TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)
_SPOT_STRATEGIES: Final = ("SPOT", "LOW_COST")


def meaning_of(job: CustomJob, extension: Extension, extras: Extras, found: Findings) -> Meaning:
    substitutions: list[Substitution] = []
    spec = job.job_spec or CustomJobSpec.model_validate({})
    scheduling = spec.scheduling or CustomJobScheduling.model_validate({})
    at: Loc = (JOB_SPEC, "scheduling")
    directory = spec.base_output_directory.output_uri_prefix if spec.base_output_directory else None
    key = (job.encryption_spec or EncryptionConfig.model_validate({})).kms_key_name
    if len(job.display_name or "") > DISPLAY_NAME_CHARS_MAX:
        found.add(("displayName",), f"has more than {DISPLAY_NAME_CHARS_MAX} characters", "digits")
    if directory is not None:
        check_directory(directory, (JOB_SPEC, "baseOutputDirectory", "outputUriPrefix"), found)
    check_account(spec.service_account, (JOB_SPEC, "serviceAccount"), found)
    check_network(spec.network, (JOB_SPEC, "network"), found)
    check_key(key, extension.region, ("encryptionSpec", "kmsKeyName"), found)
    roles = _roles(spec.worker_pool_specs or (), found)
    on_tpu = any(role.is_tpu for role in roles)
    programs = PoolPrograms(extras.variables, found, substitutions, on_tpu=on_tpu)
    for index, pool in enumerate((spec.worker_pool_specs or ())[: len(_POOL_TYPES)]):
        if _is_there(pool):
            programs.add(pool, _POOL_TYPES[index], (*POOLS_AT, index))
    return Meaning(
        dialect=Dialect.VERTEX,
        roles=roles,
        programs=programs.by_type,
        runtime=programs.runtime,
        is_runtime_named=True,
        region=extension.region,
        region_at=(EXTENSION, "region"),
        max_running_s=check_running_time(scheduling.timeout, (*at, "timeout"), found),
        max_wait_s=check_waiting_time(scheduling.max_wait_duration, (*at, "maxWaitDuration"), found, least_s=0),
        service_account=spec.service_account,
        network=spec.network,
        kms_key=key,
        substitutions=substitutions,
        spot="ALL" if scheduling.strategy in _SPOT_STRATEGIES else None,
        flex_start_at=(*at, "strategy") if scheduling.strategy == "FLEX_START" else None,
        restart_job_on_worker_restart=scheduling.restart_job_on_worker_restart,
        disable_retries=scheduling.disable_retries,
        output_directory=directory,
    )


def _is_there(pool: WorkerPoolSpec) -> bool:
    return pool != WorkerPoolSpec.model_validate({})


def _roles(pools: Sequence[WorkerPoolSpec], found: Findings) -> tuple[Role, ...]:
    if found.doubtful(POOLS_AT) and not pools:
        return ()
    if len(pools) > len(_POOL_TYPES):
        problem = f"has {len(pools)} pools: there are four, for the primary, workers, parameter servers and evaluators"
        found.add_text(POOLS_AT, problem, "at most four pools")
    if not pools or not _is_there(pools[0]):
        at: Loc = (*POOLS_AT, 0) if pools else POOLS_AT
        found.add(at, "is required: the first pool is the primary replica", example_of(at))
    present = zip(range(len(_POOL_TYPES)), pools, _POOL_TYPES, strict=False)
    return tuple(_role(index, pool, kind, found) for index, pool, kind in present if _is_there(pool))


def _role(index: int, pool: WorkerPoolSpec, task_type: TaskType, found: Findings) -> Role:
    at = _places(index)
    machine = pool.machine_spec or MachineSpec.model_validate({})
    require(machine.machine_type, at.machine, found)
    count = pool.replica_count or 0
    if index == 0 and count != 1:
        found.add(at.count, f"must be 1 in the first pool, the primary replica, not {count}", 1)
    elif count < 1:
        found.add(at.count, f"must be at least 1, not {count}; for no replicas leave the pool empty", 1)
    return Role(
        f"workerPoolSpecs[{index}]",
        task_type,
        max(count, 1),
        machine.machine_type,
        at,
        chips_of(machine.accelerator_type, machine.accelerator_count),
        machine.tpu_topology,
        pool.disk_spec,
    )


def _places(index: int) -> Places:
    pool: Loc = (*POOLS_AT, index)
    machine: Loc = (*pool, "machineSpec")
    return Places(
        machine=(*machine, "machineType"),
        count=(*pool, "replicaCount"),
        chips=(*machine, "acceleratorType"),
        chips_type=(*machine, "acceleratorType"),
        chips_count=(*machine, "acceleratorCount"),
        disk=(*pool, "diskSpec"),
        topology=(*machine, "tpuTopology"),
    )
