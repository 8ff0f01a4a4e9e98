"""Resolve the document of a Vertex AI CustomJob.

Worker pools are roles by their position: primary (chief), workers, parameter servers, evaluators;
`{}` skips one. `accept` makes the plan of the job from the result. Source: the API's schema,
CustomJobSpec.workerPoolSpecs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.purchase import QUEUED_PRICES
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Variable
from trainmaster.jobspec.catalog.machine_types import VERTEX_TPU_TYPES
from trainmaster.jobspec.fields.google_resources import (
    check_kms_key,
    check_network,
    check_service_account,
)
from trainmaster.jobspec.fields.programs import check_directory, require
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.placement import SpotUse
from trainmaster.jobspec.formats.vertex import (
    MachineSpec,
    Strategy,
    VertexCustomJob,
    WorkerPoolSpec,
)
from trainmaster.jobspec.machines.role_request import RolePaths, RoleRequest, request_accelerator
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import EXTENSION, JOB_SPEC
from trainmaster.jobspec.resolve.builtin_algorithm import refuse_algorithm
from trainmaster.jobspec.resolve.resolved_spec import MAX_RUNNING_S_DEFAULT, ResolvedSpec
from trainmaster.jobspec.resolve.worker_pool_programs import PoolPrograms

POOLS_PATH: Final[FieldPath] = (JOB_SPEC, "workerPoolSpecs")
# Task types of the pools, by position.
_POOL_TYPES: Final = (TaskType.CHIEF, TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)
_SPOT_STRATEGIES: Final = (Strategy.SPOT, Strategy.LOW_COST)


def resolve_custom_job(
    job: VertexCustomJob, extension: Extension, variables: tuple[Variable, ...], problems: Problems
) -> ResolvedSpec:
    """Return what the fields mean, and add their problems to `problems`.

    `variables`: environment variables of all programs.
    """
    spec = job.job_spec
    scheduling = spec.scheduling
    refuse_algorithm(extension, problems)
    directory = spec.base_output_directory.output_uri_prefix
    key = job.encryption_spec.kms_key_name
    check_directory(directory, (JOB_SPEC, "baseOutputDirectory", "outputUriPrefix"), problems)
    check_service_account(spec.service_account, (JOB_SPEC, "serviceAccount"), problems)
    check_network(spec.network, (JOB_SPEC, "network"), problems)
    check_kms_key(key, extension.region, ("encryptionSpec", "kmsKeyName"), problems)
    roles = _request_roles(spec.worker_pool_specs, problems)
    on_tpu = any(role.is_tpu for role in roles)
    programs = PoolPrograms(variables, problems, on_tpu=on_tpu)
    for index, pool in enumerate(spec.worker_pool_specs[: len(_POOL_TYPES)]):
        if not _is_empty(pool):
            programs.add(pool, _POOL_TYPES[index], (*POOLS_PATH, index))
    strategy = scheduling.strategy
    queue = strategy.name if strategy is not None and strategy.name in QUEUED_PRICES else None
    return ResolvedSpec(
        dialect=Dialect.VERTEX,
        roles=roles,
        programs=programs.by_type,
        runtime=programs.runtime,
        is_runtime_requested=True,
        region=extension.region,
        region_path=(EXTENSION, "region"),
        max_running_s=scheduling.timeout or MAX_RUNNING_S_DEFAULT,
        max_wait_s=scheduling.max_wait_duration or None,
        service_account=spec.service_account,
        network=spec.network,
        kms_key=key,
        spot=SpotUse.ALL if strategy in _SPOT_STRATEGIES else None,
        queue=queue,
        queue_path=(JOB_SPEC, "scheduling", "strategy") if queue else (),
        restart_job_on_worker_restart=scheduling.restart_job_on_worker_restart,
        disable_retries=scheduling.disable_retries,
        output_directory=directory,
        persistent_resource=spec.persistent_resource_id or None,
    )


def _is_empty(pool: WorkerPoolSpec) -> bool:
    return pool == WorkerPoolSpec()


def _request_roles(pools: Sequence[WorkerPoolSpec], problems: Problems) -> tuple[RoleRequest, ...]:
    if problems.has_any_at(POOLS_PATH) and not pools:
        return ()
    if len(pools) > len(_POOL_TYPES):
        roles = "primary, workers, parameter servers and evaluators"
        problem = f"has {len(pools)} pools; a job has at most four: {roles}"
        problems.add_text(POOLS_PATH, problem, advice="at most four pools")
    has_primary = bool(pools) and not _is_empty(pools[0])
    if not has_primary:
        path: FieldPath = (*POOLS_PATH, 0) if pools else POOLS_PATH
        problems.add(
            path, "is required: the first pool is the primary replica", example=example_at(path)
        )
    return tuple(
        _request_role(index, pool, task_type, problems)
        for index, (pool, task_type) in enumerate(zip(pools, _POOL_TYPES, strict=False))
        if not _is_empty(pool)
    )


def _request_role(
    index: int, pool: WorkerPoolSpec, task_type: TaskType, problems: Problems
) -> RoleRequest:
    paths = _role_paths(index)
    machine = pool.machine_spec or MachineSpec()
    require(machine.machine_type, paths.machine, problems)
    count = pool.replica_count or 0
    is_primary = index == 0
    if is_primary and count != 1:
        problems.add(
            paths.count,
            f"must be 1 in the first pool, which is the primary replica, not {count}",
            example=1,
        )
    elif count < 1:
        problems.add(
            paths.count,
            f"must be at least 1, not {count}; to have no replicas, write {{}} for the pool",
            example=1,
        )
    return RoleRequest(
        name=f"workerPoolSpecs[{index}]",
        task_type=task_type,
        count=max(count, 1),
        machine=machine.machine_type,
        paths=paths,
        accelerator=request_accelerator(machine.accelerator_type, machine.accelerator_count),
        topology=machine.tpu_topology,
        disk=pool.disk_spec,
        tpu_types=VERTEX_TPU_TYPES,
    )


def _role_paths(index: int) -> RolePaths:
    pool: FieldPath = (*POOLS_PATH, index)
    machine: FieldPath = (*pool, "machineSpec")
    return RolePaths(
        machine=(*machine, "machineType"),
        count=(*pool, "replicaCount"),
        accelerator=(*machine, "acceleratorType"),
        accelerator_type=(*machine, "acceleratorType"),
        accelerator_count=(*machine, "acceleratorCount"),
        disk=(*pool, "diskSpec"),
        topology=(*machine, "tpuTopology"),
    )
