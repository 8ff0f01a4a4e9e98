"""Accept a submitted document: resolve it to a plan, or report everything that is wrong with it.

    copy_as_json → with_lists → read_model (names, types, limits) → check_supported
                 → resolve_training_input or resolve_custom_job (ResolvedSpec)
                 → resolve_task_groups → Plan
                 → check_environment_size

Every step adds its problems and leaves out what it cannot use, so that one answer has all problems.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trainmaster.core.intake.named_resources import NamedResource
from trainmaster.core.model.exit_policy import ExitPolicy
from trainmaster.core.model.origin import Origin, Substitution
from trainmaster.core.model.plan import Access, BootImage, Limits, Plan, Restarts
from trainmaster.core.model.saving import CheckpointSignal, SavePolicy
from trainmaster.core.model.task_group import Container, Program, TaskGroup
from trainmaster.core.model.tuning import Tuning
from trainmaster.core.model.watching import Preflight, TrackingRun, Watching
from trainmaster.core.model.where import Where
from trainmaster.jobspec.catalog.runtimes import OWN_IMAGE
from trainmaster.jobspec.fields.environment_size import check_environment_size
from trainmaster.jobspec.fields.environment_variables import check_lines, resolve_common_variables
from trainmaster.jobspec.fields.exit_policy import resolve_exit_policy
from trainmaster.jobspec.fields.extension_fields import (
    check_boot_image,
    check_extension,
    check_gang,
    resolve_cap,
    with_elastic,
    with_kept_machines,
    with_save_on_notice,
    with_stillness,
)
from trainmaster.jobspec.fields.job_id import job_id_of_display_name
from trainmaster.jobspec.fields.job_id_check import check_job_id
from trainmaster.jobspec.fields.labels import check_labels
from trainmaster.jobspec.fields.placement import resolve_zones
from trainmaster.jobspec.fields.tuning_parameters import refuse_resumed_job
from trainmaster.jobspec.formats.ai_platform import AiPlatformJob, TrainingInput
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.placement import DataSpec
from trainmaster.jobspec.formats.unsupported import check_supported
from trainmaster.jobspec.formats.vertex import VertexCustomJob
from trainmaster.jobspec.formats.vertex_study import VertexTuningJob
from trainmaster.jobspec.machines.obtainable import Request, check_machines, with_disks_for_image
from trainmaster.jobspec.machines.task_groups import (
    check_algorithm_machines,
    gpu_runtime,
    resolve_task_groups,
)
from trainmaster.jobspec.problems import Problems
from trainmaster.jobspec.reading.document_kinds import describe_missing_body
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT
from trainmaster.jobspec.reading.foreign_files import refuse_foreign_file
from trainmaster.jobspec.reading.json_limits import copy_as_json, invalid
from trainmaster.jobspec.reading.read_model import TRAINING_INPUT_EXAMPLE, read_model, with_lists
from trainmaster.jobspec.resolve.alternatives import with_alternatives
from trainmaster.jobspec.resolve.custom_job import resolve_custom_job
from trainmaster.jobspec.resolve.gcs_folder import resolve_gcs_folder
from trainmaster.jobspec.resolve.named_resources import named_resources
from trainmaster.jobspec.resolve.pool_reservations import with_pool_reservation
from trainmaster.jobspec.resolve.purchases import with_purchases
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec
from trainmaster.jobspec.resolve.study_spec import resolve_study
from trainmaster.jobspec.resolve.tpu_queue import resolve_queue
from trainmaster.jobspec.resolve.training_input import resolve_training_input

SPEC_BYTES_MAX: Final = 64 * 1024
"""One metadata value of every VM contains the spec about twice, as description and as program, and
may have 256 KiB.
"""
_DISPLAY_NAME_PATH: Final = ("displayName",)
_NO_PROGRAM: Final = Program(
    package_uris=(), python_module="", args=(), job_dir=None, container=Container("")
)
"""The program of a document without roles, which is a problem."""


@dataclass(frozen=True)
class AcceptedSpec:
    """The result of accepting a document: the plan of its job, and what must be checked later."""

    job_id: str | None
    spec_json: str
    """The document as submitted, as canonical compact JSON: no defaults filled in, no names
    respelled.

    A single value of a field that is a list has become a list of one: readers of the API's answers
    require it.
    """
    labels: Mapping[str, str]
    plan: Plan
    """The plan of the job; for a tuning job, that of each trial."""
    tuning: Tuning | None = None
    """The tuning of a tuning job."""
    resources: tuple[NamedResource, ...] = ()
    """Resources of Google Cloud that the job names.

    Whether its submitter may use them has not been checked.
    """
    data: DataSpec | None = None
    """Data in Cloud Storage whose transfer counts in the price of a region."""


def accept(
    document: Mapping[str, object], *, default_job_id: str | None, regions: Sequence[str] = ()
) -> AcceptedSpec:
    """Return what a document means. Raises InvalidJob with every problem, and no other error.

    `default_job_id`: the id for a document that names none, such as a job file, whose name
    determines it. Without it a CustomJob gets its id from its displayName. `regions`: those of the
    installation; empty: not known.
    """
    copy, json_problems = copy_as_json(document)
    copy = with_lists(copy)
    # Source: Airflow compares the returned trainingInput strictly with what it sent. Firestore and
    # metadata need UTF-8.
    spec_json = json.dumps(copy, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if len(spec_json.encode()) > SPEC_BYTES_MAX:
        raise invalid(
            f"has more than {SPEC_BYTES_MAX} bytes", "put large inputs into files in gs://"
        )
    refuse_foreign_file(copy)
    problems = Problems(json_problems)
    accepted = _resolve(read_model(copy, problems), default_job_id, spec_json, regions, problems)
    problems.raise_if_any()
    return accepted


def _resolve_job_id(
    job: AiPlatformJob | VertexCustomJob, default_job_id: str | None, problems: Problems
) -> str | None:
    """Return the job's id: its own, else the default, else one made from its displayName."""
    job_id = job.job_id or default_job_id
    if job_id is None and isinstance(job, VertexCustomJob) and job.display_name:
        job_id = job_id_of_display_name(job.display_name)
    # A displayName with a problem makes no id, which is no further problem.
    if job_id is not None or not problems.has_any_at(_DISPLAY_NAME_PATH):
        check_job_id(job_id, problems)
    return job_id


