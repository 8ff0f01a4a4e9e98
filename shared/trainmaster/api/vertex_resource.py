"""Methods that the resources of Vertex AI v1 have in common: `customJobs`,
`hyperparameterTuningJobs` and `trainingPipelines`.

`routes.py` maps addresses to them. Each resource is a job of this project like any other. Vertex AI
names jobs by numbers: the number is derived from the request that creates the job, and the job is
stored as `custom_NUMBER`. A job that was submitted as a file keeps its name.
"""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from trainmaster.api import enum_numbers, errors, list_filter, paging
from trainmaster.api.create_job import create_job, with_notes
from trainmaster.api.errors import Json
from trainmaster.api.jobs import explain_job
from trainmaster.api.request import BODY_NAME, Call, Service, caller_name
from trainmaster.core.model.job import CUSTOM_JOB_PREFIX, Job, JobState, public_id
from trainmaster.core.model.origin import Dialect
from trainmaster.core.rules.messages import INTERNAL_ERROR, with_log_link
from trainmaster.flows.user_requests import cancel_job, delete_job
from trainmaster.jobspec.fields.job_id import JOB_ID
from trainmaster.jobspec.job_document import has_job_id
from trainmaster.jobspec.problems import snake_case
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, DocumentKind, detect_kind
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.presentation.job_view import times_view, timestamp

STATES: Final = {
    JobState.QUEUED: "JOB_STATE_QUEUED",
    JobState.PREPARING: "JOB_STATE_PENDING",
    JobState.RUNNING: "JOB_STATE_RUNNING",
    JobState.SUCCEEDED: "JOB_STATE_SUCCEEDED",
    JobState.FAILED: "JOB_STATE_FAILED",
    JobState.CANCELLED: "JOB_STATE_CANCELLED",
}
# Fields that a job of each kind has besides those that its submitter sets.
STATUS_FIELDS: Final = (
    "name",
    "state",
    "createTime",
    "startTime",
    "endTime",
    "updateTime",
    "error",
    "labels",
)

# Source: google.rpc.Code; for cancelled jobs the discovery document of customJobs.cancel.
_CODE_CANCELLED: Final = 1
_CODE_INVALID_ARGUMENT: Final = 3
_CODE_INTERNAL: Final = 13
_CANCELED: Final = "CANCELED"
"""Word of Vertex AI for a job that was cancelled, which clients look for in the message.

Source: prefect_gcp/workers/vertex.py.
"""
_EMPTY: Final = "type.googleapis.com/google.protobuf.Empty"
_METADATA: Final = "type.googleapis.com/google.cloud.aiplatform.v1.DeleteOperationMetadata"

_HEX_DIGITS: Final = 15
"""Digits of a hash that become a number: 60 bits, so that it fits an int64."""

_log = logging.getLogger(__name__)


