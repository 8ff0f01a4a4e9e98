"""`projects.locations.customJobs` of Vertex AI v1. Source: its discovery document.

A custom job is a job of this project like any other. Its number is made of the request that creates it, and it is
stored under `custom_NUMBER`; one that came as a file has the name it got then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from shared.api import enum_numbers, errors, list_filter, paging
from shared.api.create_job import create as create_job
from shared.api.errors import Json
from shared.api.jobs import BODY, BY
from shared.api.request import Call, Service, email_of
from shared.core.model.job import CUSTOM_JOB_PREFIX, Dialect, Job, JobState, public_id
from shared.core.rules.messages import INTERNAL_ERROR, with_log_link
from shared.flows import cancel as cancelling
from shared.flows import delete as deleting
from shared.jobspec import JOB_ID, parse_document
from shared.presentation.job_view import timestamp

FIELDS: Final = frozenset(
    {
        "name",
        "displayName",
        "jobSpec",
        "state",
        "createTime",
        "startTime",
        "endTime",
        "updateTime",
        "error",
        "labels",
        "encryptionSpec",
    }
)
STATES: Final = {
    JobState.QUEUED: "JOB_STATE_QUEUED",
    JobState.PREPARING: "JOB_STATE_PENDING",
    JobState.RUNNING: "JOB_STATE_RUNNING",
    JobState.SUCCEEDED: "JOB_STATE_SUCCEEDED",
    JobState.FAILED: "JOB_STATE_FAILED",
    JobState.CANCELLING: "JOB_STATE_CANCELLING",
    JobState.CANCELLED: "JOB_STATE_CANCELLED",
}
_AROUND: Final = {
    "displayName": "displayName",
    "display_name": "displayName",
    "jobSpec": "jobSpec",
    "job_spec": "jobSpec",
    "encryptionSpec": "encryptionSpec",
    "encryption_spec": "encryptionSpec",
    "labels": "",
    "jobId": "",
    "job_id": "",
    "trainmaster": "",
}
"""What may stand around a specification, in either spelling → the field that shows it; none where another one does."""
_REQUIRED: Final = {"display_name": ("displayName", "display_name"), "job_spec": ("jobSpec", "job_spec")}
_CANCELLED: Final = 1
_INVALID_ARGUMENT: Final = 3
_INTERNAL: Final = 13
"""Source: google.rpc.Code; 1 for a cancelled job is in the discovery document of customJobs.cancel."""
_EMPTY: Final = "type.googleapis.com/google.protobuf.Empty"
_METADATA: Final = "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata"


def create(call: Call, service: Service) -> Json:
    sent = parse_document(call.request.body, BODY)
    document = {name: enum_numbers.with_names(value, name) for name, value in sent.items()}
    for name, spelled in _REQUIRED.items():
        if not any(document.get(each) for each in spelled):
            raise errors.invalid(f"custom_job.{name}", "is required")
    if "jobId" in document or "job_id" in document:
        raise errors.invalid("custom_job.job_id", "is not known: a custom job gets a number")
    document["trainmaster"] = with_region(document.get("trainmaster"), call.params["location"])
    return view(create_job(document, f"{CUSTOM_JOB_PREFIX}{number(call.key)}", call, service, default=True), call)


def get(call: Call, service: Service) -> Json:
    return view(find(call, service), call)


def list_(call: Call, service: Service) -> Json:
    desired = list_filter.read(call.param("filter"), FIELDS)
    found, token = paging.page(call, service.deps.store, lambda job: _is_here(job, call) and desired(view(job, call)))
    answer: Json = {"customJobs": [view(job, call) for job in found]} if found else {}
    return {**answer, "nextPageToken": token} if token else answer


def cancel(call: Call, service: Service) -> Json:
    """Of a job that has ended: nothing, and no error, as the other API."""
    cancelling.handle(find(call, service).job_id, email_of(call, service) or BY, service.deps)
    return {}


def delete(call: Call, service: Service) -> Json:
    """An operation that is done: the job is no longer found. What it was stays in the ledger."""
    return deleted(find(call, service), call, service)


def deleted(job: Job, call: Call, service: Service) -> Json:
    """Of a custom job or a tuning job."""
    if not deleting.handle(job.job_id, call.key, service.deps):
        raise errors.too_early(f"The job is in {STATES[job.state]}: cancel it before deleting it.")
    now = timestamp(service.now())
    return {
        "name": f"{parent(call)}/operations/{number(call.key)}",
        "metadata": {"@type": _METADATA, "genericMetadata": {"createTime": now, "updateTime": now}},
        "done": True,
        "response": {"@type": _EMPTY},
    }


def find(call: Call, service: Service) -> Job:
    """The job that the path names. Raises ApiError where there is none."""
    named = call.params["job"]
    job_id = f"{CUSTOM_JOB_PREFIX}{named}" if named.isdecimal() else named
    loaded = service.deps.store.load(job_id) if JOB_ID.fullmatch(job_id) else None
    if loaded is None or not _is_here(loaded.state.job, call):
        raise errors.not_found(f"{parent(call)}/customJobs/{named}")
    return loaded.state.job


def view(job: Job, call: Call) -> Json:
    """What a document of its own leaves out, because it came as a file, has the job's name and all it asked for."""
    spec = json.loads(job.spec_json)
    return {
        "name": f"{parent(call)}/customJobs/{public_id(job.job_id)}",
        "displayName": job.job_id,
        "jobSpec": {name: value for name, value in spec.items() if name not in _AROUND},
        **{name: spec[sent] for sent, name in _AROUND.items() if sent in spec and name},
        **course(job, call),
    }


def course(job: Job, call: Call) -> Json:
    """State, times, labels and error: of a custom job and of a tuning job."""
    times = [each for each in (job.created_at, job.started_at, job.ended_at) if each]
    shown: Json = {
        "state": STATES[job.state],
        "createTime": timestamp(job.created_at),
        "updateTime": timestamp(max(times)),
    }
    if job.started_at:
        shown["startTime"] = timestamp(job.started_at)
    if job.ended_at:
        shown["endTime"] = timestamp(job.ended_at)
    if job.labels:
        shown["labels"] = {label.key: label.value for label in job.labels}
    if job.error_message:
        shown["error"] = {"code": _code(job), "message": with_log_link(job.error_message, call.project, job.job_id)}
    return shown


def number(key: str) -> str:
    """Of up to nineteen digits, as Vertex AI's."""
    return str(int(hashlib.sha256(key.encode()).hexdigest()[:15], 16) + 10**17)


def _code(job: Job) -> int:
    if job.state is JobState.CANCELLED:
        return _CANCELLED
    return _INTERNAL if (job.error_message or "").startswith(INTERNAL_ERROR) else _INVALID_ARGUMENT


def with_region(extension: object, region: str) -> object:
    """The address says where; what the document adds to Vertex AI's stays as it is, right or wrong."""
    return {**extension, "region": region} if isinstance(extension, Mapping) else extension or {"region": region}


def _is_here(job: Job, call: Call) -> bool:
    return is_there(job, call) and job.tuning is None and job.trial_of is None


def is_there(job: Job, call: Call) -> bool:
    """A job of Vertex AI's, in the region that the path names, that nobody has deleted."""
    is_vertex = job.plan.dialect is Dialect.VERTEX and job.deleted_at is None
    return is_vertex and job.plan.region == call.params["location"]


def parent(call: Call) -> str:
    return f"projects/{call.project}/locations/{call.params['location']}"
