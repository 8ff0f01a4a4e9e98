"""`trainingOutput` of jobs that run a built-in algorithm, as clients that deploy a
model read it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.tuning import Trial, TrialState
from trainmaster.flows.job_creation.intake import new_job
from trainmaster.jobspec.accept import accept
from trainmaster.presentation.job_view import service_view

NOW = datetime(2026, 11, 23, tzinfo=UTC)
FRAMEWORK = {"framework": "XGBOOST", "runtimeVersion": "xgboost-3.2", "pythonVersion": "3.11"}
TUNING = {
    "maxTrials": 2,
    "hyperparameterMetricTag": "loss",
    "params": [{"parameterName": "eta", "type": "DOUBLE", "minValue": 0.1, "maxValue": 0.5}],
}


def job(state: JobState, **training: Any) -> Job:
    body = {
        "region": "us-central1",
        "jobDir": "gs://bucket/trees/",
        "masterConfig": {"imageUri": "gcr.io/cloud-ml-algos/boosted_trees"},
        "args": ["--training_data_path=gs://bucket/t.csv"],
        **training,
    }
    spec = accept({"jobId": "trees_1", "trainingInput": body}, default_job_id=None)
    return replace(new_job(spec, "source", NOW), state=state)


def output(shown: Job) -> dict[str, Any]:
    found = service_view(shown)["trainingOutput"]
    assert isinstance(found, dict)
    return found


def test_successful_job_has_the_path_of_its_model() -> None:
    shown = output(job(JobState.SUCCEEDED))

    assert shown["isBuiltInAlgorithmJob"] is True
    assert shown["builtInAlgorithmOutput"] == {**FRAMEWORK, "modelPath": "gs://bucket/trees/model/"}


def test_job_that_has_no_model_yet_has_no_path() -> None:
    assert output(job(JobState.RUNNING))["builtInAlgorithmOutput"] == FRAMEWORK


def test_successful_trials_have_paths_and_their_tuning_job_has_none() -> None:
    tuned = job(JobState.SUCCEEDED, hyperparameters=TUNING)
    assert tuned.tuning is not None
    trials = (Trial(1, ("0.1",), TrialState.SUCCEEDED), Trial(2, ("0.2",), TrialState.FAILED))
    shown = output(replace(tuned, tuning=replace(tuned.tuning, trials=trials)))

    assert shown["builtInAlgorithmOutput"] == FRAMEWORK
    first, second = sorted(shown["trials"], key=lambda trial: str(trial["trialId"]))
    assert first["builtInAlgorithmOutput"] == {
        **FRAMEWORK,
        "modelPath": "gs://bucket/trees/1/model/",
    }
    assert "builtInAlgorithmOutput" not in second


def test_other_jobs_do_not_have_these_fields() -> None:
    program = {"masterConfig": {}, "packageUris": ["gs://bucket/a-1.whl"], "pythonModule": "a.b"}

    assert not {"isBuiltInAlgorithmJob", "builtInAlgorithmOutput"} & set(
        output(job(JobState.SUCCEEDED, **program))
    )
