"""The job of a trial, and the results that a tuning job passes on to the one that resumes it.

PARENT            the tuning job: plan of its trials, search space, results so far
PARENT-trial-3    a job like any other: the same plan, with the trial's values as arguments and its
                  own directory
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from trainmaster.core.model.job import Job, JobState, tuning_of
from trainmaster.core.model.machine_set import TRIAL_KEEP_S_MAX
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Program
from trainmaster.core.model.tuning import (
    TRIALS_MAX,
    Assignment,
    EarlierTrial,
    Trial,
    TrialOf,
    Tuning,
    trial_id,
)

EARLIER_BYTES_MAX: Final = 200_000
"""Size of the values of all earlier trials: a document of Firestore has at most 1 MiB.

The ledger stores a submitted job twice: in the event and in the decision.
"""


def trial_job(tuning_job: Job, trial: Trial, now: datetime) -> Job:
    """Return the job of a trial. All repetitions return the same job, except for `created_at`."""
    tuning = tuning_of(tuning_job)
    assigned = tuning.assignments(trial.values)
    return Job(
        job_id=trial_id(tuning_job.job_id, trial.number),
        spec_json=tuning_job.spec_json,
        submission=f"{tuning_job.job_id}: {tuning_job.submission}",
        plan=_trial_plan(tuning_job.plan, trial.number, assigned, tuning.max_trials),
        state=JobState.QUEUED,
        created_at=now,
        labels=tuning_job.labels,
        submitted_by=tuning_job.submitted_by,
        trial_of=TrialOf(tuning_job.job_id, trial.number, tuning.metric_tag, assigned),
    )


def results_to_resume(tuning: Tuning) -> tuple[EarlierTrial, ...]:
    """Return the results that a tuning job which resumes this one begins with.

    They include the results that this one began with. Only the latest ones are returned, up to
    `EARLIER_BYTES_MAX`.
    """
    own = (
        EarlierTrial(trial.values, trial.measurement.value)
        for trial in tuning.completed
        if trial.measurement is not None
    )
    results = (*tuning.earlier, *own)[-TRIALS_MAX:]
    kept = 0
    size = 0
    for result in reversed(results):
        # A little more than Firestore counts, which adds one byte to those of each text.
        size += sum(len(value.encode()) + 2 for value in result.values)
        if size > EARLIER_BYTES_MAX:
            break
        kept += 1
    return results[len(results) - kept :]


def _trial_plan(plan: Plan, number: int, assigned: tuple[Assignment, ...], trials: int) -> Plan:
    """Return the plan with the trial's arguments and directory.

    maxWaitTime limits how long the tuning job waits for its first trial. It does not limit the
    trials. Each of them may cost its part of maxCost. If machines are kept, those of a trial wait
    for the next one, at most `TRIAL_KEEP_S_MAX`; `keep_s` None: they are neither kept nor taken.
    """
    cap = plan.limits.cap
    if cap is not None:
        cap = replace(cap, limit=cap.limit.share(trials))
    directory = _subdirectory(plan.origin.output_directory, number)
    keep_s = None if plan.keep_s is None else min(plan.keep_s, TRIAL_KEEP_S_MAX)
    return replace(
        plan,
        program=_trial_program(plan.program, number, assigned),
        groups=tuple(
            (
                replace(group, program=_trial_program(group.program, number, assigned))
                if group.program
                else group
            )
            for group in plan.groups
        ),
        origin=replace(plan.origin, output_directory=directory),
        limits=replace(plan.limits, max_wait_s=None, cap=cap),
        keep_s=keep_s,
    )


def _trial_program(program: Program, number: int, assigned: tuple[Assignment, ...]) -> Program:
    """Return the program with one flag per parameter, as two tokens after the job's own arguments.

    Source: Vertex AI's documented command line, and the directory JOBDIR/TRIAL of AI Platform
    Training's census sample.
    """
    flags: list[str] = []
    for parameter in assigned:
        flags += [f"--{parameter.name}", parameter.value]
    return replace(
        program, args=(*program.args, *flags), job_dir=_subdirectory(program.job_dir, number)
    )


def _subdirectory(directory: str | None, number: int) -> str | None:
    return None if directory is None else f"{directory.rstrip('/')}/{number}"
