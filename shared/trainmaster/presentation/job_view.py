"""A stored job as the API of the old service, AI Platform Training, shows it, with its field names
and time format.

The spec is shown as submitted. Fields that the service did not have (attempts, replicas, budgets,
substitutions) are under one key, `trainmaster`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from trainmaster.core.model.capacity import candidate_words
from trainmaster.core.model.job import (
    RERUNS_MAX,
    RESTARTS_MAX,
    Job,
    JobState,
    public_id,
)
from trainmaster.core.model.members import state_word
from trainmaster.core.model.origin import BuiltInAlgorithm
from trainmaster.core.model.owner import owner
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.tuning import Measurement, Trial, TrialState, Tuning
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reporting.submission_words import describe_submission
from trainmaster.core.rules.messages import with_log_link
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.presentation.ml_units import Usage, consumed_ml_units

_BODY_FIELDS: Final = {
    "trainingInput": "trainingInput",
    "training_input": "trainingInput",
    "jobSpec": "jobSpec",
    "job_spec": "jobSpec",
    "trainingTaskInputs": "jobSpec",
    "training_task_inputs": "jobSpec",
}
"""Name of a document's body as submitted → its canonical name."""

_TRIAL_STATES: Final = {TrialState.STOPPING: "RUNNING", TrialState.STOPPED: "SUCCEEDED"}
"""States of trials that the service did not have → its own.

It marked a stopped trial as `isTrialStoppedEarly`.
"""

View = dict[str, Any]
"""An object of a response, as JSON."""


def job_view(
    job: Job, replicas: Iterable[Replica] = (), project: str = "", usage: Usage | None = None
) -> View:
    """Return the service's view of the job and, under `trainmaster`, ours.

    `replicas`: those of the current attempt.
    """
    extension = _extension_view(job, replicas)
    if usage is not None:
        extension["usage"] = _usage_view(usage)
    return {**service_view(job, project=project), EXTENSION: extension}


def service_view(job: Job, position: int = 0, project: str = "") -> View:
    """Return exactly the fields that the old service returned, without those that have no value.

    `position`: in the admission queue; 0 for a job that is not in it. With a `project` the message
    of a failed job links to its log; the stored message does not, because the rules do not know the
    project.
    """
    output = {**_tuning_view(job), **_algorithm_view(job)}
    ml_units = consumed_ml_units(job)
    if ml_units is not None:
        output["consumedMLUnits"] = ml_units
    view: View = {
        "jobId": job.job_id,
        **_body(json.loads(job.spec_json)),
        "createTime": timestamp(job.created_at),
        "state": job.state.value,
        "trainingOutput": output,
        "jobPosition": str(position),
        "etag": etag(job),
        **times_view(job.started_at, job.ended_at),
    }
    if job.error_message:
        message = job.error_message
        if project and job.state is JobState.FAILED:
            message = with_log_link(message, project, public_id(job.job_id))
        view["errorMessage"] = message
    if job.labels:
        view["labels"] = {label.key: label.value for label in job.labels}
    return view


def etag(job: Job) -> str:
    """Return the version of the job's labels as the service did: eight bytes in base64."""
    text = f"{job.job_id}#{job.labels_version}".encode()
    return base64.b64encode(hashlib.sha256(text).digest()[:8]).decode()


