"""Rule 13: when trials begin, what became of them, and how the tuning job ends.

In the letters of `a_tuning_job`, each is a trial: q is queued, r runs, s succeeded, f failed, c was
cancelled. The job has at most 4 trials, 2 at once. A decision is written as its rule, action and
reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.decisions import action_of, check_case
from tests.support.jobs import a_job, at
from tests.support.tuning_jobs import LAYERS, RATE, a_tuning_job
from trainmaster.core.actions import FailJob
from trainmaster.core.events import (
    AllReady,
    CancelRequested,
    Event,
    ProvisioningStarted,
    TrialEnded,
    TrialStarted,
    TrialSuggested,
    TuningEnded,
)
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.search_space import Parameter, ParameterKind
from trainmaster.core.model.tuning import EarlierTrial, Measurement, Trial, TrialState, Tuning
from trainmaster.core.rules.admission_queue import queued_jobs
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.tuning import planned_trials, trials_to_begin

NOW = at(100)
ENDED = TuningEnded("digits_1", NOW)
STARTED = TrialStarted("digits_1", 1, at(20), NOW)


def suggested(number: int) -> TrialSuggested:
    return TrialSuggested("digits_1", number, ("0.01", "2"), NOW)


def trial_ended(
    number: int, state: TrialState, value: float | None = None, error: str = ""
) -> TrialEnded:
    measurement = None if value is None else Measurement(value, 100)
    return TrialEnded("digits_1", number, state, at(60), NOW, measurement, error)


FIRST_CANCELLED = trial_ended(1, TrialState.CANCELLED)
FIRST_FAILED = trial_ended(1, TrialState.FAILED, error="why")
BEGINS = "13 begin_trial trial_suggested"
IGNORED = "1 ignore nothing_to_do"
NOT_YET = "1 ignore provisional"
FAILS = "13 fail_job too_many_trials_failed"
NONE_SUCCEEDED = "13 fail_job no_trial_succeeded"
TRIAL_CANCELLED = "13 end_trial trial_cancelled"

CASES: Final[dict[str, tuple[Job, Event, str]]] = {
    "first trial": (a_tuning_job(state=JobState.QUEUED), suggested(1), BEGINS),
    "next trial after one ended": (a_tuning_job("sr"), suggested(3), BEGINS),
    "trial that has begun": (a_tuning_job("s"), suggested(1), IGNORED),
    "trial number that is not the next": (a_tuning_job("s"), suggested(3), IGNORED),
    "trial beyond maxParallelTrials": (a_tuning_job("rq"), suggested(3), IGNORED),
    "trial beyond maxTrials": (a_tuning_job("ssss"), suggested(5), IGNORED),
    "trial of a job that is about to fail": (a_tuning_job("f"), suggested(2), IGNORED),
    "trial of a job that has ended": (
        a_tuning_job("s", JobState.CANCELLED),
        suggested(2),
        "1 ignore nothing_to_do",
    ),
    "queued trial runs": (a_tuning_job("q"), STARTED, "0 mark_trial_running trial_running"),
    "running trial runs": (a_tuning_job("r"), STARTED, IGNORED),
    "ended trial runs": (a_tuning_job("s"), STARTED, IGNORED),
    "trial succeeds": (
        a_tuning_job("r"),
        trial_ended(1, TrialState.SUCCEEDED, value=0.5),
        "13 end_trial trial_succeeded",
    ),
    "trial succeeds without a metric": (
        a_tuning_job("r"),
        trial_ended(1, TrialState.SUCCEEDED),
        "13 end_trial trial_without_metric",
    ),
    "trial fails": (a_tuning_job("r"), FIRST_FAILED, "13 end_trial trial_failed"),
    "trial is cancelled": (a_tuning_job("q"), FIRST_CANCELLED, TRIAL_CANCELLED),
    "trial ends after its tuning job": (
        a_tuning_job("r", JobState.CANCELLED),
        FIRST_CANCELLED,
        TRIAL_CANCELLED,
    ),
    "trial ends again": (a_tuning_job("s"), FIRST_FAILED, IGNORED),
    "unknown trial ends": (a_tuning_job("r"), trial_ended(2, TrialState.FAILED), IGNORED),
    "all trials ended": (a_tuning_job("sfsc"), ENDED, "13 complete_tuning trials_done"),
    "one trial still runs": (a_tuning_job("sfsr"), ENDED, NOT_YET),
    "one trial is still to begin": (a_tuning_job("sfs"), ENDED, NOT_YET),
    "one failed before any other succeeded": (a_tuning_job("rf"), ENDED, FAILS),
    "one failed after another succeeded": (a_tuning_job("sfr"), ENDED, NOT_YET),
    "fewer failed than maxFailedTrials": (a_tuning_job("fr", max_failed=2), ENDED, NOT_YET),
    "maxFailedTrials failed": (a_tuning_job("fsf", max_failed=2), ENDED, FAILS),
    "all failed, fewer than maxFailedTrials": (
        a_tuning_job("ffff", max_failed=9),
        ENDED,
        NONE_SUCCEEDED,
    ),
    "all were cancelled": (a_tuning_job("cccc"), ENDED, NONE_SUCCEEDED),
    "first trial is provisioned": (
        a_tuning_job("q", JobState.QUEUED),
        ProvisioningStarted("digits_1", NOW),
        "0 begin_preparing preparing",
    ),
    "first trial is ready": (
        a_tuning_job("q", JobState.PREPARING),
        AllReady("digits_1", 1, NOW),
        "0 begin_running all_ready",
    ),
    "tuning job is cancelled": (
        a_tuning_job("r"),
        CancelRequested("digits_1", "me", NOW),
        "12 cancel_job cancelled_by_user",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_judge_decides_about_a_tuning_job(case: tuple[Job, Event, str]) -> None:
    job, event, expected = case
    check_case((State(job, replicas=(), whole=True), event, expected), NOW)


@pytest.mark.parametrize(
    ("letters", "count"),
    [
        ("", 2),
        ("q", 1),
        ("qr", 0),
        ("s", 2),
        ("sss", 1),
        ("sssr", 0),
        ("f", 0),
        ("sf", 2),
        ("ssss", 0),
    ],
)
def test_trials_to_begin_follow_from_the_trials_so_far(letters: str, count: int) -> None:
    """None begins after a failure without a success before: such a job is about to fail."""
    assert trials_to_begin(a_tuning_job(letters)) == count


def test_no_trials_begin_in_a_job_that_has_ended() -> None:
    assert trials_to_begin(a_tuning_job(letters="", state=JobState.CANCELLED)) == 0


def test_planned_trials_are_limited_by_the_values_left_in_a_finite_space() -> None:
    optimizer = Parameter("optimizer", ParameterKind.CATEGORICAL, choices=("adam", "sgd"))
    finite = Tuning((LAYERS, optimizer), max_trials=100)
    assert (finite.size, planned_trials(finite)) == (6, 6)
    earlier = (
        EarlierTrial(("1", "adam"), 0.5),
        EarlierTrial(("1", "adam"), 0.6),
        EarlierTrial(("3", "sgd"), 0.1),
    )
    assert planned_trials(replace(finite, earlier=earlier)) == 4
    assert planned_trials(replace(finite, max_trials=5)) == 5
    assert planned_trials(Tuning((LAYERS, RATE), max_trials=100)) == 100


def error_message(job: Job) -> str:
    """Return the message with which the tuning job fails."""
    return action_of(judge(State(job, replicas=(), whole=True), ENDED, NOW), FailJob).message


def test_message_of_too_many_failed_trials_is_the_services() -> None:
    """The message is that of a user's quotation, without a space after the limit."""
    names = ("weight-decay", "lr", "optimizer")
    tuning = Tuning(
        tuple(Parameter(name, ParameterKind.CATEGORICAL, choices=("a",)) for name in names),
        max_trials=10,
        max_failed=5,
        trials=tuple(
            Trial(
                number,
                ("0.1", "0.01", "Adam"),
                TrialState.FAILED if number <= 5 else TrialState.SUCCEEDED,
                at(number),
                at(60 + number),
            )
            for number in range(1, 8)
        ),
        last_error="The replica master 0 exited with a non-zero status of 1.",
    )
    assert (
        error_message(a_job(tuning=tuning))
        == "Hyperparameter Tuning Trial #5 failed. 5 total hyperparameter trial failures were seen,"
        " out of 7 trials attempted which reaches the user-specified limit of 5.The last trial"
        " to fail was #5, with parameters: weight-decay=0.1, lr=0.01, optimizer=Adam, .  The"
        " trial's error message was: The replica master 0 exited with a non-zero status of 1."
    )


