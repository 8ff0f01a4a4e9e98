"""Reasons to doubt a success (rule 2): the notes that a job in the state SUCCEEDED has.

The exit status 0 of the primary alone decides about the state. The notes are for people: each one
is a fact that the agent of the primary reported with the exit, or that is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainmaster.core.events import ReplicaExited
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.last_progress import LastProgress
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.rules.messages import member_names, short_cause

COMPLETE_SHARE: Final = 0.9
"""Share from which the work counts as done: many programs do not print every step."""
START_S: Final = 2.0
"""Seconds in which no training even starts."""
SILENT_S: Final = 60.0
"""A first program that ends sooner, and prints nothing, has hardly trained."""
NAMED_MAX: Final = 3
"""Members that a note names."""


def success_notes(state: State, event: ReplicaExited) -> tuple[str, ...]:
    """Return the notes about the exit 0 of the primary, each one without a full stop.

    Members that still run are named only beside a note about an early end: a member of a healthy
    job ends a moment after the primary, too. They are known if the whole attempt is loaded.
    """
    early_end = [*_position_notes(event.progress), *_duration_notes(event)]
    running = _running_notes(state) if early_end and state.whole else ()
    return (
        *early_end,
        *running,
        *_ended_round_notes(state.job),
        *_error_notes(event),
        *_nan_notes(event.progress),
        *_output_notes(state, event),
    )


def _position_notes(progress: LastProgress | None) -> Iterator[str]:
    """Yield that the program ended before its own last epoch or step."""
    if progress is None or progress.share is None or progress.share >= COMPLETE_SHARE:
        return
    position = ""
    if progress.epochs is not None and progress.epoch is not None:
        if progress.epoch >= progress.epochs - 1:  # it may count from 0
            return
        position = f" (epoch {progress.epoch} of {progress.epochs})"
    elif progress.steps is not None and progress.step is not None:
        if progress.step >= progress.steps - 1:
            return
        position = f" (step {progress.step} of {progress.steps})"
    yield f"ended at {int(progress.share * 100)} % of its own progress{position}"


def _running_notes(state: State) -> Iterator[str]:
    """Yield which members ran on. Parameter servers always do."""
    plan = state.job.plan
    running = [
        replica.replica_id
        for replica in state.replicas
        if replica.attempt == state.job.attempt
        and replica.state is ReplicaState.RUNNING
        and replica.replica_id != plan.primary
        and replica.replica_id.task_type is not TaskType.PS
        and is_required(plan, replica.replica_id)
    ]
    if not running:
        return
    named = member_names(sorted(running, key=str)[:NAMED_MAX])
    more = f" and {len(running) - NAMED_MAX} more" if len(running) > NAMED_MAX else ""
    verb = "was" if len(running) == 1 else "were"
    yield f"{named}{more} {verb} still running"


def _ended_round_notes(job: Job) -> Iterator[str]:
    """Yield that another member had ended the round, by a failure or the loss of its VM: what was
    left of its work is not done.
    """
    ended_by = job.round.stopped_by
    if job.round.is_held and ended_by is not None and ended_by != job.plan.primary:
        yield f"{ended_by.words} had ended the round before, and had not run again"


def _duration_notes(event: ReplicaExited) -> Iterator[str]:
    """Yield that the program did hardly anything.

    Only a first incarnation: a later one may find its work done.
    """
    subject = event.subject
    is_first = (subject.attempt, subject.incarnation) == (1, 1)
    if event.ran_s is None or not is_first:
        return
    is_silent = not event.tail.strip()
    if event.ran_s >= (SILENT_S if is_silent else START_S):
        return
    printed = " and printed nothing" if is_silent else ""
    yield f"ran for {max(round(event.ran_s), 1)} s{printed}"


def _error_notes(event: ReplicaExited) -> Iterator[str]:
    """Yield the error that the program printed last: a thread, an exit handler or the first
    command of a pipe may fail without a word in the exit status.
    """
    if event.error is not None:
        yield f"its output ends with {short_cause(event)}"


def _output_notes(state: State, event: ReplicaExited) -> Iterator[str]:
    """Yield that the job has no result where it should be."""
    if event.left_nothing:
        yield f"nothing was written to its jobDir {state.job.plan.program.job_dir}"


def _nan_notes(progress: LastProgress | None) -> Iterator[str]:
    names = progress.not_finite if progress is not None else ()
    if names:
        verb = "was" if len(names) == 1 else "were"
        yield f"{', '.join(names)} {verb} NaN or infinite at the end"
