"""`projects.jobs` of `ml` v1, the API of AI Platform Training: a function for each method.

`routes.py` maps addresses to them; the handler has checked the caller before. Source: the API's
discovery document, and what its clients need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Final

from trainmaster.api import create_job, errors, list_filter, paging
from trainmaster.api.errors import Json
from trainmaster.api.request import BODY_NAME, Call, Service, caller_name, streams_log
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.origin import Dialect
from trainmaster.core.rules.admission_queue import AdmissionQueue, wait_of_job
from trainmaster.flows.user_requests import cancel_job, change_labels
from trainmaster.jobspec.fields.job_id import JOB_ID
from trainmaster.jobspec.fields.labels import read_labels
from trainmaster.jobspec.job_document import job_id_of, with_time_in_job_id
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.presentation.explanation import explanation
from trainmaster.presentation.job_view import etag, service_view

FIELDS: Final = frozenset(
    {
        "jobId",
        "createTime",
        "startTime",
        "endTime",
        "state",
        "errorMessage",
        "labels",
        "etag",
        "jobPosition",
        "trainingInput",
        "trainingOutput",
    }
)
"""Top-level fields that a filter may name."""
STATES: Final = {state: state.value for state in JobState}
"""The states in the words of AI Platform Training."""
SCHEDULED_AT: Final = "x-cloudscheduler-scheduletime"
"""Source: the header that Cloud Scheduler sends with each call."""


def create(call: Call, service: Service) -> Json:
    """Create the job of the body."""
    document = parse_document(call.request.body, BODY_NAME)
    scheduled = call.request.headers.get(SCHEDULED_AT, "")
    return create_from(document, submission_time(scheduled, service), call, service)


def create_from(document: Mapping[str, object], at: datetime, call: Call, service: Service) -> Json:
    """Create the job of a document. `at`: the time for a template of its job id."""
    document = with_time_in_job_id(document, at)
    kind = detect_kind(document)
    if kind is not AI_PLATFORM:
        where = f"projects/PROJECT/locations/REGION/{kind.collection}"
        raise errors.invalid_argument(
            "training_input", f"is required; to create a {kind.title}, use {where}"
        )
    job_id = job_id_of(document) or ""
    legal_id = job_id if JOB_ID.fullmatch(job_id) else ""  # `create_job` refuses any other id
    job = create_job.create_job(document, legal_id, call, service)
    return create_job.with_notes(_view(job, service), job, call)


def submission_time(sent: str, service: Service) -> datetime:
    """Return the time for a template of a job id.

    It is the one that the caller has sent, if any: the same for all attempts of a request.
    """
    try:
        return datetime.fromisoformat(sent).astimezone(UTC)
    except (ValueError, OverflowError):
        return service.now()


def get(call: Call, service: Service) -> Json:
    """Return the job. A gcloud that streams its log sees the end when the log is readable.

    gcloud stops at an `endTime` after two empty polls, and polls only for entries older than five
    seconds. After a quiet time it would miss the last lines. Source:
    googlecloudsdk/command_lib/logs/stream.py and ml_engine/log_utils.py.
    """
    job = find(call, service)
    view = _view(job, service)
    if job.ended_at is None or not streams_log(call):
        return view
    ended_for_s = (service.now() - job.ended_at).total_seconds()
    if ended_for_s < service.log_delay_s:
        view.pop("endTime", None)
    return view


def list_jobs(call: Call, service: Service) -> Json:
    """Return a page of the jobs that match the filter, the newest first. Raises ApiError."""
    wanted = list_filter.parse_filter(call.param("filter"), FIELDS)
    read_queue = cache(service.deps.store.queue)  # read once for all jobs, if one is queued
    return paging.read_page(
        call,
        service,
        paging.JobList(
            "jobs",
            STATES,
            wanted.bounds,
            lambda job: _is_listed(job) and wanted.holds(_view(job, service, read_queue)),
            lambda job: _view(job, service, read_queue),
        ),
    )


def explain(call: Call, service: Service) -> Json:
    """Return the decisions about the job that the path names. Raises ApiError if there is none."""
    return explain_job(find(call, service), service)


def explain_job(job: Job, service: Service) -> Json:
    """Return the decisions about a job.

    It costs one read per replica and one per entry of the ledger, the job's record of events and
    decisions.
    """
    store = service.deps.store
    loaded = store.load_attempt(job.job_id)
    wait = wait_of_job(job, store.queue, service.deps.limits)
    state = loaded.state if loaded else State(job)
    pending = store.pending_keys(job.job_id)
    return explanation(state, store.ledger(job.job_id), pending, service.now(), wait)


def cancel(call: Call, service: Service) -> Json:
    """Cancel the job. For a job that has ended this has no effect and is no error.

    Source: gcloud's help. The service once answered Airflow with 400; Airflow accepts either
    response.
    """
    cancel_job(find(call, service).job_id, caller_name(call, service), service.deps)
    return {}


def patch(call: Call, service: Service) -> Json:
    """Replace all labels.

    If the mask names `etag`, the labels must not have changed since that etag was read.
    """
    job = find(call, service)
    mask = {path for path in call.param("updateMask").replace(" ", "").split(",") if path}
    if not mask or not mask <= {"labels", "etag"}:
        raise errors.invalid_argument(
            "update_mask", "must be labels or labels,etag: only labels can be changed"
        )
    document = parse_body(call)
    seen_version = _check_etag(document, job) if "etag" in mask else None
    if "labels" in mask:
        has_changed = change_labels(
            job.job_id,
            read_labels(document),
            call.idempotency_key,
            seen_version,
            service.deps,
            by=caller_name(call, service),
        )
        if not has_changed:
            raise errors.etag_mismatch()
    return get(call, service)


def find(call: Call, service: Service) -> Job:
    """Return the job that the path names. Raises ApiError if there is none."""
    job_id = call.params["job"]
    loaded = service.deps.store.load(job_id) if JOB_ID.fullmatch(job_id) else None
    if loaded is None or not _is_listed(loaded.state.job):
        raise errors.not_found(f"projects/{call.project}/jobs/{job_id}")
    return loaded.state.job


def parse_body(call: Call) -> Mapping[str, object]:
    """Return the document of a body that may be empty."""
    return parse_document(call.request.body, BODY_NAME) if call.request.body.strip() else {}


def _view(
    job: Job, service: Service, read_queue: Callable[[], AdmissionQueue] | None = None
) -> Json:
    wait = wait_of_job(job, read_queue or service.deps.store.queue, service.deps.limits)
    return service_view(job, wait.position if wait else 0, service.log_project)


def _is_listed(job: Job) -> bool:
    """Return whether the job is one of `projects.jobs`, and not deleted.

    Vertex AI's jobs have other addresses, and trials are shown by their tuning job.
    """
    is_of_service = job.plan.origin.dialect is Dialect.AI_PLATFORM and job.trial_of is None
    return is_of_service and job.deleted_at is None


def _check_etag(document: Mapping[str, object], job: Job) -> int:
    """Return the version of the labels that the etag stands for.

    Raises ApiError if it is missing or outdated.
    """
    seen = document.get("etag")
    if not isinstance(seen, str) or not seen:
        raise errors.invalid_argument("job.etag", "is required, because update_mask names it")
    if seen != etag(job):
        raise errors.etag_mismatch()
    return job.labels_version
