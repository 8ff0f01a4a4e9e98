"""A stored job as the service's API shows it: its field names, its times, the spec echoed verbatim.

What the service never had (attempts, replicas, budgets, substitutions) stands under one key of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from shared.core.model.job import INTERNAL_RETRIES_MAX, RERUNS_MAX, RESTARTS_MAX, Job, JobState, Replica, public_id
from shared.core.model.tuning import Measurement, Trial, TrialState, Tuning
from shared.core.reconcile.plan import vm_name
from shared.core.reporting.submission_origin import came
from shared.core.rules.messages import with_log_link
from shared.presentation.ml_units import Usage, consumed

EXTENSION: Final = "trainmaster"

_ASKED: Final = {
    "trainingInput": "trainingInput",
    "training_input": "trainingInput",
    "jobSpec": "jobSpec",
    "job_spec": "jobSpec",
}

View = dict[str, Any]


def job_view(job: Job, replicas: Iterable[Replica] = (), project: str = "", used: Usage | None = None) -> View:
    """The service's view of it with our own beside. `replicas` are those of the present attempt."""
    extension = _extension(job, replicas)
    if used is not None:
        extension["usage"] = _usage(used)
    return {**service_view(job, project=project), EXTENSION: extension}


def service_view(job: Job, position: int = 0, project: str = "") -> View:
    """What the service itself answered, and not a field more. What is absent is left out, as it did.

    `position`: in the line of those that wait for room; 0 for a job that waits for nothing. With a `project` a failed
    job's message says where its log is: the stored message does not, for what is decided knows of no project.
    """
    spec = json.loads(job.spec_json)
    units = consumed(job)
    view: View = {
        "jobId": job.job_id,
        **_asked(spec),
        "createTime": timestamp(job.created_at),
        "state": job.state.value,
        "trainingOutput": {**_tried(job), **({} if units is None else {"consumedMLUnits": units})},
        "jobPosition": str(position),
        "etag": etag(job),
    }
    if job.started_at:
        view["startTime"] = timestamp(job.started_at)
    if job.ended_at:
        view["endTime"] = timestamp(job.ended_at)
    if job.error_message:
        links = project and job.state is JobState.FAILED
        view["errorMessage"] = (
            with_log_link(job.error_message, project, public_id(job.job_id)) if links else job.error_message
        )
    if job.labels:
        view["labels"] = {label.key: label.value for label in job.labels}
    return view


def _tried(job: Job) -> View:
    """Of a tuning job its trials, the best first. Source: HyperparameterOutput, and what real jobs answered."""
    tuning = job.tuning
    if tuning is None:
        return {}
    shown: View = {
        "completedTrialCount": str(len(tuning.of_state(TrialState.SUCCEEDED))),
        "isHyperparameterTuningJob": True,
        "hyperparameterMetricTag": tuning.metric_tag,
    }
    trials = [_trial(trial, tuning) for trial in tuning.best_first()]
    return {**shown, "trials": trials} if trials else shown


def _trial(trial: Trial, tuning: Tuning) -> View:
    shown: View = {
        "trialId": str(trial.number),
        "hyperparameters": {each.name: each.value for each in tuning.assigned(trial.values)},
        "state": trial.state.value,
    }
    if trial.started_at:
        shown["startTime"] = timestamp(trial.started_at)
    if trial.ended_at:
        shown["endTime"] = timestamp(trial.ended_at)
    if trial.measurement:
        shown["finalMetric"] = _metric(trial.measurement)
    return shown


def _metric(measurement: Measurement) -> View:
    return {"trainingStep": str(measurement.step), "objectiveValue": measurement.value}


def _asked(spec: Mapping[str, object]) -> View:
    """What to run, as it was sent: of either dialect, under its name in camelCase."""
    return {name: spec[sent] for sent, name in _ASKED.items() if sent in spec}


def etag(job: Job) -> str:
    """Another one after every change of the labels. Source of its shape: eight bytes in base64."""
    said = f"{job.job_id}#{job.labels_version}".encode()
    return base64.b64encode(hashlib.sha256(said).digest()[:8]).decode()


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC, seconds, as the service wrote it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _extension(job: Job, replicas: Iterable[Replica]) -> View:
    plan = job.plan
    view: View = {
        "submitted": came(job),
        "attempt": job.attempt,
        "zone": job.zone,
        "runtime": plan.runtime,
        "budgets": {
            "reruns": _used(job.budgets.reruns_used, RERUNS_MAX),
            "internalRetries": _used(job.budgets.internal_used, INTERNAL_RETRIES_MAX),
        },
        "replicas": [_replica(job, replica) for replica in replicas],
    }
    if plan.substitutions:
        view["substitutions"] = [
            {"field": each.field, "asked": each.asked, "given": each.given, "why": each.why}
            for each in plan.substitutions
        ]
    return view


def _usage(used: Usage) -> View:
    """What is not known is left out."""
    units = {} if used.ml_units is None else {"mlUnits": used.ml_units}
    cost = {"cost": {"amount": used.cost.amount, "currency": used.cost.currency}} if used.cost else {}
    return {"machineHours": used.machine_hours, **units, **cost}


def _used(used: int, limit: int) -> View:
    return {"used": used, "limit": limit}


def _replica(job: Job, replica: Replica) -> View:
    return {
        "taskType": replica.replica_id.task_type.value,
        "taskIndex": replica.replica_id.index,
        "state": replica.state.value,
        "incarnation": replica.incarnation,
        "vm": vm_name(job.job_id, replica.replica_id),
        "vm_generation": replica.vm_generation,
        "restarts": _used(replica.restarts_used, RESTARTS_MAX),
        "replaced": replica.replaced,
        "collateral": replica.collateral,
    }
