"""Tuning jobs on the local stack, with real agents, programs that report metrics, and Optuna in the
function `tune`.
"""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Lab
from tests.integration.api.discovery import faults
from trainmaster.core.ledger import fold
from trainmaster.core.model.job import Job
from trainmaster.core.model.tuning import Tuning, trial_id
from trainmaster.gcp.log_entries import LogEntries
from trainmaster.presentation.job_view import service_view

HEAVY = pytest.mark.heavy(
    fact="trials of a tuning job end as they must",
    quick=(
        "`sim/test_tuning_jobs.py`, `unit/flows/test_tuning.py`,"
        " `unit/flows/test_early_stopping.py`, `contract/test_event_files.py`"
    ),
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PARAMS = [
    {
        "parameterName": "rate",
        "type": "DOUBLE",
        "minValue": 0.001,
        "maxValue": 1.0,
        "scaleType": "UNIT_LOG_SCALE",
    },
    {"parameterName": "depth", "type": "INTEGER", "minValue": 1, "maxValue": 3},
]


def submit_tuning_job(lab: Lab, *args: str, **hyperparameters: object) -> str:
    spec = {
        "goal": "MAXIMIZE",
        "hyperparameterMetricTag": "score",
        "maxTrials": 4,
        "maxParallelTrials": 2,
        "params": PARAMS,
        **hyperparameters,
    }
    return lab.upload(
        lab.scripted_spec(
            workers=0, pythonModule="trainer.tuned", args=list(args), hyperparameters=spec
        ),
        "tuning",
    )


def tuning_of(job: Job) -> Tuning:
    assert job.tuning is not None
    return job.tuning


def wait_until_released(lab: Lab, job_id: str) -> Tuning:
    """Wait until no trial has VMs or pending entries.

    Each ledger's fold must equal the stored state.
    """
    tuning = tuning_of(lab.state(job_id).job)
    for job in (job_id, *(trial_id(job_id, trial.number) for trial in tuning.trials)):
        lab.until(lambda job=job: lab.state(job).job.state.is_terminal, 60)  # type: ignore[misc]
        lab.until(lambda job=job: not lab.store.pending_keys(job), 90)  # type: ignore[misc]
        assert lab.fleet.list_vms(job) == ()
        assert fold(lab.store.ledger(job)) == lab.state(job)
    return tuning_of(lab.state(job_id).job)


@HEAVY
@pytest.mark.timeout(300)
def test_tuning_job_stores_the_metrics_of_its_trials(lab: Lab) -> None:
    job_id = submit_tuning_job(lab)
    lab.wait(job_id, "SUCCEEDED", 200)
    tuning = wait_until_released(lab, job_id)
    assert len({trial.values for trial in tuning.trials}) == 4
    for trial in tuning.trials:
        rate, depth = (float(value) for value in trial.values)
        assert trial.measurement is not None, "the exit event contains the program's metric"
        assert trial.measurement.value == pytest.approx(depth - abs(rate - 0.5))
        assert trial.measurement.step == 3, "the last report"
    job = lab.state(job_id).job
    assert faults("ml", "GoogleCloudMlV1__Job", service_view(job), verbatim={"trainingInput"}) == []
    logging = LogEntries(
        lab.stack.state.config.project, lab.stack.environment["TRAINMASTER_LOGGING_ENDPOINT"]
    )
    entries, _ = logging.page(
        f'labels."ml.googleapis.com/job_id"="{job_id}" AND jsonPayload.message:"trial 3 of"', ""
    )
    logging.close()
    (entry,) = entries
    assert entry["labels"]["ml.googleapis.com/trial_id"] == "3"
    assert entry["jsonPayload"]["message"].endswith(
        f"trial 3 of {job_id} in gs://{lab.bucket}/scripted/3"
    )


@HEAVY
@pytest.mark.timeout(300)
def test_too_many_failed_trials_fail_the_tuning_job_and_cancel_the_rest(lab: Lab) -> None:
    depth = {"parameterName": "depth", "type": "DISCRETE", "discreteValues": [1, 2]}
    wait = {"parameterName": "seconds", "type": "DISCRETE", "discreteValues": [0, 600]}
    rate = {"parameterName": "rate", "type": "DISCRETE", "discreteValues": [0.25, 0.5]}
    job_id = submit_tuning_job(
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
    tuning = wait_until_released(lab, job_id)
    assert [trial.state for trial in tuning.trials[:4]] == [
        "FAILED",
        "FAILED",
        "CANCELLED",
        "CANCELLED",
    ]


@HEAVY
@pytest.mark.timeout(300)
def test_cancelled_tuning_job_cancels_its_trials(lab: Lab) -> None:
    job_id = submit_tuning_job(lab, "--seconds", "600")
    lab.wait(job_id, "RUNNING", 120)
    lab.cancel(job_id)
    tuning = wait_until_released(lab, job_id)
    assert [trial.state for trial in tuning.trials] == ["CANCELLED", "CANCELLED"]


@HEAVY
@pytest.mark.timeout(400)
def test_running_trial_shows_the_measurements_of_its_summary_events(lab: Lab) -> None:
    """The program writes its first event and then waits.

    The agent looks once a minute, and so does the sweep.
    """
    depth = {"parameterName": "depth", "type": "DISCRETE", "discreteValues": [2]}
    rate = {"parameterName": "rate", "type": "DISCRETE", "discreteValues": [0.5]}
    job_id = submit_tuning_job(
        lab, "--summaries", "--hang-at-depth", "2", params=[depth, rate], maxTrials=1
    )
    lab.until(lambda: any(trial.reported for trial in tuning_of(lab.state(job_id).job).trials), 300)
    (trial,) = tuning_of(lab.state(job_id).job).trials
    assert trial.state == "RUNNING"
    assert [(point.step, round(point.value, 6)) for point in trial.reported] == [(1, 0.666667)]
    lab.cancel(job_id)
    wait_until_released(lab, job_id)


@HEAVY
@pytest.mark.timeout(600)
def test_unpromising_trial_is_stopped_while_its_program_runs(lab: Lab) -> None:
    """Five trials of depth 2 complete.

    The one of depth 1 reports a lower score, and then runs for ten minutes.
    """
    depth = {"parameterName": "depth", "type": "INTEGER", "minValue": 1, "maxValue": 2}
    rate = {
        "parameterName": "rate",
        "type": "DISCRETE",
        "discreteValues": [0.3, 0.35, 0.4, 0.45, 0.5],
    }
    job_id = submit_tuning_job(
        lab,
        "--hang-at-depth",
        "1",
        params=[depth, rate],
        algorithm="GRID_SEARCH",
        maxTrials=10,
        maxParallelTrials=6,
        enableTrialEarlyStopping=True,
    )
    lab.wait(job_id, "SUCCEEDED", 500)
    tuning = wait_until_released(lab, job_id)
    assert [trial.state for trial in tuning.trials] == ["STOPPED"] * 5 + ["SUCCEEDED"] * 5
    for trial in tuning.trials[:5]:
        assert trial.measurement is not None
        assert trial.measurement.step == 1, "its last measurement counts"
        message = lab.state(trial_id(job_id, trial.number)).job.error_message or ""
        assert message.startswith(
            "Trial is stopped early by its tuning job: its best score up to step 1 is"
        )
    assert "worse than" in lab.story(job_id)
    view = service_view(lab.state(job_id).job)
    assert faults("ml", "GoogleCloudMlV1__Job", view, verbatim={"trainingInput"}) == []
