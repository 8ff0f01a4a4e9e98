"""The trials of a tuning job, as the client returns them from the answers of both APIs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.client import JOBS, TUNING_JOBS, Api
from tests.integration.api.conftest import access, api
from tests.integration.api.test_tuning_jobs import a_body
from tests.support.jobs import a_tuning_spec
from tests.support.study import STUDY, Study
from trainmaster import Trial
from trainmaster.client.job import Job, job_of
from trainmaster.core.model.tuning import TrialState

__all__ = ["access", "api"]


@pytest.fixture
def world() -> Study:
    return Study()


def run_trials(world: Study) -> None:
    """Run two trials, of which one reports the metric 0.5."""
    world.deliver()
    world.report_ready(1, 2)
    world.complete_trial(1, 0.5)
    world.fail_trial(2)


def by_number(job: Job) -> dict[int, Trial]:
    return {trial.number: trial for trial in job.trials}


def test_trials_of_ai_platform_have_values_metric_and_state(api: Api, world: Study) -> None:
    api.send_ok("POST", JOBS, {"jobId": STUDY, **a_tuning_spec()})
    run_trials(world)
    job = job_of(api.get())
    trials = by_number(job)
    assert (job.address, job.state) == (f"jobs/{STUDY}", "RUNNING")
    assert (trials[1].metric, trials[1].state) == (0.5, TrialState.SUCCEEDED)
    assert (trials[2].metric, trials[2].state) == (None, TrialState.FAILED)
    assert trials[1].parameters


def test_trials_of_vertex_ai_have_values_metric_and_state(api: Api, world: Study) -> None:
    created: dict[str, Any] = api.send_ok(
        "POST", TUNING_JOBS, a_body(), schema="HyperparameterTuningJob"
    )
    world.job_id = f"custom_{created['name'].rpartition('/')[2]}"
    run_trials(world)
    shown = api.send_ok("GET", f"/v1/{created['name']}", schema="HyperparameterTuningJob")
    trials = by_number(job_of(shown))
    assert (trials[1].metric, trials[2].metric) == (0.5, None)
    assert set(trials[1].parameters) == {"layers", "optimizer"}
