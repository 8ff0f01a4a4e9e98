"""`projects.jobs` of `ml` v1. Source: its discovery document, and what its clients were seen to need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shared.api import errors, list_filter, paging
from shared.api.create_job import create as create_job
from shared.api.errors import Json
from shared.api.request import Call, Service, email_of
from shared.core.model.job import Dialect, Job, JobState
from shared.core.rules.admission_queue import waits
from shared.flows import cancel as cancelling
from shared.flows import labels as labelling
from shared.jobspec import JOB_ID, parse_document, read_labels
from shared.jobspec.reading.document_kinds import AI_PLATFORM, kind_of
from shared.presentation.job_view import etag, service_view

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
BODY: Final = "body.json"
BY: Final = "a user of the API"


def create(call: Call, service: Service) -> Json:
    document = parse_document(call.request.body, BODY)
    named = document.get("jobId", document.get("job_id"))
    job_id = named if isinstance(named, str) and JOB_ID.fullmatch(named) else ""
    if kind_of(document) is not AI_PLATFORM:
        raise errors.invalid("training_input", "is required: a CustomJob is created at locations/REGION/customJobs")
    return _view(create_job(document, job_id, call, service), service)


def get(call: Call, service: Service) -> Json:
    return _view(find(call, service), service)


def list_(call: Call, service: Service) -> Json:
    """Nothing found is `{}`, as the service answered."""
    desired = list_filter.read(call.param("filter"), FIELDS)
    line = _line(service)
    found, token = paging.page(
        call, service.deps.store, lambda job: _is_ours(job) and desired(_view(job, service, line))
    )
    answer: Json = {"jobs": [_view(job, service, line) for job in found]} if found else {}
    return {**answer, "nextPageToken": token} if token else answer


def cancel(call: Call, service: Service) -> Json:
    """Of a job that has ended: nothing, and no error. Source: gcloud's help says so, and Airflow, which took 400 for
    that too, goes on with either."""
    cancelling.handle(find(call, service).job_id, email_of(call, service) or BY, service.deps)
    return {}


def patch(call: Call, service: Service) -> Json:
    """Labels only, all at once; with `etag` in the mask, only if nobody changed them since that was read."""
    job = find(call, service)
    mask = {path for path in call.param("updateMask").replace(" ", "").split(",") if path}
    if not mask or not mask <= {"labels", "etag"}:
        raise errors.invalid("update_mask", "must be labels, or labels,etag: nothing else of a job can be changed")
    document = parse_document(call.request.body, BODY) if call.request.body.strip() else {}
    seen = _seen(document, job) if "etag" in mask else None
    if "labels" in mask:
        labels = read_labels(document)
        if not labelling.handle(job.job_id, labels, call.key, seen, service.deps):
            raise errors.changed_meanwhile()
    return get(call, service)


def find(call: Call, service: Service) -> Job:
    """The job that the path names. Raises ApiError where there is none."""
    job_id = call.params["job"]
    loaded = service.deps.store.load(job_id) if JOB_ID.fullmatch(job_id) else None
    if loaded is None or not _is_ours(loaded.state.job):
        raise errors.not_found(f"projects/{call.project}/jobs/{job_id}")
    return loaded.state.job


def _view(job: Job, service: Service, line: Mapping[str, int] | None = None) -> Json:
    if line is None:
        line = _line(service) if job.state is JobState.QUEUED else {}
    return service_view(job, line.get(job.job_id, 0), service.project)


def _line(service: Service) -> Mapping[str, int]:
    """Of each job that waits for room its position; nobody waits where the project has no limits."""
    deps = service.deps
    return {wait.job_id: wait.position for wait in waits(deps.store.live_jobs(), deps.limits)} if deps.limits else {}


def _is_ours(job: Job) -> bool:
    """Vertex AI's jobs have an address of their own; a trial is shown with its tuning job."""
    return job.plan.dialect is Dialect.AI_PLATFORM and job.deleted_at is None and job.trial_of is None


def _seen(document: Mapping[str, object], job: Job) -> int:
    given = document.get("etag")
    if not isinstance(given, str) or not given:
        raise errors.invalid("job.etag", "is required, because update_mask names it")
    if given != etag(job):
        raise errors.changed_meanwhile()
    return job.labels_version
