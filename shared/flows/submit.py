"""A job was submitted: accepted whole, or rejected with every problem; nothing in between.

The same submission delivered twice is one job; another one under a job id that was ever used is rejected. A job id may
hold the time of its message (`shared.core.intake.job_id_template`): the same message is then the same job, the next one another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from shared.core.events import JobSubmitted
from shared.core.intake.job_id_template import at_time, is_template
from shared.core.model.job import Job, JobState, Label
from shared.core.model.tuning import Tuning
from shared.core.reconcile.trial_jobs import found_by
from shared.core.reconcile.zone_order import STOCKOUT_REMEMBERED, exhausted, with_last
from shared.core.rules.admission_queue import exceeded
from shared.core.rules.messages import JOB_EXISTS
from shared.core.rules.tuning import planned
from shared.errors import PermanentError
from shared.flows.record import Deps, record
from shared.jobspec import AcceptedSpec, InvalidJob, Problem, accept, parse_document
from shared.ports import Rejection, Store

DIRECT = "message"
RESUMES = "trainingInput.hyperparameters.resumePreviousJobId"


class JobExistsError(Exception):
    """Another submission has this job id, and ids are never used again."""


class OverLimitError(Exception):
    """The job could never start: alone it needs more than all jobs together may use."""


def handle(data: bytes, source: str | None, deps: Deps, published_at: datetime | None = None) -> None:
    """`source` identifies the submission (an object and its generation); a direct message is identified by its content.
    `published_at` is the message's own time.

    Raises PermanentError, after recording the rejection, for what is not a job or is a second one of the same id.
    """
    now = deps.clock()
    submission = source or f"{DIRECT}:{hashlib.sha256(data).hexdigest()}"
    job_id: str | None = None
    try:
        document = parse_document(data, "message.json")
        job_id = _named(document)
        if job_id and is_template(job_id):
            job_id = _at_its_time(job_id, published_at)
            document = {**{key: value for key, value in document.items() if key != "job_id"}, "jobId": job_id}
        create(document, submission, now, deps)
    except InvalidJob as invalid:
        raise _rejected(submission, job_id, str(invalid).splitlines(), now, deps.store) from None
    except JobExistsError:
        raise _rejected(submission, job_id, [JOB_EXISTS], now, deps.store) from None
    except OverLimitError as over:
        raise _rejected(submission, job_id, [str(over)], now, deps.store) from None


def create(
    document: Mapping[str, object],
    submission: str,
    now: datetime,
    deps: Deps,
    *,
    default_job_id: str | None = None,
    by: str | None = None,
) -> Job:
    """The job as this submission made it, now or before. Raises InvalidJob, JobExistsError or
    OverLimitError: nothing is stored."""
    spec = accept(document, default_job_id=default_job_id)
    job = new_job(spec, submission, now, by)
    if job.tuning is not None and deps.store.load(job.job_id) is None:
        job = replace(job, tuning=continued(job.tuning, deps.store))
    too_much = exceeded(spec.plan, deps.limits)
    if too_much and deps.store.load(job.job_id) is None:
        raise OverLimitError(too_much)
    event = placed(job, now, deps.store)
    first = record(event.job.job_id, event, deps).entry.event
    if not isinstance(first, JobSubmitted) or first.job.submission != submission:
        raise JobExistsError(event.job.job_id)
    return first.job


def new_job(spec: AcceptedSpec, submission: str, now: datetime, by: str | None = None) -> Job:
    if spec.job_id is None:
        raise ValueError("an accepted spec without a default has a job id")
    return Job(
        job_id=spec.job_id,
        spec_json=spec.spec_json,
        submission=submission,
        plan=spec.plan,
        state=JobState.QUEUED,
        created_at=now,
        labels=tuple(Label(key, value) for key, value in sorted(spec.labels.items())),
        submitted_by=by,
        tuning=spec.tuning,
    )


def continued(tuning: Tuning, store: Store) -> Tuning:
    """With what the tuning job has found that it continues, if it names one. Raises InvalidJob where it cannot."""
    if tuning.resumes is None:
        return tuning
    found = store.load(tuning.resumes)
    before = found.state.job.tuning if found and found.state.job.deleted_at is None else None
    if before is None:
        problem = f"names {tuning.resumes}, which is no tuning job"
    elif (before.parameters, before.goal, before.metric_tag) != (tuning.parameters, tuning.goal, tuning.metric_tag):
        problem = f"names {tuning.resumes}, which has other params, another goal or another metric"
    else:
        resumed = replace(tuning, earlier=found_by(before))
        if planned(resumed) > 0:
            return resumed
        problem = f"names {tuning.resumes}, which has tried every combination that there is"
    raise InvalidJob((Problem(RESUMES, problem, "leave it out"),))


def placed(job: Job, now: datetime, store: Store) -> JobSubmitted:
    """With the order in which its zones are tried, as things stand now: it goes into the ledger with the job."""
    last = exhausted(job.plan, store.stockouts(now - STOCKOUT_REMEMBERED), now)
    plan = replace(job.plan, zones=with_last(job.plan.zones, last))
    return JobSubmitted(replace(job, plan=plan), now, exhausted=last)


def _at_its_time(job_id: str, published_at: datetime | None) -> str:
    """The time of the message, not of its delivery, which may be a second one."""
    if published_at is None:
        raise InvalidJob((Problem("jobId", "holds a time, and its message has none", "digits_1"),))
    return at_time(job_id, published_at)


def _named(document: Mapping[str, object]) -> str | None:
    name = document.get("jobId", document.get("job_id"))
    return name if isinstance(name, str) else None


def _rejected(submission: str, job_id: str | None, problems: list[str], now: datetime, store: Store) -> PermanentError:
    key = hashlib.sha256(json.dumps([submission, problems]).encode()).hexdigest()[:32]
    store.reject(Rejection(key, submission, job_id, tuple(problems), now))
    return PermanentError("rejected: " + " ".join(problems))
