"""Rule 13 for running trials: which are read, what is recorded, and how they are stopped early.

In the letters of `a_tuning_job`, each is a trial: q is queued, r runs, s succeeded, f failed, c was
cancelled.

Decisions are written as the number of the rule, the action and the reason:
`1 ignore nothing_to_do`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import pytest

from tests.support.decisions import action_of, check_case
from tests.support.jobs import START, a_job, at
from tests.support.tuning_jobs import LAYERS, RATE, a_tuning_job
from trainmaster.core.actions import CancelJob, RecordMeasurements
from trainmaster.core.events import (
    Event,
    StopRequested,
    TrialEnded,
    TrialsMeasured,
    TrialUnpromising,
)
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.learning_curve import TrialReport
from trainmaster.core.model.tuning import Measurement, Point, Trial, TrialOf, TrialState, Tuning
from trainmaster.core.rules.early_stopping import TRIALS_READ_MAX, trials_to_measure
from trainmaster.core.rules.judge import judge

NOW = at(100)
COMPARISON = (
    "its best accuracy up to step 5 is 0.1, worse than 0.6, the median of the means of 5 completed"
    " trials"
)
UNPROMISING = TrialUnpromising("digits_1", 1, COMPARISON, NOW)
STOPPED = TrialEnded("digits_1", 1, TrialState.STOPPED, at(60), NOW, Measurement(value=0.1, step=5))
IGNORED = "1 ignore nothing_to_do"


def measured(*, round_number: int = 1, **values: float) -> TrialsMeasured:
    """Return an event in which each trial, such as `t1`, reports one value at step 5."""
    reports = tuple(
        TrialReport(int(name[1:]), (Measurement(value, 5),)) for name, value in values.items()
    )
    return TrialsMeasured("digits_1", round_number, reports, NOW)


def stopping(job: Job) -> Job:
    """Return the tuning job after its first trial was found unpromising."""
    state = State(job, replicas=(), whole=True)
    return apply(state, evolve(state, judge(state, UNPROMISING, NOW), NOW)).job


CASES: Final[dict[str, tuple[Job, Event, str]]] = {
    "running trial reports": (
        a_tuning_job("r"),
        measured(t1=0.5),
        "13 record_measurements trials_measured",
    ),
    "two deliveries read at once": (
        a_tuning_job("r", rounds_measured=1),
        measured(t1=0.5),
        IGNORED,
    ),
    "trial that has ended reports": (a_tuning_job("s"), measured(t1=0.5), IGNORED),
    "unknown trial reports": (a_tuning_job("r"), measured(t3=0.5), IGNORED),
    "running trial is unpromising": (
        a_tuning_job("r"),
        UNPROMISING,
        "13 stop_trial trial_unpromising",
    ),
    "ended trial is unpromising": (a_tuning_job("s"), UNPROMISING, IGNORED),
    "queued trial is unpromising": (a_tuning_job("q"), UNPROMISING, IGNORED),
    "unpromising trial again": (stopping(a_tuning_job("r")), UNPROMISING, IGNORED),
    "tuning job has ended": (
        a_tuning_job("r", JobState.CANCELLED),
        UNPROMISING,
        "1 ignore nothing_to_do",
    ),
    "stopped trial ends": (stopping(a_tuning_job("r")), STOPPED, "13 end_trial trial_stopped"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_judge_decides_about_running_trials(case: tuple[Job, Event, str]) -> None:
    job, event, expected = case
    check_case((State(job, replicas=(), whole=True), event, expected), NOW)


def test_report_that_changes_nothing_is_not_recorded_again() -> None:
    state = State(a_tuning_job("rr"), replicas=(), whole=True)
    state = apply(
        state, evolve(state, judge(state, measured(round_number=1, t1=0.5, t2=0.6), NOW), NOW)
    )
    decision = judge(state, measured(round_number=2, t1=0.5, t2=0.7), NOW)
    assert [report.number for report in action_of(decision, RecordMeasurements).reports] == [2]
    assert decision.text == "Running trials report training/hptuning/metric: trial 2 0.7 at step 5."


def test_text_of_many_reports_names_some_of_them() -> None:
    values = {f"t{number}": number / 10 for number in range(1, 9)}
    decision = judge(
        State(a_tuning_job("r" * 8, max_trials=8), replicas=(), whole=True),
        measured(round_number=1, **values),
        NOW,
    )
    assert "trial 5 0.5 at step 5 and 3 more." in decision.text
    assert "trial 6" not in decision.text


def test_stopped_trial_counts_as_completed_with_its_last_measurement() -> None:
    state = State(stopping(a_tuning_job("rs", max_trials=2)), replicas=(), whole=True)
    job = apply(state, evolve(state, judge(state, STOPPED, NOW), NOW)).job
    assert job.tuning is not None
    stopped, succeeded = job.tuning.completed
    assert (stopped.state, stopped.measurement) == ("STOPPED", Measurement(value=0.1, step=5))
    assert succeeded.state == "SUCCEEDED"


def test_stop_ends_the_trials_own_job_with_the_comparison_as_its_message() -> None:
    job = a_job(JobState.RUNNING, trial_of=TrialOf("digits_1", 1, "accuracy"))
    decision = judge(
        State(job, replicas=(), whole=True), StopRequested(job.job_id, COMPARISON, NOW), NOW
    )
    assert (
        action_of(decision, CancelJob).message
        == f"Trial is stopped early by its tuning job: {COMPARISON}."
    )


def running_since(age: timedelta, count: int = 1) -> Tuning:
    trials = tuple(
        Trial(number, ("0.1", "1"), TrialState.RUNNING, START - age)
        for number in range(1, count + 1)
    )
    return Tuning((RATE, LAYERS), trials=trials, max_trials=count)


def minutes(count: int) -> list[datetime]:
    return [START + timedelta(minutes=minute) for minute in range(count)]


@pytest.mark.parametrize(
    ("age", "readings"),
    [
        pytest.param(timedelta(), 60, id="new"),
        pytest.param(timedelta(hours=5), 12, id="five hours old"),
        pytest.param(timedelta(days=1, hours=6), 2, id="thirty hours old"),
    ],
)
def test_older_trials_are_read_less_often(age: timedelta, readings: int) -> None:
    tuning = running_since(age)
    assert sum(bool(trials_to_measure(tuning, now)) for now in minutes(60)) == readings


def test_many_trials_are_read_in_turn() -> None:
    tuning = running_since(timedelta(), 1000)
    read = [trials_to_measure(tuning, now) for now in minutes(5)]
    assert all(len(trials) <= TRIALS_READ_MAX for trials in read)
    assert {trial.number for trials in read for trial in trials} == set(range(1, 1001))


def test_trials_that_do_not_run_are_not_read() -> None:
    job = a_tuning_job("qsfcr")
    assert job.tuning is not None
    running = replace(job.tuning, trials=job.tuning.trials)
    assert [trial.number for trial in trials_to_measure(running, NOW)] == [5]


def test_exit_of_a_short_trial_completes_its_curve() -> None:
    """No reconciliation has read the trial's measurements while it ran."""
    state = State(a_tuning_job("rr", max_trials=4), replicas=(), whole=True)
    final = Measurement(
        value=0.3, step=30, earlier=(Point(value=0.1, step=10), Point(value=0.2, step=20))
    )
    ended = TrialEnded("digits_1", 1, TrialState.SUCCEEDED, at(60), NOW, final)
    job = apply(state, evolve(state, judge(state, ended, NOW), NOW)).job
    assert job.tuning is not None
    trial = job.tuning.trials[0]
    assert trial.measurement == Measurement(value=0.3, step=30)
    assert [point.step for point in trial.reported] == [10, 20, 30]
    assert not any(point.earlier for point in trial.reported)