def _resolve(
    job: AiPlatformJob | VertexCustomJob,
    default_job_id: str | None,
    spec_json: str,
    regions: Sequence[str],
    problems: Problems,
) -> AcceptedSpec:
    job_id = _resolve_job_id(job, default_job_id, problems)
    check_labels(job.labels, problems)
    ignored_conveniences = check_supported(job, problems)
    extension = job.trainmaster
    if isinstance(job, VertexCustomJob):
        extension = with_pool_reservation(job, extension, problems)
    check_extension(extension, problems)
    variables = resolve_common_variables(extension, problems)
    exit_policy = resolve_exit_policy(extension.exit_policy, problems)
    if isinstance(job, VertexCustomJob):
        spec = resolve_custom_job(job, extension, variables, problems)
    else:
        if job.training_input is None:
            at_top = [name for path, name in problems.names.items() if len(path) == 1]
            problems.add_text(
                (TRAINING_INPUT,), describe_missing_body(at_top), advice=TRAINING_INPUT_EXAMPLE
            )
        spec = resolve_training_input(
            job.training_input or TrainingInput(), extension, variables, problems
        )
    problems.substitutions.extend(ignored_conveniences)
    tuning = spec.tuning
    if isinstance(job, VertexTuningJob):
        tuning = resolve_study(job, problems)
    elif isinstance(job, VertexCustomJob):
        refuse_resumed_job(extension, "a CustomJob has no results", problems)
    else:
        refuse_resumed_job(extension, "a TrainingInput has hyperparameters for it", problems)
    plan = _plan(spec, extension, exit_policy, problems)
    plan = with_save_on_notice(plan, extension.save_on_notice, problems)
    plan = with_stillness(plan, extension.stall_timeout, problems)
    plan = with_alternatives(plan, spec, extension, regions, problems)
    check_gang(plan, problems)
    if plan.has_containers:
        check_lines(extension.env, ("trainmaster", "env"), problems)
    plan = with_elastic(plan, extension.elastic, problems)
    plan = with_kept_machines(plan, extension.keep_machines, spec.persistent_resource, problems)
    substitutions = (*_listed_substitutions(extension), *problems.substitutions)
    plan = replace(plan, origin=replace(plan.origin, substitutions=substitutions))
    problems.raise_if_any()
    if job_id is not None:
        check_environment_size(
            job_id, spec_json, plan, spec.roles, problems, is_tuning=tuning is not None
        )
    resources = named_resources(spec, extension, problems)
    data = extension.placement.data if extension.placement else None
    return AcceptedSpec(job_id, spec_json, dict(job.labels), plan, tuning, resources, data)


