"""The fields of the service for a job that runs a built-in algorithm. Clients that deploy the model read them.

Source: BuiltInAlgorithmOutput in the discovery document of `ml` v1. `modelPath` is only set for successful jobs
that are not tuning jobs; a trial has the output only if it succeeded.
"""

from __future__ import annotations

from typing import Any

from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.plan import BuiltInAlgorithm
from trainmaster.core.model.tuning import Trial, TrialState

View = dict[str, Any]


def algorithm_view(job: Job) -> View:
    """Return the fields of `trainingOutput`; empty for any other job."""
    algorithm = job.plan.algorithm
    if algorithm is None:
        return {}
    has_model = job.state is JobState.SUCCEEDED and job.tuning is None
    output = _output(algorithm, job.plan.program.job_dir if has_model else None)
    return {"isBuiltInAlgorithmJob": True, "builtInAlgorithmOutput": output}


def trial_algorithm_view(job: Job, trial: Trial) -> View:
    """Return the fields of a successful trial; empty for any other."""
    algorithm, job_dir = job.plan.algorithm, job.plan.program.job_dir
    if algorithm is None or job_dir is None or trial.state is not TrialState.SUCCEEDED:
        return {}
    return {"builtInAlgorithmOutput": _output(algorithm, f"{job_dir.rstrip('/')}/{trial.number}")}


def _output(algorithm: BuiltInAlgorithm, job_dir: str | None) -> View:
    view = {
        "framework": algorithm.framework,
        "runtimeVersion": algorithm.runtime_version,
        "pythonVersion": algorithm.python_version,
    }
    return view if job_dir is None else {**view, "modelPath": f"{job_dir.rstrip('/')}/model/"}
