"""`projects.jobs:submit`: create a job from the text of a file, whatever kind of job it describes.

It is Trainmaster's own method. Its clients need neither a parser nor the formats of jobs: the file
may be a job file of either format, or a manifest, in YAML or JSON. Body of the request:

    document    text of the file
    fileName    its name, which becomes the job id of a document without one; empty: there is none
    region      where a job runs that does not say so; empty: it must say so
    time        when the file was submitted, for a time in its job id; the same for all attempts
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trainmaster.api import errors, jobs
from trainmaster.api.custom_jobs import CUSTOM_JOBS
from trainmaster.api.errors import Json
from trainmaster.api.permissions import CREATE, vertex_permissions
from trainmaster.api.request import BODY_NAME, VALIDATE_ONLY, Call, Service
from trainmaster.api.training_pipelines import TRAINING_PIPELINES
from trainmaster.api.tuning_jobs import TUNING_JOBS
from trainmaster.api.vertex_resource import VertexResource
from trainmaster.jobspec.job_document import (
    field_at,
    job_id_of,
    read_document,
    with_default_region,
    with_id_from_file,
    with_job_id,
    with_time_in_job_id,
)
from trainmaster.jobspec.problems import InvalidJob, snake_case
from trainmaster.jobspec.reading.document_kinds import (
    AI_PLATFORM,
    VERTEX_TUNING,
    DocumentKind,
    detect_kind,
)
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.jobspec.reading.parse_document import parse_document

_RESOURCES: Final[Mapping[DocumentKind, VertexResource]] = {
    resource.kind: resource for resource in (CUSTOM_JOBS, TUNING_JOBS, TRAINING_PIPELINES)
}
_FIELDS: Final = ("document", "fileName", "region", "time")
_UNNAMED: Final = "document"
"""What messages call a file without a name."""


def submit(call: Call, service: Service) -> Json:
    """Return the job as the API of its kind shows it."""
    try:
        return _submit(call, service)
    except InvalidJob as invalid:
        raise errors.invalid_document(invalid) from None


def _submit(call: Call, service: Service) -> Json:
    body = parse_document(call.request.body, BODY_NAME)
    _refuse_unknown_fields(body)
    file_name = _text(body, "fileName")
    region = _text(body, "region") or None
    at = jobs.submission_time(_text(body, "time"), service)
    document = read_document(_text(body, "document").encode(), file_name or _UNNAMED, region)
    if file_name:
        document = with_id_from_file(document, file_name)
    document = with_default_region(document, region)
    kind = detect_kind(document)
    if kind is AI_PLATFORM:
        return jobs.create_from(document, at, call, service)
    document = with_time_in_job_id(document, at)
    return _create_in_location(document, kind, call, service)


def _refuse_unknown_fields(body: Mapping[str, object]) -> None:
    unknown = [str(name) for name in body if name not in _FIELDS]
    if unknown:
        advice = f"the fields are {', '.join(_FIELDS)}; {VALIDATE_ONLY} is a query parameter"
        raise errors.invalid_argument(unknown[0], f"is no field of this request: {advice}")


def _text(body: Mapping[str, object], name: str) -> str:
    """Return a field of the request; empty: it is absent. Raises ApiError for another type."""
    value = body.get(name, "")
    if not isinstance(value, str):
        raise errors.invalid_argument(name, "must be a string")
    return value


def _create_in_location(
    document: Mapping[str, object], kind: DocumentKind, call: Call, service: Service
) -> Json:
    """Create a job of Vertex AI's API in the region that its document names."""
    _check_permission(kind, call, service)
    location = field_at(document, (EXTENSION, "region"))
    if not location:
        raise errors.invalid_argument(
            "trainmaster.region", "is required. Example: trainmaster: {region: us-central1}"
        )
    in_location = replace(call, params={**call.params, "location": location})
    return _RESOURCES[kind].create_from(_with_defaults(document, kind), in_location, service)


def _check_permission(kind: DocumentKind, call: Call, service: Service) -> None:
    """Raise ApiError for a caller who may create custom jobs, but not jobs of this kind."""
    required, *_ = vertex_permissions(kind.collection)  # that of creating one
    if required == CREATE:
        return
    if required not in service.access.granted_permissions(call.token, [required]):
        raise errors.permission_denied(required, call.project)


def _with_defaults(document: Mapping[str, object], kind: DocumentKind) -> dict[str, object]:
    """Return the document without its job id, and with the fields that gcloud fills in.

    The API requires these fields, and numbers jobs itself.
    """
    sent = with_job_id(kind.wrapped(document), job_id=None)
    defaults: dict[str, object] = {"displayName": job_id_of(document) or "job"}
    if kind is VERTEX_TUNING:
        defaults |= {"maxTrialCount": 1, "parallelTrialCount": 1}
    for name, value in defaults.items():
        if snake_case(name) not in sent:
            sent.setdefault(name, value)
    return sent
