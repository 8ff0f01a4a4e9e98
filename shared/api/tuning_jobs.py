"""`projects.locations.hyperparameterTuningJobs` of Vertex AI v1. Source: its discovery document.

Numbered and stored as custom jobs are. A trial is named after the job that it is, which has no address of its own here.
"""

from __future__ import annotations

import json
from typing import Final

from shared.api import custom_jobs, enum_numbers, errors, list_filter, paging
from shared.api.create_job import create as create_job
from shared.api.errors import Json
from shared.api.jobs import BODY, BY
from shared.api.request import Call, Service, email_of
from shared.core.model.job import CUSTOM_JOB_PREFIX, Job, public_id
from shared.core.model.tuning import Measurement, Parameter, ParameterKind, Trial, TrialState, Tuning
from shared.flows import cancel as cancelling
from shared.jobspec import JOB_ID, parse_document
from shared.presentation.job_view import timestamp

COLLECTION: Final = "hyperparameterTuningJobs"
_ASKED: Final = ("displayName", "studySpec", "maxTrialCount", "parallelTrialCount", "maxFailedTrialCount")
_SHOWN: Final = (*_ASKED, "trialJobSpec", "encryptionSpec")
FIELDS: Final = frozenset(
    {*_SHOWN, "name", "state", "createTime", "startTime", "endTime", "updateTime", "error", "labels", "trials"}
)
_REQUIRED: Final = ("displayName", "studySpec", "trialJobSpec")
_STATES: Final = {
    TrialState.QUEUED: "REQUESTED",
    TrialState.RUNNING: "ACTIVE",
    TrialState.SUCCEEDED: "SUCCEEDED",
    TrialState.FAILED: "INFEASIBLE",
    TrialState.CANCELLED: "INFEASIBLE",
}


def create(call: Call, service: Service) -> Json:
    sent = parse_document(call.request.body, BODY)
    document = {name: enum_numbers.with_names(value, name) for name, value in sent.items()}
    for name in _REQUIRED:
        if not _said(document, name):
            raise errors.invalid(f"hyperparameter_tuning_job.{_snake(name)}", "is required")
    if "jobId" in document or "job_id" in document:
        raise errors.invalid("hyperparameter_tuning_job.job_id", "is not known: a tuning job gets a number")
    document["trainmaster"] = custom_jobs.with_region(document.get("trainmaster"), call.params["location"])
    job_id = f"{CUSTOM_JOB_PREFIX}{custom_jobs.number(call.key)}"
    return view(create_job(document, job_id, call, service, default=True), call)


def get(call: Call, service: Service) -> Json:
    return view(find(call, service), call)


def list_(call: Call, service: Service) -> Json:
    desired = list_filter.read(call.param("filter"), FIELDS)
    found, token = paging.page(call, service.deps.store, lambda job: _is_here(job, call) and desired(view(job, call)))
    answer: Json = {COLLECTION: [view(job, call) for job in found]} if found else {}
    return {**answer, "nextPageToken": token} if token else answer


def cancel(call: Call, service: Service) -> Json:
    cancelling.handle(find(call, service).job_id, email_of(call, service) or BY, service.deps)
    return {}


def delete(call: Call, service: Service) -> Json:
    return custom_jobs.deleted(find(call, service), call, service)


def find(call: Call, service: Service) -> Job:
    """The tuning job that the path names. Raises ApiError where there is none."""
    named = call.params["job"]
    job_id = f"{CUSTOM_JOB_PREFIX}{named}" if named.isdecimal() else named
    loaded = service.deps.store.load(job_id) if JOB_ID.fullmatch(job_id) else None
    if loaded is None or not _is_here(loaded.state.job, call):
        raise errors.not_found(f"{custom_jobs.parent(call)}/{COLLECTION}/{named}")
    return loaded.state.job


def view(job: Job, call: Call) -> Json:
    spec = json.loads(job.spec_json)
    asked = {name: value for name in _SHOWN if (value := _said(spec, name)) is not None}
    trials = [_trial(trial, job.tuning) for trial in job.tuning.trials] if job.tuning else []
    return {
        "name": f"{custom_jobs.parent(call)}/{COLLECTION}/{public_id(job.job_id)}",
        "displayName": job.job_id,
        **asked,
        **({"trials": trials} if trials else {}),
        **custom_jobs.course(job, call),
    }


def _trial(trial: Trial, tuning: Tuning) -> Json:
    shown: Json = {
        "id": str(trial.number),
        "state": _STATES[trial.state],
        "parameters": [
            {"parameterId": parameter.name, "value": _value(parameter, text)}
            for parameter, text in zip(tuning.parameters, trial.values, strict=True)
        ],
    }
    if trial.started_at:
        shown["startTime"] = timestamp(trial.started_at)
    if trial.ended_at:
        shown["endTime"] = timestamp(trial.ended_at)
    if trial.measurement:
        shown["finalMeasurement"] = _measurement(trial.measurement, tuning.metric_tag)
    return shown


def _value(parameter: Parameter, text: str) -> float | str:
    """Source: the schema of Trial.Parameter: a number for all but categories."""
    return text if parameter.kind is ParameterKind.CATEGORICAL else float(text)


def _measurement(measurement: Measurement, metric: str) -> Json:
    return {"stepCount": str(measurement.step), "metrics": [{"metricId": metric, "value": measurement.value}]}


def _said(document: Json, name: str) -> object:
    return document.get(name, document.get(_snake(name)))


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _is_here(job: Job, call: Call) -> bool:
    return custom_jobs.is_there(job, call) and job.tuning is not None
