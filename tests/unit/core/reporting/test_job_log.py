"""The service's lines in a tuning job's log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import a_job, a_plan, at
from tests.support.tuning_jobs import a_tuning_job
from trainmaster.core.actions import AcceptJob, Budget, RestartReplica
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import Event, JobSubmitted, TrialEnded, TrialSuggested, TuningEnded
from trainmaster.core.ledger import LedgerEntry, counters
from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.origin import Substitution
from trainmaster.core.model.tuning import Measurement, TrialState
from trainmaster.core.reporting.job_log import Severity, service_lines
from trainmaster.core.rules.judge import judge

NOW = at(100)
"""100 s after the submission, at 03:01:40."""
BEGINS = TrialSuggested("digits_1", 2, ("0.01", "2"), NOW)
SUCCEEDS = TrialEnded(
    "digits_1", 1, TrialState.SUCCEEDED, at(60), NOW, Measurement(value=0.5, step=100)
)
WITHOUT_METRIC = TrialEnded("digits_1", 1, TrialState.SUCCEEDED, at(60), NOW)
FAILS = TrialEnded(
    "digits_1", 1, TrialState.FAILED, at(60), NOW, error="The replica exited. \nTraceback"
)


def an_entry(job: Job, event: Event) -> LedgerEntry:
    """Return the ledger entry with the event, as the rules judge it."""
    state = State(job, replicas=(), whole=True)
    return LedgerEntry(
        job.job_id,
        event.key,
        NOW,
        event,
        judge(state, event, NOW),
        counters(state, None),
        counters(state, None),
        job_state=job.state,
    )


@pytest.mark.parametrize(
    ("event", "severity", "message"),
    [
        pytest.param(
            BEGINS, Severity.INFO, "Trial 2 begins: --learning-rate 0.01 --layers 2.", id="begins"
        ),
        pytest.param(
            SUCCEEDS,
            Severity.INFO,
            "Trial 1 succeeded with training/hptuning/metric 0.5 at step 100.",
            id="succeeds",
        ),
        pytest.param(
            WITHOUT_METRIC,
            Severity.WARNING,
            (
                "Trial 1 succeeded, but its program did not report training/hptuning/metric: its"
                " values are ignored."
            ),
            id="succeeds without a metric",
        ),
        pytest.param(FAILS, Severity.WARNING, "Trial 1 failed: The replica exited.", id="fails"),
    ],
)
def test_each_change_of_a_trial_is_one_line(event: Event, severity: Severity, message: str) -> None:
    with_a_running_trial = a_tuning_job("r")
    (line,) = service_lines(an_entry(with_a_running_trial, event))
    assert (line.severity, line.message) == (severity, message)


def test_substitutions_are_warnings_before_the_job_is_queued() -> None:
    old = Substitution(
        "trainingInput.runtimeVersion", "1.15", "2.21", "the service ended this version"
    )
    unseen = Substitution(
        "trainingInput.masterConfig.imageUri", "a/b:1", "a/b:1", "It was not checked."
    )
    job = a_job(JobState.QUEUED, plan=a_plan(substitutions=(old, unseen)))
    decision = Decision(Rule.LIFECYCLE, Reason.ACCEPTED, "accepted", AcceptJob(job))
    event = JobSubmitted(job, NOW)
    empty = counters(State(job, replicas=(), whole=True), None)
    entry = LedgerEntry(
        job.job_id, event.key, NOW, event, decision, empty, empty, job_state=job.state
    )
    lines = service_lines(entry)
    assert [line.message for line in lines if line.severity is Severity.WARNING] == [
        "trainingInput.runtimeVersion: 1.15 is replaced by 2.21 (the service ended this version).",
        "trainingInput.masterConfig.imageUri: a/b:1 (It was not checked).",
    ]
    assert lines[-2].message.endswith("is queued.")


def test_end_of_a_tuning_job_names_its_best_trial_before_the_lines_of_every_job() -> None:
    """Four trials have succeeded (s); trial 4 has the metric 0.4."""
    lines = service_lines(an_entry(a_tuning_job("ssss"), TuningEnded("digits_1", NOW)))
    best = "the best is trial 4 with training/hptuning/metric 0.4 at step 100"
    assert [line.message for line in lines] == [
        f"All trials have ended, and 4 of 4 succeeded; {best}.",
        "Tearing down training program.",
        "Job completed successfully.",
    ]


def test_second_failure_in_a_row_has_a_line_of_its_own() -> None:
    lines = []
    for failures in (1, 2, 3):
        row = FailureRow(
            failures,
            "ValueError: bad (a.py:1)",
            signature="",
            since=at(0),
            at=at(60),
            failures_left=4,
        )
        action = RestartReplica("1-worker-0", Budget.RESTARTS, failing=row)
        decision = Decision(Rule.RESTART, Reason.NON_ZERO_EXIT, f"failure {failures}", action)
        entry = replace(an_entry(a_tuning_job(), SUCCEEDS), decision=decision)
        lines += [(line.severity, line.message) for line in service_lines(entry)]
    announcement = (
        "The job is failing: 2 in a row, last ValueError: bad (a.py:1). The job is FAILED after at"
        " most 4 more failures."
    )
    assert lines == [
        (Severity.WARNING, "failure 1"),
        (Severity.WARNING, "failure 2"),
        (Severity.WARNING, announcement),
        (Severity.WARNING, "failure 3"),
    ]
