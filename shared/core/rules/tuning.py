"""The rules of a tuning job: how many trials begin, what became of each, and when the job ends.

    trials may begin     while fewer than maxParallelTrials run, maxTrials is not reached, and values are left to try
    the job FAILED       maxFailedTrials failed; without that number, one failed before any other succeeded; or none did
    the job SUCCEEDED    all trials have ended, and one of them well

Everything counts on what the job's own ledger says of its trials. `shared.flows.tune` carries it out.
"""

from __future__ import annotations

from typing import Final

from shared.core.decisions import (
    BeginTrial,
    CompleteStudy,
    Decision,
    EndTrial,
    FailJob,
    Ignore,
    MarkTrialRunning,
    Reason,
    Rule,
)
from shared.core.events import TrialEnded, TrialStarted, TrialSuggested
from shared.core.model.job import Job
from shared.core.model.tuning import Measurement, TrialState, Tuning, last_ended
from shared.core.reconcile.trial_jobs import tuning_of
from shared.core.rules import messages

_REASONS: Final = {
    TrialState.SUCCEEDED: Reason.TRIAL_SUCCEEDED,
    TrialState.FAILED: Reason.TRIAL_FAILED,
    TrialState.CANCELLED: Reason.TRIAL_CANCELLED,
}


def planned(tuning: Tuning) -> int:
    """How many trials there will be if none fails: a space with an end is over when all of it was tried, as Vizier's
    studies are. Source: Vertex AI, Study.State.COMPLETED."""
    if tuning.size is None:
        return tuning.max_trials
    tried = {past.values for past in tuning.earlier}
    return min(tuning.max_trials, tuning.size - len(tried))


def may_begin(job: Job) -> int:
    """How many more trials may begin now."""
    tuning = tuning_of(job)
    if job.state.is_terminal or end_of(job):
        return 0
    return max(0, min(tuning.max_parallel - len(tuning.live), planned(tuning) - len(tuning.trials)))


def end_of(job: Job) -> FailJob | CompleteStudy | None:
    """How the job ends, as told by the trials that have ended; None: it goes on."""
    tuning = tuning_of(job)
    failed = tuning.of_state(TrialState.FAILED)
    succeeded = len(tuning.of_state(TrialState.SUCCEEDED))
    if tuning.max_failed and len(failed) >= tuning.max_failed:
        text = f"{len(failed)} trials failed, which maxFailedTrials allows no more of: the job fails."
        message = messages.too_many_trials_failed(tuning, last_ended(failed))
        return FailJob(message, Rule.TUNING, Reason.TOO_MANY_TRIALS_FAILED, text)
    if not tuning.max_failed and failed and not succeeded:
        text = f"Trial {last_ended(failed).number} failed before any other succeeded: the job fails."
        message = messages.trial_failed_first(tuning, last_ended(failed))
        return FailJob(message, Rule.TUNING, Reason.TOO_MANY_TRIALS_FAILED, text)
    if tuning.live or len(tuning.trials) < planned(tuning):
        return None
    if not succeeded:
        text = f"None of {len(tuning.trials)} trials succeeded: the job fails."
        message = messages.no_trial_succeeded(tuning, last_ended(failed) if failed else None)
        return FailJob(message, Rule.TUNING, Reason.NO_TRIAL_SUCCEEDED, text)
    text = f"All trials have ended, {succeeded} of {len(tuning.trials)} well{_best(tuning)}."
    return CompleteStudy(Rule.TUNING, Reason.TRIALS_DONE, text)


def judge_over(job: Job) -> Decision:
    return end_of(job) or Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "Trials are still to come.")


def judge_suggestion(job: Job, event: TrialSuggested) -> Decision:
    """Of two that suggest the same trial at once, the first is heard."""
    tuning = tuning_of(job)
    if event.number != len(tuning.trials) + 1 or not may_begin(job):
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "No such trial is to begin now.")
    text = f"Trial {event.number} begins: {messages.flags(tuning, event.values)}."
    return BeginTrial(event.number, event.values, Rule.TUNING, Reason.TRIAL_SUGGESTED, text)


def judge_trial(job: Job, event: TrialStarted | TrialEnded) -> Decision:
    """Also of a job that has ended: what became of its trials is told to the end."""
    tuning = tuning_of(job)
    trial = next((trial for trial in tuning.trials if trial.number == event.number), None)
    if trial is None or trial.state.is_terminal:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, f"No trial {event.number} is under way.")
    if isinstance(event, TrialStarted):
        if trial.state is not TrialState.QUEUED:
            return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, f"Trial {event.number} is running already.")
        text = f"Trial {event.number} is running."
        return MarkTrialRunning(event.number, event.started_at, Rule.LIFECYCLE, Reason.TRIAL_RUNNING, text)
    return EndTrial(
        event.number,
        event.state,
        event.ended_at,
        Rule.TUNING,
        _reason(event),
        f"Trial {event.number} {_what_came(tuning, event)}",
        event.measurement,
        event.error,
    )


def _reason(event: TrialEnded) -> Reason:
    is_silent = event.state is TrialState.SUCCEEDED and event.measurement is None
    return Reason.TRIAL_WITHOUT_METRIC if is_silent else _REASONS[event.state]


def _what_came(tuning: Tuning, event: TrialEnded) -> str:
    match event.state:
        case TrialState.SUCCEEDED if event.measurement is None:
            return f"succeeded, but its program reported no {tuning.metric_tag}: nothing was learned from it."
        case TrialState.SUCCEEDED:
            return f"succeeded{_reported(tuning, event.measurement)}."
        case TrialState.FAILED:
            cause = event.error.strip().partition("\n")[0].strip() or "no cause was given"
            return f"failed: {cause}"
        case _:
            return "was cancelled."


def _best(tuning: Tuning) -> str:
    best = tuning.best_first()[0]
    return f"; best is trial {best.number}{_reported(tuning, best.measurement)}" if best.measurement else ""


def _reported(tuning: Tuning, measurement: Measurement | None) -> str:
    return f" with {tuning.metric_tag} {measurement.value:g} at step {measurement.step}" if measurement else ""
