"""Submitting a job again: the same spec under a new id, or a changed one; and what became of a
submission.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from trainmaster.console.pages.service import Console, NotFoundError
from trainmaster.core.intake.document_fields import with_versions
from trainmaster.core.model.job import Job
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.job_id import JOB_ID, job_id_from
from trainmaster.jobspec.job_document import read_document, with_job_id
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.jobspec.reading.yaml_document import as_yaml
from trainmaster.ports.store_values import SUBMISSION_MAX

_TIME_SUFFIX: Final = re.compile(r"_\d{8}_?\d{6}$")


@dataclass(frozen=True, slots=True)
class SubmissionForm:
    """The form that submits a job again."""

    job: Job
    job_id: str
    """Id of the new job."""
    text: str
    """The job file as YAML, without its job id."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class SubmissionStatus:
    """The result of a submission."""

    job_id: str
    is_stored: bool
    problems: tuple[str, ...]
    """Why it was refused; empty: it was not."""
    is_late: bool
    """Whether it should have been stored or refused long ago."""

    @property
    def is_pending(self) -> bool:
        return not (self.is_stored or self.problems)


def new_form(console: Console, job: Job) -> SubmissionForm:
    """Return the form with the job's own spec, and an id derived from its id and the time.

    The form names the versions of packages and images that the job ran: others may have been stored
    since.
    """
    if job.trial_of is not None:
        raise NotFoundError(f"{job.job_id} is a trial, which only {job.trial_of.job_id} submits")
    document = with_job_id(with_versions(json.loads(job.spec_json), job.plan.versions), job_id=None)
    suffix = console.now.strftime("%Y%m%d_%H%M%S")
    job_id = job_id_from(_TIME_SUFFIX.sub("", job.job_id), suffix)
    return SubmissionForm(job, job_id, as_yaml(document))


def check_submission(console: Console, form: SubmissionForm, source: str) -> Mapping[str, Any]:
    """Return the job file of a form as it can be published.

    Raises InvalidJob with every problem.
    """
    document = with_job_id(read_document(form.text.encode(), "spec.yaml"), form.job_id)
    accept(document, default_job_id=None)
    loaded = console.store.load(form.job_id)
    if loaded is not None and loaded.state.job.submission != source:
        raise InvalidJob(
            [
                Problem(
                    "jobId",
                    f"is used: {form.job_id} exists, and ids are never used again",
                    example="digits_2",
                )
            ]
        )
    return document


def read_status(
    console: Console, job_id: str, source: str, published_at: datetime
) -> SubmissionStatus:
    """Return what became of a submission. Raises NotFoundError for an id that no job can have."""
    if not JOB_ID.fullmatch(job_id):
        raise NotFoundError(f"There is no submission of {job_id}")
    loaded = console.store.load(job_id)
    if loaded is not None and loaded.state.job.submission == source:
        return SubmissionStatus(job_id, is_stored=True, problems=(), is_late=False)
    problems = next(
        (rejection.problems for rejection in console.store.rejections(limit=1, source=source)), ()
    )
    is_late = console.clock() - published_at > SUBMISSION_MAX
    return SubmissionStatus(job_id, is_stored=False, problems=problems, is_late=is_late)
