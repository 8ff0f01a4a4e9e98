"""A submitted document → what it means, or everything that is wrong with it.

    plain → reading (names, types) → unsupported → rules, versions, roles → Plan

Every step notes its problems and leaves out what it cannot use, so that one answer tells all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.core.jobs import Plan, Substitution
from shared.jobspec.exits import resolve_exit_policy
from shared.jobspec.model import Extension, Job, Scheduling, TrainingInput
from shared.jobspec.plain import plain
from shared.jobspec.problems import ROOT, Findings, InvalidJob, Problem, Spelling
from shared.jobspec.reading import TRAINING_INPUT, TRAINING_INPUT_EXAMPLE, read
from shared.jobspec.roles import resolve_groups
from shared.jobspec.rules import check_account, check_job_id, check_labels, check_place, check_program, check_times
from shared.jobspec.unsupported import check_supported
from shared.jobspec.versions import primary_type, resolve_runtime

SPEC_BYTES_MAX: Final = 64 * 1024
"""Every VM carries the spec three times (TF_CONFIG, CLOUD_ML_JOB, its arguments) in one metadata value of 256 KiB."""


@dataclass(frozen=True)
class AcceptedSpec:
    """`spec_json` is the document as submitted, as canonical compact JSON: nothing filled in, nothing respelled."""

    job_id: str | None
    spec_json: str
    labels: Mapping[str, str]
    plan: Plan


def accept(document: Mapping[str, object], *, default_job_id: str | None) -> AcceptedSpec:
    """Raises InvalidJob with every problem at once, and nothing else whatever the document is.

    `default_job_id` is for documents that name none: a job file, whose name then makes the id.
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


def _understand(job: Job, default_job_id: str | None, spec_json: str, found: Findings) -> AcceptedSpec:
    job_id = job.job_id or default_job_id
    check_job_id(job_id, found)
    labels = dict(job.labels or {})
    check_labels(labels, found)
    if job.training_input is None:
        found.add_text((TRAINING_INPUT,), "is required", TRAINING_INPUT_EXAMPLE)
    training = job.training_input or TrainingInput.model_validate({})
    extension = job.trainmaster or Extension.model_validate({})
    check_supported(job, found)
    return AcceptedSpec(job_id, spec_json, labels, _plan(training, extension, found))


def _plan(training: TrainingInput, extension: Extension, found: Findings) -> Plan:
    substitutions: list[Substitution] = []
    image_at = (TRAINING_INPUT, "masterConfig", "imageUri")
    program = check_program(training, found, container=found.doubtful(image_at))
    region, zones = check_place(training, extension, found)
    max_running_s, max_wait_s = check_times(training.scheduling or Scheduling.model_validate({}), found)
    check_account(training, found)
    runtime = resolve_runtime(training, found, substitutions)
    return Plan(
        groups=resolve_groups(training, primary_type(training), found, substitutions),
        program=program,
        region=region,
        zones=zones,
        runtime=runtime.name,
        image=runtime.image,
        max_running_s=max_running_s,
        max_wait_s=max_wait_s,
        # Source: Vertex AI: disableRetries overrides restartJobOnWorkerRestart to false.
        restart_job_on_worker_restart=extension.restart_job_on_worker_restart and not extension.disable_retries,
        disable_retries=extension.disable_retries,
        exit_policy=resolve_exit_policy(extension.exit_policy, found),
        service_account=training.service_account,
        network=training.network,
        substitutions=tuple(substitutions),
    )