def _plan(
    spec: ResolvedSpec, extension: Extension, exit_policy: ExitPolicy, problems: Problems
) -> Plan:
    program = next(iter(spec.programs.values()), _NO_PROGRAM)
    has_containers = program.container is not None
    groups = resolve_task_groups(spec.roles, problems, has_containers=has_containers)
    if spec.algorithm is not None:
        check_algorithm_machines(spec.algorithm, spec.roles, groups, problems)
        spec = replace(spec, runtime=gpu_runtime(spec.algorithm, groups, spec.runtime))
    tpus = [group.tpu for group in groups if group.tpu]
    has_bare_image = extension.image is not None and not spec.is_runtime_requested
    if extension.image is not None:
        check_boot_image(extension.image, problems, has_tpu=any(role.is_tpu for role in spec.roles))
    region, zones = resolve_zones(spec.region, spec.region_path, extension.zones, tpus, problems)
    queue = resolve_queue(extension, spec, groups, problems)
    # With TPUs, `extension.image` is the software version of the TPU VMs.
    image = extension.image if extension.image is not None and not tpus else spec.runtime.image
    groups = tuple(_complete_group(group, program, spec, extension.image) for group in groups)
    groups = with_purchases(groups, extension.spot, spec.spot, extension.reservation, queue)
    if extension.placement is None:  # else `with_alternatives` checks the machines of each
        request = Request(image, is_own_image=extension.image is not None)
        check_machines(spec.roles, groups, request, problems)
    groups = with_disks_for_image(spec.roles, groups, image, problems)
    disable_retries = spec.disable_retries or extension.disable_retries
    restarts_job = spec.restart_job_on_worker_restart or extension.restart_job_on_worker_restart
    stall_timeout = extension.stall_timeout
    algorithm = spec.algorithm
    return Plan(
        groups=groups,
        program=program,
        where=Where(region, zones, zones_listed=bool(extension.zones)),
        image=BootImage(
            image,
            runtime=OWN_IMAGE if has_bare_image else spec.runtime.name,
            packages=() if has_bare_image else spec.runtime.packages,
            gpu_packages=() if has_bare_image else spec.runtime.gpu_packages,
        ),
        limits=Limits(
            max_running_s=spec.max_running_s,
            max_wait_s=spec.max_wait_s,
            priority=spec.priority,
            cap=resolve_cap(extension.max_cost, problems),
        ),
        restarts=Restarts(
            exit_policy=exit_policy,
            # Source: Vertex AI: disableRetries overrides restartJobOnWorkerRestart to false.
            restart_job_on_worker_restart=restarts_job and not disable_retries,
            disable_retries=disable_retries,
            gang=extension.gang,
            independent=extension.independent_replicas,
        ),
        saving=SavePolicy(signal=extension.checkpoint_signal or CheckpointSignal.SIGTERM),
        watching=Watching(
            preflight=extension.preflight or Preflight.ON,
            stall_timeout_s=stall_timeout if isinstance(stall_timeout, int) else None,
            tracking_run=extension.tracking_run or TrackingRun.AUTO,
        ),
        access=Access(
            service_account=spec.service_account,
            network=spec.network,
            kms_key=spec.kms_key,
            gcs=resolve_gcs_folder(extension, spec, problems),
        ),
        origin=Origin(
            dialect=spec.dialect,
            output_directory=spec.output_directory,
            algorithm=algorithm and replace(algorithm, python_version=spec.runtime.python),
        ),
    )


def _listed_substitutions(extension: Extension) -> tuple[Substitution, ...]:
    """Return what the conversion of a manifest to this document replaced."""
    return tuple(
        Substitution(
            item.field or "", item.requested or "", item.replacement or "", item.reason or ""
        )
        for item in extension.converted_from.substitutions
    )


def _complete_group(
    group: TaskGroup, common: Program, spec: ResolvedSpec, image: str | None
) -> TaskGroup:
    """Add program and TPU software to a group with hardware alone.

    `common`: the program of the plan, which a group does not repeat. `image`: that of the job file.
    """
    program: Program | None = spec.programs.get(group.task_type, common)
    if program == common:
        program = None
    tpu = group.tpu
    if tpu is not None:
        tpu = replace(tpu, runtime=image or tpu.runtime)
    return replace(group, tpu=tpu, program=program)
