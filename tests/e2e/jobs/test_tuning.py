"""Tuning jobs on the local stack: real agents, real programs that report their metric, Optuna in its own function."""

from __future__ import annotations

import pytest

from shared.core.ledger import fold
from shared.core.model.job import Job
from shared.core.model.tuning import Tuning, trial_id
from shared.gcp.log_entries import LogEntries
from shared.presentation.job_view import service_view
from tests.e2e.conftest import Lab
from tests.integration.api.discovery import faults

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PARAMS = [
    {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.001, "maxValue": 1.0, "scaleType": "UNIT_LOG_SCALE"},
    {"parameterName": "depth", "type": "INTEGER", "minValue": 1, "maxValue": 3},
]


def a_study(lab: Lab, *args: str, **hyperparameters: object) -> str:
    spec = {
        "goal": "MAXIMIZE",
        "hyperparameterMetricTag": "score",
        "maxTrials": 4,
        "maxParallelTrials": 2,
        "params": PARAMS,
        **hyperparameters,
    }
    return lab.upload(
        lab.scripted_spec(workers=0, pythonModule="trainer.tuned", args=list(args), hyperparameters=spec), "tuning"
    )


def tuning_of(job: Job) -> Tuning:
    assert job.tuning is not None
    return job.tuning


def nothing_is_left_of(lab: Lab, job_id: str) -> Tuning:
    """Every trial has ended and has no VM, every ledger's fold is what is stored, and nothing is pending."""
    tuning = tuning_of(lab.state(job_id).job)
    for each in (job_id, *(trial_id(job_id, trial.number) for trial in tuning.trials)):
        lab.until(lambda each=each: lab.state(each).job.state.is_terminal, 60)  # type: ignore[misc]
        lab.until(lambda each=each: not lab.store.pending_keys(each), 90)  # type: ignore[misc]
        assert lab.fleet.list_vms(each) == ()
        assert fold(lab.store.ledger(each)) == lab.state(each)
    return tuning_of(lab.state(job_id).job)


@pytest.mark.timeout(300)
def test_a_tuning_job_finds_what_its_trials_report_and_leaves_nothing(lab: Lab) -> None:
    job_id = a_study(lab)
    lab.wait(job_id, "SUCCEEDED", 200)
    tuning = nothing_is_left_of(lab, job_id)
    assert len({trial.values for trial in tuning.trials}) == 4
    for trial in tuning.trials:
        rate, depth = (float(value) for value in trial.values)
        assert trial.measurement is not None, "what the program wrote came with its exit"
        assert trial.measurement.value == pytest.approx(depth - abs(rate - 0.5))
        assert trial.measurement.step == 3, "the last one"
    job = lab.state(job_id).job
    assert faults("ml", "GoogleCloudMlV1__Job", service_view(job), verbatim={"trainingInput"}) == []
    logging = LogEntries(lab.stack.state.config.project, lab.stack.environment["TRAINMASTER_LOGGING_ENDPOINT"])
    entries, _ = logging.page(f'labels."ml.googleapis.com/job_id"="{job_id}" AND jsonPayload.message:"trial 3 of"', "")
    logging.close()
    (said,) = entries
    assert said["labels"]["ml.googleapis.com/trial_id"] == "3"
    assert said["jsonPayload"]["message"].endswith(f"trial 3 of {job_id} in gs://{lab.bucket}/scripted/3")


@pytest.mark.timeout(300)
def test_too_many_trials_that_fail_for_good_fail_the_job_and_end_the_rest(lab: Lab) -> None:
    depth = {"parameterName": "depth", "type": "DISCRETE", "discreteValues": [1, 2]}
    wait = {"parameterName": "seconds", "type": "DISCRETE", "discreteValues": [0, 600]}
    rate = {"parameterName": "rate", "type": "DISCRETE", "discreteValues": [0.25, 0.5]}
    job_id = a_study(
        lab,
        "--fail-at-depth",
        "1",
        params=[depth, wait, rate],
        algorithm="GRID_SEARCH",
        maxTrials=8,
        maxParallelTrials=4,
        maxFailedTrials=2,
    )
    lab.until(lambda: lab.state(job_id).job.state.is_terminal, 200)
    message = lab.state(job_id).job.error_message or ""
    assert "2 total hyperparameter trial failures were seen" in message, lab.story(job_id)
    assert "The replica chief 0 exited with a non-zero status of 2." in message
    tuning = nothing_is_left_of(lab, job_id)
    assert [trial.state for trial in tuning.trials[:4]] == ["FAILED", "FAILED", "CANCELLED", "CANCELLED"]


@pytest.mark.timeout(300)
def test_a_cancelled_tuning_job_takes_its_trials_with_it(lab: Lab) -> None:
    job_id = a_study(lab, "--seconds", "600")
    lab.wait(job_id, "RUNNING", 120)
    lab.cancel(job_id)
    tuning = nothing_is_left_of(lab, job_id)
    assert [trial.state for trial in tuning.trials] == ["CANCELLED", "CANCELLED"]
