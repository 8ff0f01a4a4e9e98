"""A job file was uploaded: it is submitted, or all of its problems are written next to it.

gs://bucket/jobs/NAME.yaml              the job file
gs://bucket/jobs/NAME.yaml.error.json   its problems; deleted when a valid file of that name is
                                        uploaded

A job id may contain the time at which the object was stored: uploading the same file again is then
another job, and a repeated notification is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from trainmaster.core.intake.job_files import ERROR_SUFFIX, SUFFIXES, UploadedObject
from trainmaster.core.rules.messages import JOB_EXISTS
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.job_creation.gcs_folder import with_gcs_folder
from trainmaster.flows.job_creation.intake import (
    check_allowed,
    resume_previous_tuning,
    with_checked_places,
)
from trainmaster.flows.job_creation.package_versions import with_algorithm_package
from trainmaster.flows.job_creation.resource_checks import with_resources
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.job_id import job_id_from
from trainmaster.jobspec.job_document import read_document, with_job_id, with_time_in_job_id
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.messaging import google_events, topics
from trainmaster.messaging.push import Message
from trainmaster.ports import Objects

FILE_BYTES_MAX: Final = 1 << 20


def handle(uploaded: UploadedObject, objects: Objects, deps: CreationDeps) -> str | None:
    """Publish the job of the uploaded file, and return its id.

    None: the object is not a job file, does not exist any more, or has problems that were written
    next to it.
    """
    if uploaded.is_misnamed:
        problem = f"{uploaded.name} is not a job file: its name must end in {', '.join(SUFFIXES)}"
        example = "jobs/digits.yaml; packages and data belong in other folders of the bucket"
        _write_problems(uploaded, (Problem("", problem, example),), objects)
    if not uploaded.is_job_file:
        return None
    data = objects.read(uploaded.uri, generation=uploaded.generation, max_bytes=FILE_BYTES_MAX + 1)
    if data is None:
        return None
    source = f"{uploaded.uri}#{uploaded.generation}"
    try:
        job_id, document = _check(data, source, uploaded, deps)
    except InvalidJob as invalid:
        _write_problems(uploaded, invalid.problems, objects)
        return None
    deps.bus.publish(topics.SUBMIT, json.dumps(document).encode(), {"source": source})
    objects.delete(uploaded.uri + ERROR_SUFFIX)
    return job_id


def _check(
    data: bytes, source: str, uploaded: UploadedObject, deps: CreationDeps
) -> tuple[str, Mapping[str, object]]:
    """Return the job id and the document with that id.

    Raises InvalidJob with every problem that can be found now.
    """
    document = with_time_in_job_id(read_document(data, uploaded.name), uploaded.created_at)
    spec = accept(
        document,
        default_job_id=job_id_from(uploaded.name, str(uploaded.generation)),
        regions=deps.regions,
    )
    if spec.job_id is None:
        raise ValueError("a spec that was accepted with a default job id must have a job id")
    check_allowed(spec, deps.allowed)
    submitted = with_job_id(document, spec.job_id)
    if _is_new(spec.job_id, source, submitted, deps):
        _, wrong_place = with_checked_places(
            spec, deps.regions, deps.prices, deps.clock(), deps.limits
        )
        if wrong_place is not None:
            raise InvalidJob((wrong_place,))
        runnable = with_gcs_folder(with_algorithm_package(spec, deps.algorithms), deps)
        with_resources(runnable, deps.objects, deps.resources)
        if spec.tuning is not None:
            resume_previous_tuning(spec.tuning, spec.plan.origin.dialect, deps.store)
    return spec.job_id, submitted


def _is_new(job_id: str, source: str, document: Mapping[str, object], deps: CreationDeps) -> bool:
    """Return False if this file was submitted before.

    Raises InvalidJob if the job id was used otherwise.
    """
    loaded = deps.store.load(job_id)
    if loaded is None:
        return True
    spec_json = accept(document, default_job_id=None).spec_json
    if (loaded.state.job.submission, loaded.state.job.spec_json) != (source, spec_json):
        example = (
            f"{job_id}_2 (or leave jobId out; it is then made from the name and time of the file)"
        )
        raise InvalidJob((Problem("jobId", JOB_EXISTS.partition("Error: ")[2], example),))
    return False


def _write_problems(
    uploaded: UploadedObject, problems: tuple[Problem, ...], objects: Objects
) -> None:
    report = {
        "file": uploaded.uri,
        "generation": str(uploaded.generation),
        "created": False,
        "problems": [
            {"field": problem.field, "problem": problem.problem, "example": problem.example}
            for problem in problems
        ],
    }
    body = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    objects.write(uploaded.uri + ERROR_SUFFIX, body.encode(), content_type="application/json")


def on_message(message: Message, deps: CreationDeps, objects: Objects) -> None:
    handle(google_events.decode_upload(message.attributes, message.data), objects, deps)
