"""A job file was uploaded: checked whole, then submitted; or answered beside it with every problem at once.

gs://bucket/jobs/NAME.yaml              the job file
gs://bucket/jobs/NAME.yaml.error.json   what is wrong with it; gone when a right one of that name is uploaded

A job id may hold the time at which the object was stored: the same file uploaded again is then another job, and one
upload delivered twice is one.
"""

from __future__ import annotations

import json
from typing import Final

from shared.core.intake.job_files import ERROR_SUFFIX, Uploaded
from shared.core.intake.job_id_template import at_time, is_template
from shared.core.rules.messages import JOB_EXISTS
from shared.flows.record import Deps
from shared.flows.submit import continued
from shared.jobspec import InvalidJob, Problem, accept, job_id_from, parse_document
from shared.messaging import topics
from shared.ports import Objects

FILE_BYTES_MAX: Final = 1 << 20


def handle(uploaded: Uploaded, objects: Objects, deps: Deps) -> str | None:
    """Returns the job id, or None where the object was no job file, is gone, or was answered with its problems."""
    if not uploaded.is_job_file:
        return None
    data = objects.read(uploaded.uri, generation=uploaded.generation, max_bytes=FILE_BYTES_MAX + 1)
    if data is None:
        return None
    source = f"{uploaded.uri}#{uploaded.generation}"
    try:
        document = _named(dict(parse_document(data, uploaded.name)), uploaded)
        spec = accept(document, default_job_id=job_id_from(uploaded.name, str(uploaded.generation)))
        if spec.job_id is None:
            raise ValueError("a default job id was given")
        is_new = _is_new(spec.job_id, source, deps)
        if spec.tuning is not None and is_new:
            continued(spec.tuning, deps.store)
    except InvalidJob as invalid:
        _answer(uploaded, invalid.problems, objects)
        return None
    document.pop("job_id", None)
    message = json.dumps({**document, "jobId": spec.job_id}).encode()
    deps.bus.publish(topics.SUBMIT, message, {"source": source})
    objects.delete(uploaded.uri + ERROR_SUFFIX)
    return spec.job_id


def _named(document: dict[str, object], uploaded: Uploaded) -> dict[str, object]:
    """With its object's own time where its job id holds one: not that of the delivery, which may be a second one."""
    job_id = document.get("jobId", document.get("job_id"))
    if not isinstance(job_id, str) or not is_template(job_id):
        return document
    if uploaded.created_at is None:
        raise InvalidJob((Problem("jobId", "holds a time, and its notification tells none", "digits_1"),))
    document.pop("job_id", None)
    return {**document, "jobId": at_time(job_id, uploaded.created_at)}


def _is_new(job_id: str, source: str, deps: Deps) -> bool:
    """False: it was submitted before. Raises InvalidJob where another one was."""
    loaded = deps.store.load(job_id)
    if loaded and loaded.state.job.submission != source:
        example = f"{job_id}_2 (or leave jobId out: the file's name and time then make one)"
        raise InvalidJob((Problem("jobId", JOB_EXISTS.partition("Error: ")[2], example),))
    return loaded is None


def _answer(uploaded: Uploaded, problems: tuple[Problem, ...], objects: Objects) -> None:
    answer = {
        "file": uploaded.uri,
        "generation": str(uploaded.generation),
        "created": False,
        "problems": [{"field": each.field, "problem": each.problem, "example": each.example} for each in problems],
    }
    body = json.dumps(answer, indent=2, ensure_ascii=False) + "\n"
    objects.write(uploaded.uri + ERROR_SUFFIX, body.encode(), content_type="application/json")
