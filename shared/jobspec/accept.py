"""A submitted document → what it means, or everything that is wrong with it.

    plain → reading (names, types) → unsupported → training or custom_job (Meaning) → crew, place → Plan

Every step notes its problems and leaves out what it cannot use, so that one answer tells all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from shared.core.model.job import Container, Plan, Program, TaskGroup, TpuQueue
from shared.core.model.tuning import Tuning
from shared.jobspec.catalog.runtimes import OWN_IMAGE
from shared.jobspec.fields.common import check_job_id, check_labels, check_place
from shared.jobspec.fields.extension_fields import Extras, check_image_of, is_spot, resolve_extras
from shared.jobspec.fields.job_id import nearest_legal
from shared.jobspec.fields.unsupported import check_supported
from shared.jobspec.formats.ai_platform import Job, TrainingInput
from shared.jobspec.formats.extension import Extension
from shared.jobspec.formats.vertex import CustomJob
from shared.jobspec.formats.vertex_study import TuningJob
from shared.jobspec.machines.task_groups import crew_of
from shared.jobspec.machines.tpu_queue import queue_of
from shared.jobspec.reading.document_kinds import TRAINING_INPUT
from shared.jobspec.reading.json_limits import plain
from shared.jobspec.reading.problems import ROOT, Findings, InvalidJob, Problem, Spelling
from shared.jobspec.reading.read_model import TRAINING_INPUT_EXAMPLE, read
from shared.jobspec.resolve import custom_job, study_spec, training_input
from shared.jobspec.resolve.resolved_spec import Meaning

SPEC_BYTES_MAX: Final = 64 * 1024
"""Every VM carries the spec three times (TF_CONFIG, CLOUD_ML_JOB, its arguments) in one metadata value of 256 KiB."""
_NOTHING: Final = Program((), "", (), None, Container(""))


@dataclass(frozen=True)
class AcceptedSpec:
    """`spec_json` is the document as submitted, as canonical compact JSON: nothing filled in, nothing respelled.

    `tuning`: it is a tuning job, and `plan` that of each trial.
    """

    job_id: str | None
    spec_json: str
    labels: Mapping[str, str]
    plan: Plan
    tuning: Tuning | None = None


def accept(document: Mapping[str, object], *, default_job_id: str | None) -> AcceptedSpec:
    """Raises InvalidJob with every problem at once, and nothing else whatever the document is.

    `default_job_id` is for documents that name none: a job file, whose name then makes the id. A CustomJob without
    either is named after its displayName.
    """
    copy, problems = plain(document)
    # Source: Airflow compares the echoed trainingInput with what it sent, strictly. Firestore and metadata take UTF-8.
    spec_json = json.dumps(copy, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    spelling = Spelling()
    found = Findings(spelling, problems)
    if len(spec_json.encode()) > SPEC_BYTES_MAX:
        raise InvalidJob([Problem(ROOT, f"has more than {SPEC_BYTES_MAX} bytes", "large inputs as files in gs://")])
    job, whole = read(copy, spelling, found)
    accepted = _understand(job, default_job_id, spec_json, found)
    if everything := (*whole, *found.problems):
        raise InvalidJob(everything)
    return accepted


def _understand(job: Job | CustomJob, default_job_id: str | None, spec_json: str, found: Findings) -> AcceptedSpec:
    job_id = job.job_id or default_job_id
    if job_id is None and isinstance(job, CustomJob) and job.display_name:
        job_id = nearest_legal(job.display_name)
    check_job_id(job_id, found)
    labels = dict(job.labels or {})
    check_labels(labels, found)
    check_supported(job, found)
    extension = job.trainmaster or Extension.model_validate({})
    extras = resolve_extras(extension, found)
    if isinstance(job, CustomJob):
        meaning = custom_job.meaning_of(job, extension, extras, found)
    else:
        if job.training_input is None:
            found.add_text((TRAINING_INPUT,), "is required", TRAINING_INPUT_EXAMPLE)
        asked = job.training_input or TrainingInput.model_validate({})
        meaning = training_input.meaning_of(asked, extension, extras, found)
    tuning = study_spec.tuning_of(job, found, meaning.substitutions) if isinstance(job, TuningJob) else meaning.tuning
    return AcceptedSpec(job_id, spec_json, labels, _plan(meaning, extension, extras, found), tuning)


def _plan(meaning: Meaning, extension: Extension, extras: Extras, found: Findings) -> Plan:
    program = next(iter(meaning.programs.values()), _NOTHING)
    groups = crew_of(meaning.roles, found, meaning.substitutions, has_containers=program.container is not None)
    tpus = [group.tpu for group in groups if group.tpu]
    is_bare = extras.image is not None and not meaning.is_runtime_named
    if extras.image is not None:
        check_image_of(extras.image, found, has_tpu=any(role.is_tpu for role in meaning.roles))
    region, zones = check_place(meaning.region, meaning.region_at, extension.zones or (), tpus, found)
    queue = queue_of(extension, extras, meaning, groups, found)
    disable_retries = meaning.disable_retries or extension.disable_retries
    restarts_job = meaning.restart_job_on_worker_restart or extension.restart_job_on_worker_restart
    return Plan(
        groups=tuple(_outfit(group, program, meaning, extras, queue) for group in groups),
        program=program,
        region=region,
        zones=zones,
        runtime=OWN_IMAGE if is_bare else meaning.runtime.name,
        image=extras.image if extras.image is not None and not tpus else meaning.runtime.image,
        max_running_s=meaning.max_running_s,
        max_wait_s=meaning.max_wait_s,
        # Source: Vertex AI: disableRetries overrides restartJobOnWorkerRestart to false.
        restart_job_on_worker_restart=restarts_job and not disable_retries,
        disable_retries=disable_retries,
        independent=extension.independent_replicas,
        exit_policy=extras.exit_policy,
        service_account=meaning.service_account,
        network=meaning.network,
        substitutions=tuple(meaning.substitutions),
        packages=() if is_bare else meaning.runtime.packages,
        on_demand_after=extras.on_demand_after,
        reservation=extras.reservation,
        kms_key=meaning.kms_key,
        checkpoint_signal=extras.checkpoint_signal,
        dialect=meaning.dialect,
        output_directory=meaning.output_directory,
        priority=meaning.priority,
    )


def _outfit(group: TaskGroup, common: Program, meaning: Meaning, extras: Extras, queue: TpuQueue | None) -> TaskGroup:
    """With what the job says of its role besides the machine."""
    own = meaning.programs.get(group.task_type, common)
    tpu = group.tpu and replace(group.tpu, runtime=extras.image or group.tpu.runtime, queue=queue)
    spot = is_spot(extras.spot or meaning.spot, group.task_type)
    return replace(group, tpu=tpu, program=None if own == common else own, spot=spot)