def test_message_names_the_last_failed_trial_in_any_order_of_the_reports() -> None:
    state = State(a_tuning_job("rr", max_failed=2), replicas=(), whole=True)
    for number, seconds in ((2, 70), (1, 60)):
        failed = TrialEnded(
            "digits_1", number, TrialState.FAILED, at(seconds), NOW, None, f"error of {number}"
        )
        state = apply(state, evolve(state, judge(state, failed, NOW), NOW))
    message = error_message(state.job)
    assert "The last trial to fail was #2" in message
    assert message.endswith("error of 2")


def test_message_names_the_trial_that_ended_last_as_the_last_to_fail() -> None:
    job = a_tuning_job("ff", max_failed=2)
    assert job.tuning is not None
    late = replace(job.tuning.trials[0], ended_at=at(99))
    changed = replace(job, tuning=replace(job.tuning, trials=(late, job.tuning.trials[1])))
    assert "The last trial to fail was #1" in error_message(changed)


def test_message_of_a_first_failed_trial_names_the_trial_its_values_and_its_error() -> None:
    message = error_message(a_tuning_job("rf"))
    assert message.startswith(
        "Hyperparameter Tuning Trial #2 failed before any other trial succeeded"
    )
    assert message.endswith(
        "learning-rate=0.002, layers=2, .  The trial's error message was: out of luck"
    )


def test_message_without_a_successful_trial_names_the_last_failed_one_if_any() -> None:
    failed = error_message(a_tuning_job("ffff", max_failed=9))
    assert "out of 4 trials attempted. The last trial to fail was #4" in failed
    assert error_message(a_tuning_job("cccc")).endswith("out of 4 trials attempted.")


def test_tuning_job_needs_no_resources_and_does_not_wait_for_any() -> None:
    waiting = a_job(JobState.QUEUED, job_id="other", created_at=at(5))
    assert queued_jobs([a_tuning_job("r"), waiting], {"vcpus": 12}) == ()
    assert queued_jobs([a_tuning_job(state=JobState.QUEUED)], {"vcpus": 1}) == ()
