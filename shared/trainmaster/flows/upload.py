"""A job file was uploaded: it is submitted, or all of its problems are written next to it.

gs://bucket/jobs/NAME.yaml              the job file
gs://bucket/jobs/NAME.yaml.error.json   its problems; deleted when a valid file of that name is
                                        uploaded

They are stored as a rejection, too, which `trainmaster why NAME` and the console show.

A job id may contain the time at which the object was stored: uploading the same file again is then
another job, and a repeated notification is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from trainmaster.core.intake.job_files import SUFFIXES, UploadedObject
from trainmaster.core.rules.messages import JOB_EXISTS
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.job_creation.intake import (
    MACHINES_FIELDS,
    JobExistsError,
    OverLimitError,
    Submission,
    check_allowed,
    validated_job,
)
from trainmaster.flows.job_creation.rejections import reject_submission
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.job_id import job_id_from
from trainmaster.jobspec.job_document import (
    job_id_of,
    read_document,
    with_job_id,
    with_time_in_job_id,
)
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.messaging import google_events, topics
from trainmaster.messaging.push import Message
from trainmaster.ports import Objects

FILE_BYTES_MAX: Final = 1 << 20
"""Largest job file that is read."""
WHOLE_FILE: Final = ""
"""In place of a field: the problem is one of the file."""
ATTRIBUTE_BYTES_MAX: Final = 1024
"""Bytes of the value of an attribute. Source: Pub/Sub quotas. The message to `submit` names the
file in one.
"""


def handle(uploaded: UploadedObject, objects: Objects, deps: CreationDeps) -> str | None:
    """Publish the job of the uploaded file, and return its id.

    None: the object is not a job file, does not exist any more, or has problems that were written
    next to it.
    """
    if uploaded.is_misnamed:
        problem = f"{uploaded.name} is not a job file: its name must end in {', '.join(SUFFIXES)}"
        example = "jobs/digits.yaml; packages and data belong in other folders of the bucket"
        problems = (Problem(WHOLE_FILE, problem, example=example),)
        _refuse(uploaded, None, problems, objects, deps)
    if not uploaded.is_job_file:
        return None
    data = objects.read(uploaded.uri, generation=uploaded.generation, max_bytes=FILE_BYTES_MAX + 1)
    if data is None:
        return None
    source = _source_of(uploaded)
    try:
        job_id, document = _check(data, source, uploaded, deps)
    except InvalidJob as invalid:
        _refuse(uploaded, _job_id_in(data, uploaded), invalid.problems, objects, deps)
        return None
    deps.bus.publish(topics.SUBMIT, json.dumps(document).encode(), {"source": source})
    objects.delete(uploaded.problems_uri)
    return job_id


def _check(
    data: bytes, source: str, uploaded: UploadedObject, deps: CreationDeps
) -> tuple[str, Mapping[str, object]]:
    """Return the job id and the document with that id.

    Raises InvalidJob with every problem that can be found now.
    """
    if len(source.encode()) > ATTRIBUTE_BYTES_MAX:
        problem = "the name of the file is too long"
        raise InvalidJob((Problem(WHOLE_FILE, problem, example="a name of up to 900 bytes"),))
    document = with_time_in_job_id(read_document(data, uploaded.name), uploaded.created_at)
    spec = accept(
        document,
        default_job_id=job_id_from(uploaded.name, str(uploaded.generation)),
        regions=deps.regions,
    )
    if spec.job_id is None:
        raise ValueError("a spec that was accepted with a default job id must have a job id")
    submitted = with_job_id(document, spec.job_id)
    authorize = partial(check_allowed, allowed=deps.allowed)
    try:
        validated_job(Submission(submitted, source, deps.clock(), authorize), deps)
    except JobExistsError:
        example = (
            f"{spec.job_id}_2 (or leave jobId out; it is then made from the name and time of the"
            " file)"
        )
        used = JOB_EXISTS.partition("Error: ")[2]
        raise InvalidJob((Problem("jobId", used, example=example),)) from None
    except OverLimitError as over_limit:
        field = MACHINES_FIELDS[spec.plan.origin.dialect]
        advice = "less of it, or a higher limit in TRAINMASTER_LIMITS"
        raise InvalidJob((Problem(field, str(over_limit), example=advice),)) from None
    return spec.job_id, submitted


def _source_of(uploaded: UploadedObject) -> str:
    return f"{uploaded.uri}#{uploaded.generation}"


def _job_id_in(data: bytes, uploaded: UploadedObject) -> str | None:
    """Return the job id that the file names; None if it names none, or cannot be read."""
    try:
        return job_id_of(read_document(data, uploaded.name))
    except InvalidJob:
        return None


def _refuse(
    uploaded: UploadedObject,
    job_id: str | None,
    problems: tuple[Problem, ...],
    objects: Objects,
    deps: CreationDeps,
) -> None:
    """Write the problems next to the file, and store them as a rejection."""
    named = [replace(problem, field=problem.field or "job") for problem in problems]
    words = [problem.as_sent for problem in named]
    reject_submission(_source_of(uploaded), job_id, words, deps.clock(), deps.store)
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
    objects.write(uploaded.problems_uri, body.encode(), content_type="application/json")


def on_message(message: Message, deps: CreationDeps, objects: Objects) -> None:
    handle(google_events.decode_upload(message.attributes, message.data), objects, deps)
