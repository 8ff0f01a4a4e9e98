"""Rule 13, trials of a tuning job that run: their measurements, and those that are stopped early.

A trial is a job of its own, and reports the metric that the tuning job optimizes. Measurements are
read from the VMs every minute; the optimizer compares them with those of completed trials.

    measurements of running trials ──► TrialsMeasured ──► Trial.reported
    the optimizer gives a trial up ──► TrialUnpromising ──► STOPPING
                                   ──► StopRequested, to its own job ──► STOPPED

A trial that ends by itself before its job is stopped ends as it would have ended anyway.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil
from typing import Final

from trainmaster.core.actions import CancelJob, RecordMeasurements, StopTrial
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import StopRequested, TrialsMeasured, TrialUnpromising
from trainmaster.core.model.job import State, tuning_of
from trainmaster.core.model.learning_curve import TrialReport, curve_after
from trainmaster.core.model.tuning import Trial, TrialState, Tuning
from trainmaster.core.rules import messages

AGES_PER_INTERVAL: Final = 60
"""The measurements of a trial are read every minute, or at intervals of 1/60 of the trial's age if
that is longer. A trial of a week thus causes a few hundred ledger entries, not ten thousand.
"""
TRIALS_READ_MAX: Final = 200
"""Trials whose measurements one reconciliation reads, each with a call of its own: a seventh of
what Compute Engine's default limit of 1,500 reads per minute allows. More trials are read in turn.
"""
REPORTS_IN_TEXT: Final = 5
"""Trials that the text of one decision names."""


def trials_to_measure(tuning: Tuning, now: datetime) -> tuple[Trial, ...]:
    """Return the running trials whose measurements this minute's reconciliation reads."""
    due = [
        trial
        for trial in tuning.trials
        if trial.state is TrialState.RUNNING and _is_due(trial, now)
    ]
    if not due:
        return ()
    parts = ceil(len(due) / TRIALS_READ_MAX)
    return tuple(due[_minute(now) % parts :: parts])


def new_measurements(tuning: Tuning, reports: tuple[TrialReport, ...]) -> tuple[TrialReport, ...]:
    """Return the reports that change what is stored."""
    trials = {trial.number: trial for trial in tuning.trials}
    new = []
    for report in reports:
        trial = trials.get(report.number)
        if trial is None:
            continue
        if curve_after(tuning, trial, report.measurements) != trial.reported:
            new.append(report)
    return tuple(new)


def judge_measurements(state: State, event: TrialsMeasured, now: datetime) -> Decision:
    """Record the measurements of trials that have not ended."""
    tuning = tuning_of(state.job)
    live = {trial.number for trial in tuning.live}
    reports = new_measurements(
        tuning, tuple(report for report in event.reports if report.number in live)
    )
    is_read_twice = event.round != tuning.rounds_measured + 1  # by two deliveries
    if is_read_twice or not reports:
        return stale(Reason.NOTHING_TO_DO, "No running trial has new measurements.")
    named = ", ".join(_describe(report) for report in reports[:REPORTS_IN_TEXT])
    more = f" and {len(reports) - REPORTS_IN_TEXT} more" if len(reports) > REPORTS_IN_TEXT else ""
    text = f"Running trials report {tuning.metric_tag}: {named}{more}."
    return Decision(Rule.TUNING, Reason.TRIALS_MEASURED, text, RecordMeasurements(reports))


def judge_unpromising(state: State, event: TrialUnpromising, now: datetime) -> Decision:
    """Order that a running trial is stopped."""
    trial = next(
        (trial for trial in tuning_of(state.job).trials if trial.number == event.number), None
    )
    if trial is None or trial.state is not TrialState.RUNNING:
        return stale(Reason.NOTHING_TO_DO, f"Trial {event.number} is not running.")
    text = f"Trial {event.number} is stopped early: {event.comparison}."
    return Decision(Rule.TUNING, Reason.TRIAL_UNPROMISING, text, StopTrial(event.number))


def judge_stop(state: State, event: StopRequested, now: datetime) -> Decision:
    """End the job of a trial. Its VMs are stopped and deleted like those of a cancelled job."""
    text = f"Its tuning job stops this trial early: {event.comparison}."
    return Decision(
        Rule.TUNING, Reason.TRIAL_STOPPED, text, CancelJob(messages.stopped_early(event.comparison))
    )


def _is_due(trial: Trial, now: datetime) -> bool:
    """Whether it is the trial's turn in this minute (`AGES_PER_INTERVAL`).

    Its number spreads trials of the same age over the minutes of their interval.
    """
    age = now - trial.started_at if trial.started_at else timedelta()
    interval = max(1, int(age / timedelta(minutes=1)) // AGES_PER_INTERVAL)
    return (_minute(now) + trial.number) % interval == 0


def _minute(now: datetime) -> int:
    return int(now.timestamp()) // 60


def _describe(report: TrialReport) -> str:
    last = report.measurements[-1]
    return f"trial {report.number} {last.value:g} at step {last.step}"
