"""Rule 13: how many trials of a tuning job begin, what became of each, and when the tuning job
ends.

    trials begin            while fewer than maxParallelTrials run, maxTrials is not reached, and
                            values are left
    the tuning job fails    when maxFailedTrials failed; or, without that limit, when one failed
                            before any other succeeded; or when all trials ended and none succeeded
    it succeeds             when all trials have ended and at least one succeeded

All counts come from the tuning job's own ledger. `trainmaster.flows.tune` executes the decisions.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from trainmaster.core.actions import BeginTrial, CompleteTuning, EndTrial, FailJob, MarkTrialRunning
from trainmaster.core.decisions import Decision, Reason, Rule, provisional, stale
from trainmaster.core.events import TrialEnded, TrialStarted, TrialSuggested, TuningEnded
from trainmaster.core.model.job import Job, State, tuning_of
from trainmaster.core.model.tuning import Measurement, TrialState, Tuning, last_ended
from trainmaster.core.rules import messages

_REASONS: Final = {
    TrialState.SUCCEEDED: Reason.TRIAL_SUCCEEDED,
    TrialState.FAILED: Reason.TRIAL_FAILED,
    TrialState.CANCELLED: Reason.TRIAL_CANCELLED,
    TrialState.STOPPED: Reason.TRIAL_STOPPED,
}


def planned_trials(tuning: Tuning) -> int:
    """Return how many trials there will be, unless failures end the tuning job before.

    A finite search space is exhausted when all of it was tried. Source: Vertex AI,
    Study.State.COMPLETED.
    """
    if tuning.size is None:
        return tuning.max_trials
    # Trials of earlier tuning jobs, which the job file names: their values are not tried again.
    tried = {earlier.values for earlier in tuning.earlier}
    return min(tuning.max_trials, tuning.size - len(tried))


def trials_to_begin(job: Job) -> int:
    """Return how many more trials may begin now."""
    tuning = tuning_of(job)
    if job.state.is_terminal or final_decision(job):
        return 0
    return max(
        0, min(tuning.max_parallel - len(tuning.live), planned_trials(tuning) - len(tuning.trials))
    )


def final_decision(job: Job) -> Decision | None:
    """Return how the tuning job ends, judged by the trials that have ended; None while it
    continues.
    """
    tuning = tuning_of(job)
    failed = tuning.of_state(TrialState.FAILED)
    succeeded = len(tuning.completed)  # those that were stopped early count, too
    if tuning.max_failed and len(failed) >= tuning.max_failed:
        text = (
            f"{len(failed)} trials failed, and maxFailedTrials is {tuning.max_failed}: the job"
            " fails."
        )
        message = messages.too_many_trials_failed(tuning, last_ended(failed))
        return Decision(Rule.TUNING, Reason.TOO_MANY_TRIALS_FAILED, text, FailJob(message))
    if not tuning.max_failed and failed and not succeeded:
        text = (
            f"Trial {last_ended(failed).number} failed before any other succeeded: the job fails."
        )
        message = messages.trial_failed_first(tuning, last_ended(failed))
        return Decision(Rule.TUNING, Reason.TOO_MANY_TRIALS_FAILED, text, FailJob(message))
    if tuning.live or len(tuning.trials) < planned_trials(tuning):
        return None
    if not succeeded:
        text = f"None of {len(tuning.trials)} trials succeeded: the job fails."
        message = messages.no_trial_succeeded(tuning, last_ended(failed) if failed else None)
        return Decision(Rule.TUNING, Reason.NO_TRIAL_SUCCEEDED, text, FailJob(message))
    text = (
        f"All trials have ended, and {succeeded} of {len(tuning.trials)} succeeded{_best(tuning)}."
    )
    return Decision(Rule.TUNING, Reason.TRIALS_DONE, text, CompleteTuning())


def judge_tuning_ended(state: State, event: TuningEnded, now: datetime) -> Decision:
    """End the tuning job if its trials decide how."""
    return final_decision(state.job) or provisional("More trials are to begin or to end.")


def judge_suggestion(state: State, event: TrialSuggested, now: datetime) -> Decision:
    """Begin the trial. If there are two suggestions for the same trial, the first one counts."""
    tuning = tuning_of(state.job)
    if event.number != len(tuning.trials) + 1 or not trials_to_begin(state.job):
        return stale(Reason.NOTHING_TO_DO, "No such trial may begin now.")
    text = f"Trial {event.number} begins: {messages.trial_flags(tuning, event.values)}."
    return Decision(
        Rule.TUNING, Reason.TRIAL_SUGGESTED, text, BeginTrial(event.number, event.values)
    )


def judge_trial(state: State, event: TrialStarted | TrialEnded, now: datetime) -> Decision:
    """Record what became of a trial, also if the tuning job has ended."""
    tuning = tuning_of(state.job)
    trial = next((trial for trial in tuning.trials if trial.number == event.number), None)
    if trial is None or trial.state.is_terminal:
        return stale(Reason.NOTHING_TO_DO, f"Trial {event.number} is not under way.")
    if isinstance(event, TrialStarted):
        if trial.state is not TrialState.QUEUED:
            return stale(Reason.NOTHING_TO_DO, f"Trial {event.number} is running already.")
        # Not a rule about trials: the event only repeats what the trial's own job has done.
        action = MarkTrialRunning(event.number, event.started_at)
        return Decision(
            Rule.LIFECYCLE, Reason.TRIAL_RUNNING, f"Trial {event.number} is running.", action
        )
    text = f"Trial {event.number} {_describe_end(tuning, event)}"
    end = EndTrial(event.number, event.state, event.ended_at, event.measurement, event.error)
    return Decision(Rule.TUNING, _reason(event), text, end)


def _reason(event: TrialEnded) -> Reason:
    has_no_metric = event.state is TrialState.SUCCEEDED and event.measurement is None
    return Reason.TRIAL_WITHOUT_METRIC if has_no_metric else _REASONS[event.state]


def _describe_end(tuning: Tuning, event: TrialEnded) -> str:
    match event.state:
        case TrialState.SUCCEEDED if event.measurement is None:
            return (
                f"succeeded, but its program did not report {tuning.metric_tag}: its values are"
                " ignored."
            )
        case TrialState.SUCCEEDED:
            return f"succeeded{_with_measurement(tuning, event.measurement)}."
        case TrialState.STOPPED:
            return f"was stopped early{_with_measurement(tuning, event.measurement)}."
        case TrialState.FAILED:
            cause = event.error.strip().partition("\n")[0].strip() or "no cause given"
            return f"failed: {cause}"
        case _:
            return "was cancelled."


def _best(tuning: Tuning) -> str:
    best = tuning.best_first()[0]
    if best.measurement is None:
        return ""
    return f"; the best is trial {best.number}{_with_measurement(tuning, best.measurement)}"


def _with_measurement(tuning: Tuning, measurement: Measurement | None) -> str:
    return (
        f" with {tuning.metric_tag} {measurement.value:g} at step {measurement.step}"
        if measurement
        else ""
    )
