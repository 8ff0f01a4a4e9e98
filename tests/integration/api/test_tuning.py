"""Tuning jobs in the API of AI Platform."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.client import CUSTOM_JOBS, JOBS, Api
from tests.support.jobs import a_tuning_spec
from tests.support.study import STUDY, Study


@pytest.fixture
def world() -> Study:
    return Study()


def create(api: Api, **hyperparameters: Any) -> dict[str, Any]:
    return api.send_ok("POST", JOBS, {"jobId": STUDY, **a_tuning_spec(**hyperparameters)})


def test_tuning_job_is_shown_with_its_trials_best_first(api: Api, world: Study) -> None:
    created = create(api)
    submitted = a_tuning_spec()["trainingInput"]["hyperparameters"]  # type: ignore[index]
    assert created["trainingInput"]["hyperparameters"] == submitted
    assert created["trainingOutput"] == {
        "completedTrialCount": "0",
        "isHyperparameterTuningJob": True,
        "hyperparameterMetricTag": "accuracy",
    }
    world.deliver()
    world.report_ready(1, 2)
    running = api.get()
    assert running["state"] == "RUNNING"
    assert [trial["state"] for trial in running["trainingOutput"]["trials"]] == [
        "RUNNING",
        "RUNNING",
    ]
    assert "finalMetric" not in running["trainingOutput"]["trials"][0]
    world.wait(1800)
    world.complete_trial(1, 0.25)
    world.complete_trial(2, 0.9)
    world.report_ready(3)
    world.wait(3600)
    world.complete_trial(3, 0.5)
    ended = api.get()
    assert ended["state"] == "SUCCEEDED"
    output = ended["trainingOutput"]
    assert output["completedTrialCount"] == "3"
    assert [trial["trialId"] for trial in output["trials"]] == ["2", "3", "1"]
    best = output["trials"][0]
    assert best == {
        "trialId": "2",
        "hyperparameters": {"layers": "1", "width": "32"},
        "state": "SUCCEEDED",
        "startTime": best["startTime"],
        "endTime": best["endTime"],
        "finalMetric": {"trainingStep": "100", "objectiveValue": 0.9},
    }
    hours_of_all_trials = 0.5 + 0.5 + 1
    machine_usd_per_hour, ml_unit_usd_per_hour = 0.19, 0.49  # the service's former prices
    ml_units = hours_of_all_trials * machine_usd_per_hour / ml_unit_usd_per_hour
    assert output["consumedMLUnits"] == pytest.approx(ml_units, abs=0.01)


def test_running_trial_has_its_metrics_and_one_stopped_early_is_marked(
    api: Api, world: Study
) -> None:
    create(api, enableTrialEarlyStopping=True)
    world.deliver()
    world.report_ready(1, 2)
    world.write_metric(1, 0.25, -0.5)
    world.write_metric(2, 0.75)
    world.wait(60)
    world.sweep()
    world.deliver()
    stopped, running, _ = api.get()["trainingOutput"]["trials"]
    assert (stopped["state"], stopped["isTrialStoppedEarly"]) == ("SUCCEEDED", True)
    assert stopped["finalMetric"] == {"trainingStep": "200", "objectiveValue": -0.5}
    assert stopped["allMetrics"] == [
        {"trainingStep": "100", "objectiveValue": 0.25},
        {"trainingStep": "200", "objectiveValue": -0.5},
    ]
    assert (running["state"], running["allMetrics"]) == (
        "RUNNING",
        [{"trainingStep": "100", "objectiveValue": 0.75}],
    )
    assert not {"finalMetric", "isTrialStoppedEarly"} & set(running)


def test_trials_are_sorted_ascending_for_goal_minimize(api: Api, world: Study) -> None:
    create(api, goal="MINIMIZE", maxTrials=2)
    world.deliver()
    for number, value in ((1, 0.5), (2, 0.1)):
        world.report_ready(number)
        world.complete_trial(number, value)
    assert [trial["trialId"] for trial in api.get()["trainingOutput"]["trials"]] == ["2", "1"]


def test_trial_is_shown_only_with_its_tuning_job(api: Api, world: Study) -> None:
    create(api)
    world.deliver()
    assert [job["jobId"] for job in api.list()["jobs"]] == [STUDY]
    assert api.send_refused("GET", f"{JOBS}/{STUDY}-trial-1")["code"] == 404
    assert api.send_refused("POST", f"{JOBS}/{STUDY}-trial-1:cancel", {})["code"] == 404
    assert (
        api.send_refused("POST", JOBS, {"jobId": "mine-trial-1", **a_tuning_spec()})["code"] == 400
    )
    assert api.send_ok("GET", CUSTOM_JOBS, schema="ListCustomJobsResponse") == {}


def test_list_pages_skip_trials_between_jobs(api: Api, world: Study) -> None:
    api.create("older")
    world.wait(1)
    create(api)
    world.wait(1)
    world.deliver()
    first = api.list(pageSize="1")
    assert [job["jobId"] for job in first["jobs"]] == [STUDY]
    second = api.list(pageSize="1", pageToken=first["nextPageToken"])
    assert [job["jobId"] for job in second["jobs"]] == ["older"]


def test_cancel_of_tuning_job_ends_its_trials(api: Api, world: Study) -> None:
    create(api)
    world.deliver()
    api.cancel()
    world.deliver()
    answered = api.get()
    assert (answered["state"], answered["errorMessage"]) == (
        "CANCELLED",
        "Job is cancelled by the user",
    )
    assert [trial["state"] for trial in answered["trainingOutput"]["trials"]] == [
        "CANCELLED",
        "CANCELLED",
    ]
    world.sweep()
    world.deliver()
    assert world.fleet.list_all() == ()


def test_wrong_hyperparameters_are_refused_with_every_field(api: Api) -> None:
    params = [
        {"parameterName": "a", "type": "DOUBLE", "minValue": 2, "maxValue": 1},
        {"type": "INTEGER"},
    ]
    error = api.send_refused(
        "POST", JOBS, {"jobId": STUDY, **a_tuning_spec(params=params, maxTrials=2000)}
    )
    fields = {violation["field"] for violation in error["details"][0]["fieldViolations"]}
    spec = "training_input.hyperparameters"
    assert fields == {
        f"{spec}.max_trials",
        f"{spec}.params[0].max_value",
        f"{spec}.params[1].parameter_name",
        f"{spec}.params[1].min_value",
        f"{spec}.params[1].max_value",
    }


def test_tuning_job_that_cannot_be_resumed_is_refused_and_not_stored(
    api: Api, world: Study
) -> None:
    error = api.send_refused(
        "POST", JOBS, {"jobId": STUDY, **a_tuning_spec(resumePreviousJobId="unknown")}
    )
    assert error["code"] == 400
    assert "which is not a tuning job" in error["message"]
    assert world.store.load(STUDY) is None