class VertexResource(ABC):
    """The methods of one kind of resource."""

    kind: ClassVar[DocumentKind]
    """Kind of its documents, with its name in addresses and lists."""
    message: ClassVar[str]
    """Name in error messages: `custom_job`."""
    required: ClassVar[tuple[str, ...]]
    """Fields without which no job is created."""
    optional: ClassVar[tuple[str, ...]] = ("encryptionSpec",)
    """Further fields that the resource is shown with, besides STATUS_FIELDS."""
    states: ClassVar[Mapping[JobState, str]] = STATES

    def read_document(self, sent: Mapping[str, object]) -> dict[str, object]:
        """Return the job document of a request's body. Raises ApiError."""
        return {name: enum_numbers.replace_numbers(value, name) for name, value in sent.items()}

    @abstractmethod
    def includes(self, job: Job) -> bool:
        """Return whether a Vertex AI job is of this kind."""

    def specification(self, job: Job) -> Json:
        """Return the fields of the job that its submitter set."""
        document = json.loads(job.spec_json)
        fields = {name: get_field(document, name) for name in (*self.required, *self.optional)}
        return {name: value for name, value in fields.items() if value is not None}

    def create(self, call: Call, service: Service) -> Json:
        return self.create_from(parse_document(call.request.body, BODY_NAME), call, service)

    def create_from(self, body: Mapping[str, object], call: Call, service: Service) -> Json:
        """Create the job of a document in the location of the call's address."""
        sent = self.read_document(body)
        kind = detect_kind(sent)
        # AI_PLATFORM is also the kind of a document that lacks what identifies one.
        if kind not in (self.kind, AI_PLATFORM):
            raise errors.invalid_argument(
                self.message, f"is a {kind.title}: use {parent(call)}/{kind.collection}"
            )
        document = self.kind.wrapped(sent)
        for name in self.required:
            if not get_field(document, name):
                raise errors.invalid_argument(f"{self.message}.{snake_case(name)}", "is required")
        if has_job_id(document):
            raise errors.invalid_argument(
                f"{self.message}.job_id", "cannot be set: Vertex AI numbers its jobs"
            )
        document["trainmaster"] = _with_region(document.get("trainmaster"), call.params["location"])
        job_id = f"{CUSTOM_JOB_PREFIX}{_number(call.idempotency_key)}"
        job = create_job(document, job_id, call, service, is_default_id=True)
        return with_notes(self.view(job, call, service), job, call)

    def get(self, call: Call, service: Service) -> Json:
        return self.view(self.find(call, service), call, service)

    def explain(self, call: Call, service: Service) -> Json:
        return explain_job(self.find(call, service), service)

    def list_jobs(self, call: Call, service: Service) -> Json:
        fields = frozenset((*STATUS_FIELDS, *self.required, *self.optional))
        wanted = list_filter.parse_filter(call.param("filter"), fields)
        return paging.read_page(
            call,
            service,
            paging.JobList(
                self.kind.collection,
                self.states,
                wanted.bounds,
                lambda job: (
                    self._is_listed(job, call) and wanted.holds(self.view(job, call, service))
                ),
                lambda job: self.view(job, call, service),
            ),
        )

    def cancel(self, call: Call, service: Service) -> Json:
        """Cancel the job.

        For a job that has ended this has no effect and is no error, as in the API of AI Platform.
        """
        cancel_job(self.find(call, service).job_id, caller_name(call, service), service.deps)
        return {}

    def delete(self, call: Call, service: Service) -> Json:
        """Return a completed operation.

        The job is no longer found; its ledger, the record of its events, stays for some time.
        """
        job = self.find(call, service)
        by = caller_name(call, service)
        if not delete_job(job.job_id, call.idempotency_key, service.deps, by=by):
            raise errors.failed_precondition(
                f"The job is in {self.states[job.state]}. Cancel it before you delete it."
            )
        # The ledger of a deleted job expires; this line stays as long as the log is kept.
        _log.info("%s deleted %s", by, job.job_id, extra={"job_id": job.job_id})
        return completed_deletion(call, service)

    def find(self, call: Call, service: Service) -> Job:
        """Return the job that the path names. Raises ApiError if there is none."""
        name = call.params["job"]
        job_id = f"{CUSTOM_JOB_PREFIX}{name}" if name.isdecimal() else name
        loaded = service.deps.store.load(job_id) if JOB_ID.fullmatch(job_id) else None
        if loaded is None or not self._is_listed(loaded.state.job, call):
            raise errors.not_found(f"{parent(call)}/{self.kind.collection}/{name}")
        return loaded.state.job

    def view(self, job: Job, call: Call, service: Service) -> Json:
        """Return the job as the API shows it.

        Without a displayName in its document, its name is its id.
        """
        return {
            "name": f"{parent(call)}/{self.kind.collection}/{public_id(job.job_id)}",
            "displayName": job.job_id,
            **self.specification(job),
            **_status(job, service),
            "state": self.states[job.state],
        }

    def _is_listed(self, job: Job, call: Call) -> bool:
        """Return whether the job is of this kind, in the location of the path, and not deleted."""
        is_vertex = job.plan.origin.dialect is Dialect.VERTEX and job.deleted_at is None
        return is_vertex and job.plan.where.region == call.params["location"] and self.includes(job)


def completed_deletion(call: Call, service: Service) -> Json:
    """Return the operation that has deleted what the call names."""
    now = timestamp(service.now())
    return {
        "name": f"{parent(call)}/operations/{_number(call.idempotency_key)}",
        "metadata": {
            "@type": _METADATA,
            "genericMetadata": {"createTime": now, "updateTime": now},
        },
        "done": True,
        "response": {"@type": _EMPTY},
    }


def get_field(document: Mapping[str, object], name: str) -> object:
    """Return a field that is spelled in camelCase or snake_case."""
    return document.get(name, document.get(snake_case(name)))


def _status(job: Job, service: Service) -> Json:
    """Return times, labels and error."""
    times = [time for time in (job.created_at, job.started_at, job.ended_at) if time]
    status: Json = {
        "createTime": timestamp(job.created_at),
        "updateTime": timestamp(max(times)),
        **times_view(job.started_at, job.ended_at),
    }
    if job.labels:
        status["labels"] = {label.key: label.value for label in job.labels}
    if job.error_message:
        message = job.error_message
        if job.state is JobState.CANCELLED:
            message = f"{_CANCELED}: {message}"
        if service.log_project:
            message = with_log_link(message, service.log_project, job.job_id)
        status["error"] = {"code": _error_code(job), "message": message}
    return status


def _error_code(job: Job) -> int:
    if job.state is JobState.CANCELLED:
        return _CODE_CANCELLED
    is_internal = (job.error_message or "").startswith(INTERNAL_ERROR)
    return _CODE_INTERNAL if is_internal else _CODE_INVALID_ARGUMENT


def _number(key: str) -> str:
    """Derive a number of eighteen or nineteen digits, as Vertex AI's."""
    sixty_bits = int(hashlib.sha256(key.encode()).hexdigest()[:_HEX_DIGITS], 16)
    return str(sixty_bits + 10**17)  # without leading zeros


def _with_region(extension: object, region: str) -> object:
    """Add the location of the address to `trainmaster`.

    A value that is not a mapping is left to the job's checks.
    """
    if not extension:
        return {"region": region}
    return {**extension, "region": region} if isinstance(extension, Mapping) else extension


def parent(call: Call) -> str:
    """Return the name of the location that the call names."""
    return f"projects/{call.project}/locations/{call.params['location']}"
