"""The lifecycle of a tuning job and its trials, through the flows and the sweep."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.support.jobs import CHIEF, a_tuning_spec
from tests.support.study import STUDY, Study
from trainmaster.core.decisions import Reason
from trainmaster.core.model.tuning import Measurement, Trial, TrialState
from trainmaster.messaging import agent_messages


def test_tuning_job_goes_from_submitted_to_succeeded_and_leaves_no_vm(study: Study) -> None:
    study.submit(a_tuning_spec())
    assert (study.state, study.replicas, study.states) == ("QUEUED", (), [])
    study.deliver()
    assert study.state == "PREPARING", "as its first trial is"
    assert study.states == ["QUEUED", "QUEUED"], "maxParallelTrials"
    assert len(study.fleet.list_all()) == 2
    study.report_ready(1)
    assert (study.state, study.states) == ("RUNNING", ["RUNNING", "QUEUED"])
    study.report_ready(2)
    study.complete_trial(2, 0.5)
    assert study.states == [
        "RUNNING",
        "SUCCEEDED",
        "QUEUED",
    ], "the end of a trial starts the next one"
    study.complete_trial(1, 0.9)
    study.report_ready(3)
    assert study.state == "RUNNING"
    study.complete_trial(3, 0.7)
    assert study.state == "SUCCEEDED"
    assert [trial.number for trial in study.tuning.best_first()] == [1, 3, 2]
    assert [trial.measurement.value for trial in study.tuning.trials if trial.measurement] == [
        0.9,
        0.5,
        0.7,
    ]
    assert study.job.ended_at == study.now
    study.sweep()
    study.deliver()
    assert study.fleet.list_all() == ()
    assert study.store.jobs_with_pending() == ()
    study.check()


def test_trial_has_its_values_as_arguments_and_its_own_directory(study: Study) -> None:
    study.start_tuning()
    job = study.trial(2).job
    program = job.plan.program
    assert program.args == ("--epochs", "5", "--layers", "1", "--width", "32")
    assert program.job_dir == "gs://bucket/digits/2"
    assert job.trial_of is not None
    assert (job.trial_of.job_id, job.trial_of.number, job.trial_of.metric_tag) == (
        STUDY,
        2,
        "accuracy",
    )
    assert job.labels == study.job.labels
    vm = study.trial(2).vm(CHIEF)
    config = json.loads(study.fleet.metadata(vm.name)["trainmaster-vm-config"])
    assert config["job_id"] == "digits_1-trial-2", "the job id in the agent's messages"
    assert config["environment"]["CLOUD_ML_JOB_ID"] == STUDY
    assert config["environment"]["CLOUD_ML_TRIAL_ID"] == "2"
    assert config["environment"]["CLOUD_ML_HP_METRIC_TAG"] == "accuracy"
    assert config["tf_config"]["task"]["trial"] == "2"
    assert config["tf_config"]["job"]["hyperparameters"]["max_trials"] == 3


HUGE = '{"value": 1, "step": 1' + 30 * "0" + "}"
"""A step that no integer of the store can hold."""


def test_max_failed_trials_fails_the_tuning_job_and_cancels_the_rest(study: Study) -> None:
    study.start_tuning(maxTrials=6, maxParallelTrials=3, maxFailedTrials=2)
    study.report_ready(1, 2, 3)
    study.fail_trial(2)
    assert study.states == ["RUNNING", "FAILED", "RUNNING", "QUEUED"]
    study.fail_trial(1)
    assert study.state == "FAILED"
    assert (
        study.job.error_message
        == "Hyperparameter Tuning Trial #1 failed. 2 total hyperparameter trial failures were seen,"
        " out of 4 trials attempted which reaches the user-specified limit of 2.The last trial"
        " to fail was #1, with parameters: layers=1, width=16, .  The trial's error message was:"
        " The replica chief 0 could not install its packages (status 1). \nno such package"
    )
    assert study.states == ["FAILED", "FAILED", "CANCELLED", "CANCELLED"]
    study.check()


def test_without_max_failed_trials_only_a_failure_before_any_success_fails_the_job(
    study: Study,
) -> None:
    study.start_tuning(maxTrials=4, maxParallelTrials=2)
    study.report_ready(1, 2)
    study.complete_trial(1, 0.1)
    for number in (2, 3, 4):
        study.report_ready(number)
        study.fail_trial(number)
    assert study.states == ["SUCCEEDED", "FAILED", "FAILED", "FAILED"]
    assert study.state == "SUCCEEDED"
    other = Study()
    other.start_tuning()
    other.report_ready(1, 2)
    other.fail_trial(2)
    assert other.state == "FAILED"
    assert (other.job.error_message or "").startswith(
        "Hyperparameter Tuning Trial #2 failed before any other"
    )
    assert other.states == ["CANCELLED", "FAILED"]


def test_trial_without_a_metric_succeeds_and_the_ledger_names_the_metric(study: Study) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    study.complete_trial(1)
    assert study.state == "SUCCEEDED"
    ended = next(entry for entry in study.ledger if entry.key == "trial-1-ended")
    assert ended.decision.reason is Reason.TRIAL_WITHOUT_METRIC
    assert "did not report accuracy" in ended.decision.text


def test_metric_of_an_earlier_incarnation_is_kept_if_the_last_one_reports_none(
    study: Study,
) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    study.send_from_trial(
        1, "replica-exit", cause="process", exit_status=1, metric={"value": 0.25, "step": 7}
    )
    study.deliver()
    study.report_ready(1)
    study.complete_trial(1)
    measurement = study.tuning.trials[0].measurement
    assert measurement is not None
    assert (measurement.value, measurement.step) == (0.25, 7)
    study.check()


@pytest.mark.parametrize(
    "metric", ['{"value": NaN}', '{"value": "high"}', '{"value": 1e999}', "17", '{"step": 1}', HUGE]
)
def test_invalid_metric_is_ignored_and_the_exit_is_decoded(study: Study, metric: str) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    message = json.dumps(
        {
            **study.trial(1).message_fields(CHIEF),
            "cause": "process",
            "exit_status": 0,
            "metric": "METRIC",
        }
    )
    assert (
        agent_messages.decode_replica_exit(message.replace('"METRIC"', metric).encode()).measurement
        is None
    )


def test_tuning_job_succeeds_when_its_finite_search_space_is_exhausted(study: Study) -> None:
    study.start_tuning(maxTrials=100, maxParallelTrials=10)
    combinations = 3 * 2  # of layers and widths
    assert len(study.tuning.trials) == combinations
    for number in range(1, combinations + 1):
        study.report_ready(number)
        study.complete_trial(number, 0.5)
    assert study.state == "SUCCEEDED"


def test_trials_are_admitted_like_jobs_and_the_tuning_job_uses_no_capacity(study: Study) -> None:
    study.limits = {"vcpus": 4}
    study.start_tuning(maxTrials=2)
    assert [study.trial(number).state for number in (1, 2)] == ["PREPARING", "QUEUED"]
    study.report_ready(1)
    study.complete_trial(1, 0.5)
    study.sweep()
    study.deliver()
    assert study.trial(2).state == "PREPARING"


def test_many_parallel_trials_are_started_over_several_rounds(study: Study) -> None:
    params = [{"parameterName": "n", "type": "INTEGER", "minValue": 1, "maxValue": 500}]
    study.start_tuning(params=params, maxTrials=50, maxParallelTrials=50)
    assert len(study.tuning.trials) == 50
    assert len(study.fleet.list_all()) == 50


def test_tuning_job_counts_once_in_the_number_of_created_jobs(study: Study) -> None:
    study.start_tuning()
    assert study.store.count_created_since(study.now - timedelta(minutes=1), through_api=False) == 1


def test_ended_trial_is_recorded_with_its_times_and_measurement(study: Study) -> None:
    study.start_tuning(maxTrials=1)
    study.report_ready(1)
    study.complete_trial(1, 0.5)
    assert study.tuning.trials == (
        Trial(
            number=1,
            values=("1", "16"),
            state=TrialState.SUCCEEDED,
            started_at=study.trial(1).job.started_at,
            ended_at=study.trial(1).job.ended_at,
            measurement=Measurement(value=0.5, step=100),
        ),
    )