def timestamp(at: datetime) -> str:
    """Format a time as the service did: RFC 3339 in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def times_view(started_at: datetime | None, ended_at: datetime | None) -> View:
    """Return the times that are known."""
    times = {"startTime": started_at, "endTime": ended_at}
    return {name: timestamp(at) for name, at in times.items() if at}


def _body(spec: Mapping[str, object]) -> View:
    """Return what the job runs, under the canonical name."""
    return {name: spec[spelling] for spelling, name in _BODY_FIELDS.items() if spelling in spec}


def _tuning_view(job: Job) -> View:
    """Return the trials of a tuning job, the best first.

    Source: HyperparameterOutput, and responses to real jobs.
    """
    tuning = job.tuning
    if tuning is None:
        return {}
    view: View = {
        "completedTrialCount": str(len(tuning.completed)),
        "isHyperparameterTuningJob": True,
        "hyperparameterMetricTag": tuning.metric_tag,
    }
    trials = [
        {**_trial_view(trial, tuning), **_trial_algorithm_view(job, trial)}
        for trial in tuning.best_first()
    ]
    if trials:
        view["trials"] = trials
    return view


def _trial_view(trial: Trial, tuning: Tuning) -> View:
    assignments = tuning.assignments(trial.values)
    view: View = {
        "trialId": str(trial.number),
        "hyperparameters": {assignment.name: assignment.value for assignment in assignments},
        "state": _TRIAL_STATES.get(trial.state, trial.state.value),
        **times_view(trial.started_at, trial.ended_at),
    }
    if trial.state is TrialState.STOPPED:
        view["isTrialStoppedEarly"] = True
    if trial.measurement:
        view["finalMetric"] = _metric_view(trial.measurement)
    if trial.reported:
        view["allMetrics"] = [_metric_view(measurement) for measurement in trial.reported]
    return view


def _metric_view(measurement: Measurement) -> View:
    return {"trainingStep": str(measurement.step), "objectiveValue": measurement.value}


def _extension_view(job: Job, replicas: Iterable[Replica]) -> View:
    plan = job.plan
    view: View = {
        "submitted": describe_submission(job),
        "owner": {"user": owner(job).user, "verified": owner(job).is_verified},
        "attempt": job.attempt,
        "zone": job.zone,
    }
    if plan.where.options:
        view["candidate"] = candidate_words(plan, job.placement.zone_index)
    view["runtime"] = plan.image.runtime
    view["budgets"] = {
        "reruns": _budget_view(job.budgets.reruns_used, RERUNS_MAX),
    }
    if job.notes:
        view["notes"] = list(job.notes)
    view["replicas"] = [_replica_view(job, replica) for replica in replicas]
    if plan.origin.substitutions:
        view["substitutions"] = [asdict(substitution) for substitution in plan.origin.substitutions]
    return view


def _usage_view(usage: Usage) -> View:
    """Return the usage without what is unknown."""
    view: View = {"machineHours": usage.machine_hours}
    if usage.ml_units is not None:
        view["mlUnits"] = usage.ml_units
    if usage.cost is not None:
        cost = usage.cost
        view["cost"] = {"amount": float(cost.amount), "currency": cost.currency}
    return view


def _budget_view(used: int, limit: int) -> View:
    return {"used": used, "limit": limit}


def _replica_view(job: Job, replica: Replica) -> View:
    return {
        "taskType": replica.replica_id.task_type.value,
        "taskIndex": replica.replica_id.index,
        "state": state_word(job, replica),
        "incarnation": replica.incarnation,
        "vm": vm_name(job.set_id, replica.replica_id),
        "vmGeneration": replica.vm_generation,
        "restarts": _budget_view(replica.restarts_used, RESTARTS_MAX),
        "replaced": replica.replaced,
    }


def console_link(address: str, job_id: str) -> str:
    """Return the address of a job's page in a console that others can open.

    `address`: that of the console; empty: there is none, and the page has no address.
    """
    return f"{address.rstrip('/')}/jobs/{job_id}" if address else ""


def _algorithm_view(job: Job) -> View:
    """Return the fields of `trainingOutput` for a built-in algorithm; empty for any other job.

    Clients that deploy the model read them. `modelPath` is only set for successful jobs that are
    not tuning jobs; a trial has the output only if it succeeded. Source: BuiltInAlgorithmOutput in
    the discovery document of `ml` v1.
    """
    algorithm = job.plan.origin.algorithm
    if algorithm is None:
        return {}
    has_model = job.state is JobState.SUCCEEDED and job.tuning is None
    output = _output(algorithm, job.plan.program.job_dir if has_model else None)
    return {"isBuiltInAlgorithmJob": True, "builtInAlgorithmOutput": output}


def _trial_algorithm_view(job: Job, trial: Trial) -> View:
    """Return the fields of a successful trial; empty for any other."""
    algorithm = job.plan.origin.algorithm
    job_dir = job.plan.program.job_dir
    if algorithm is None or job_dir is None or trial.state is not TrialState.SUCCEEDED:
        return {}
    return {"builtInAlgorithmOutput": _output(algorithm, f"{job_dir.rstrip('/')}/{trial.number}")}


def _output(algorithm: BuiltInAlgorithm, job_dir: str | None) -> View:
    view = {
        "framework": algorithm.framework,
        "runtimeVersion": algorithm.runtime_version,
        "pythonVersion": algorithm.python_version,
    }
    if job_dir is not None:
        view["modelPath"] = f"{job_dir.rstrip('/')}/model/"
    return view
