"""`projects.locations.hyperparameterTuningJobs` of Vertex AI v1. Source: its discovery document."""

from __future__ import annotations

from typing import ClassVar, Final

from trainmaster.api.errors import Json
from trainmaster.api.vertex_resource import VertexResource
from trainmaster.core.model.job import Job
from trainmaster.core.model.tuning import Measurement, Trial, TrialState, Tuning
from trainmaster.jobspec.reading.document_kinds import VERTEX_TUNING, DocumentKind
from trainmaster.presentation.job_view import times_view

_TRIAL_STATES: Final = {
    TrialState.QUEUED: "REQUESTED",
    TrialState.RUNNING: "ACTIVE",
    TrialState.STOPPING: "STOPPING",
    TrialState.SUCCEEDED: "SUCCEEDED",
    TrialState.STOPPED: "SUCCEEDED",
    TrialState.FAILED: "INFEASIBLE",
    TrialState.CANCELLED: "INFEASIBLE",
}


class TuningJobs(VertexResource):
    """A trial is shown with its tuning job. The job that runs it has no address of its own."""

    kind: ClassVar[DocumentKind] = VERTEX_TUNING
    message: ClassVar[str] = "hyperparameter_tuning_job"
    required: ClassVar[tuple[str, ...]] = (
        "displayName",
        "studySpec",
        "trialJobSpec",
        "maxTrialCount",
        "parallelTrialCount",
    )
    optional: ClassVar[tuple[str, ...]] = ("maxFailedTrialCount", "encryptionSpec", "trials")

    def includes(self, job: Job) -> bool:
        return job.tuning is not None

    def specification(self, job: Job) -> Json:
        view = super().specification(job)
        if job.tuning is not None and job.tuning.trials:
            view["trials"] = [_trial_view(trial, job.tuning) for trial in job.tuning.trials]
        return view


TUNING_JOBS: Final = TuningJobs()


def _trial_view(trial: Trial, tuning: Tuning) -> Json:
    view: Json = {
        "id": str(trial.number),
        "state": _TRIAL_STATES[trial.state],
        "parameters": [
            {"parameterId": parameter.name, "value": parameter.typed(text)}
            for parameter, text in zip(tuning.parameters, trial.values, strict=True)
        ],
        **times_view(trial.started_at, trial.ended_at),
    }
    if trial.measurement:
        view["finalMeasurement"] = _measurement_view(trial.measurement, tuning.metric_tag)
    if trial.reported:
        view["measurements"] = [
            _measurement_view(measurement, tuning.metric_tag) for measurement in trial.reported
        ]
    return view


def _measurement_view(measurement: Measurement, metric: str) -> Json:
    return {
        "stepCount": str(measurement.step),
        "metrics": [{"metricId": metric, "value": measurement.value}],
    }
