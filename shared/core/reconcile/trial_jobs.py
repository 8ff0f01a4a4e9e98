"""A tuning job's trials, and the job that each of them is.

PARENT          the tuning job: plan of a trial, what may be tried, its trials so far
PARENT-trial-3  a job of its own: the same plan, with the trial's values as arguments and a directory of its own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from typing import Final

from shared.core.decisions import BeginTrial, EndTrial, MarkTrialRunning
from shared.core.model.job import Job, JobState
from shared.core.model.plan import Plan, Program
from shared.core.model.tuning import (
    TRIALS_MAX,
    Assigned,
    Past,
    Trial,
    TrialOf,
    TrialState,
    Tuning,
    last_ended,
    number_of,
    trial_id,
)

EARLIER_BYTES_MAX: Final = 200_000
"""Of all values of earlier trials: a submission is in the ledger twice, in the event and in its decision."""


def tuning_of(job: Job) -> Tuning:
    if job.tuning is None:
        raise ValueError(f"{job.job_id} is no tuning job")
    return job.tuning


def with_trial(job: Job, decision: BeginTrial | MarkTrialRunning | EndTrial) -> Tuning:
    """The tuning as the decision leaves it."""
    tuning = tuning_of(job)
    match decision:
        case BeginTrial():
            return replace(tuning, trials=(*tuning.trials, Trial(decision.number, decision.values)))
        case MarkTrialRunning():
            return _changed(
                tuning,
                decision.number,
                lambda trial: replace(trial, state=TrialState.RUNNING, started_at=decision.started_at),
            )
        case EndTrial():
            ended = _changed(
                tuning,
                decision.number,
                lambda trial: replace(
                    trial, state=decision.state, ended_at=decision.ended_at, measurement=decision.measurement
                ),
            )
            failed = ended.of_state(TrialState.FAILED)
            is_last = decision.state is TrialState.FAILED and last_ended(failed).number == decision.number
            return replace(ended, last_error=decision.error) if is_last else ended


def job_of(study: Job, trial: Trial, now: datetime) -> Job:
    """The trial's own job. The same for whoever makes it, but for the moment."""
    tuning = tuning_of(study)
    assigned = tuning.assigned(trial.values)
    return Job(
        job_id=trial_id(study.job_id, trial.number),
        spec_json=study.spec_json,
        submission=f"{study.job_id}: {study.submission}",
        plan=_plan(study.plan, trial.number, assigned),
        state=JobState.QUEUED,
        created_at=now,
        labels=study.labels,
        submitted_by=study.submitted_by,
        trial_of=TrialOf(study.job_id, trial.number, tuning.metric_tag, assigned),
    )


def found_by(before: Tuning) -> tuple[Past, ...]:
    """What a study that continues this one begins with: the latest, what this one began with included, as far as it
    fits beside the study's own trials."""
    own = (
        Past(trial.values, trial.measurement.value)
        for trial in before.of_state(TrialState.SUCCEEDED)
        if trial.measurement is not None
    )
    found = (*before.earlier, *own)[-TRIALS_MAX:]
    sizes = accumulate(sum(len(value.encode()) + 2 for value in past.values) for past in reversed(found))
    return found[len(found) - sum(size <= EARLIER_BYTES_MAX for size in sizes) :]


def trial_number(job: Job) -> str:
    """As its program gets it; empty for a job that is no trial."""
    return number_of(job.job_id) if job.trial_of else ""


def _plan(plan: Plan, number: int, assigned: tuple[Assigned, ...]) -> Plan:
    """Its own directory. How long it may wait is the tuning job's concern, and over once that runs."""
    return replace(
        plan,
        program=_program(plan.program, number, assigned),
        groups=tuple(
            replace(group, program=_program(group.program, number, assigned)) if group.program else group
            for group in plan.groups
        ),
        output_directory=_below(plan.output_directory, number),
        max_wait_s=None,
    )


def _program(program: Program, number: int, assigned: tuple[Assigned, ...]) -> Program:
    """Flags of two tokens, after the job's own. Source: Vertex AI's documented command line, and the census sample's
    directory, JOBDIR/TRIAL."""
    flags = tuple(token for each in assigned for token in (f"--{each.name}", each.value))
    return replace(program, args=(*program.args, *flags), job_dir=_below(program.job_dir, number))


def _below(directory: str | None, number: int) -> str | None:
    return None if directory is None else f"{directory.rstrip('/')}/{number}"


def _changed(tuning: Tuning, number: int, change: Callable[[Trial], Trial]) -> Tuning:
    trials = tuple(change(trial) if trial.number == number else trial for trial in tuning.trials)
    return replace(tuning, trials=trials)
