"""How the actions on a trial change its tuning job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from trainmaster.core.actions import (
    BeginTrial,
    EndTrial,
    MarkTrialRunning,
    RecordMeasurements,
    StopTrial,
    TrialAction,
)
from trainmaster.core.model.job import Job, State, tuning_of
from trainmaster.core.model.learning_curve import curve_after
from trainmaster.core.model.tuning import Trial, TrialState, Tuning, last_ended
from trainmaster.core.transitions.change import Change


def change_trial(state: State, action: TrialAction) -> Change:
    """Return the change that the action makes to the tuning job."""
    job: Job = state.job
    return Change(replace(job, tuning=_with_trial(tuning_of(job), action), version=job.version + 1))


def _with_trial(tuning: Tuning, action: TrialAction) -> Tuning:
    match action:
        case BeginTrial():
            return replace(tuning, trials=(*tuning.trials, Trial(action.number, action.values)))
        case MarkTrialRunning():
            return _map_trial(
                tuning,
                action.number,
                lambda trial: replace(
                    trial, state=TrialState.RUNNING, started_at=action.started_at
                ),
            )
        case RecordMeasurements():
            return _record_measurements(tuning, action)
        case StopTrial():
            return _map_trial(
                tuning, action.number, lambda trial: replace(trial, state=TrialState.STOPPING)
            )
        case EndTrial():
            return _end_trial(tuning, action)
        case _:
            assert_never(action)


def _record_measurements(tuning: Tuning, action: RecordMeasurements) -> Tuning:
    """Add what running trials have reported to their curves: metric values over steps."""
    measurements = {report.number: report.measurements for report in action.reports}
    trials = tuple(
        replace(trial, reported=curve_after(tuning, trial, measurements.get(trial.number, ())))
        for trial in tuning.trials
    )
    return replace(tuning, trials=trials, rounds_measured=tuning.rounds_measured + 1)


def _end_trial(tuning: Tuning, action: EndTrial) -> Tuning:
    """End the trial.

    The measurements that its exit reported complete its curve: a short trial may end before any
    were read. The trial then has the last one alone, because its curve has the others. The reports
    of two failed trials may arrive in either order, so the error of the tuning job is that of the
    trial which ended last, and not of the last report.
    """
    final = action.measurement
    curve = final.curve if final else ()
    ended = _map_trial(
        tuning,
        action.number,
        lambda trial: replace(
            trial,
            state=action.state,
            ended_at=action.ended_at,
            measurement=final.alone if final else None,
            reported=curve_after(tuning, trial, curve),
        ),
    )
    failed = ended.of_state(TrialState.FAILED)
    is_last_failure = (
        action.state is TrialState.FAILED and last_ended(failed).number == action.number
    )
    return replace(ended, last_error=action.error) if is_last_failure else ended


def _map_trial(tuning: Tuning, number: int, change: Callable[[Trial], Trial]) -> Tuning:
    trials = tuple(change(trial) if trial.number == number else trial for trial in tuning.trials)
    return replace(tuning, trials=trials)
