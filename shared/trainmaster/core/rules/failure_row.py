"""Rows of failures, which users see from the second failure in a row on.

    failed soon after its start     continues the row
    the same failure as the last    continues the row, however long the program ran
    any other failure               begins a row
    not the program's failure       ends the row

The row decides nothing. It is stored by the same write as the restart. Members of a synchronous
job, which start and end together in rounds, have one row, that of the round; any other replica has
its own. A round is held while its members wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainmaster.core.events import End, ExitCause, ReplicaExited
from trainmaster.core.model.exit_policy import ExitPolicy, code_of
from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.job import Job
from trainmaster.core.model.members import is_member
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.rules.messages import short_failure
from trainmaster.core.rules.repetition import is_quick_failure
from trainmaster.core.timeouts import USEFUL_LIFE_MIN
from trainmaster.program_errors.varying import without_numbers


@dataclass(frozen=True, slots=True)
class Following:
    """The effect of a decision about a failure."""

    step: str
    """`restart 2 of 5 after a pause of 1 s`."""
    failures_left: int | None = None
    """After how many more failures the job is FAILED, at most; None: unknown."""


def continued(
    row: FailureRow | None, event: ReplicaExited, following: Following, now: datetime
) -> FailureRow:
    """Return the row with this failure. `row`: the row before it; None: there is none."""
    signature = failure_signature(event)
    ran_s = event.ran_s or 0.0
    is_continued = row is not None and (is_quick_failure(event) or row.signature == signature)
    before = row if is_continued else None
    return FailureRow(
        failures=before.failures + 1 if before else 1,
        last=short_failure(event),
        signature=signature,
        since=before.since if before else now,
        at=now,
        longest_s=max(before.longest_s, ran_s) if before else ran_s,
        next_step=following.step,
        failures_left=following.failures_left,
    )


def failure_signature(event: ReplicaExited) -> str:
    """Return what the same failure would have in common with this one: the exit code, the error
    without its numbers, and the line.
    """
    code = code_of(event.exit_status, event.signal)
    if event.error is None:
        return f"{event.cause} {code}: {without_numbers(event.stderr_line)}"
    place = event.error.own_frame or event.error.frame
    message = without_numbers(event.error.headline)
    return f"{event.cause} {code}, {event.error.type}: {message} at {place}"


def hang_signature(ends: Sequence[End]) -> str | None:
    """Return the lines at which the programs of a round hung; None if the same lines at the next
    hang would prove no bug.

    They prove none if the place of one program is not known, or if all programs hung at one line:
    where all wait for each other, the network or a machine may be the cause.
    """
    stalls = [
        end for end in ends if isinstance(end, ReplicaExited) and end.cause is ExitCause.STALLED
    ]
    places = {str(end.subject.replica_id): _own_place(end) for end in stalls}
    if not stalls or not all(places.values()):
        return None
    if len(places) > 1 and len(set(places.values())) == 1:
        return None
    return "hung at " + ", ".join(f"{who}: {place}" for who, place in sorted(places.items()))


def _own_place(end: ReplicaExited) -> str:
    """Return the line of the job's own code at which the program hung; empty if it is not known."""
    return end.error.own_frame if end.error is not None else ""


def current_row(job: Job, replicas: Sequence[Replica], now: datetime) -> FailureRow | None:
    """Return the row of failures that users see; None: the job does not keep failing.

    `replicas`: those of the current attempt, or those of them that fail. Of several rows, the
    longest one counts. A row is over as soon as the program runs for longer than before any of its
    failures, and for longer than a quick failure.
    """
    if job.state.is_terminal:
        return None
    rows = [_row_of_round(job, now), *(_row_of_replica(job, replica, now) for replica in replicas)]
    shown = [row for row in rows if row is not None and row.is_shown]
    return max(shown, key=lambda row: (row.failures, row.at), default=None)


def _row_of_round(job: Job, now: datetime) -> FailureRow | None:
    row = job.round.failing
    began_at = None if job.round.is_held else job.round.began_at
    return None if row is None or _is_over(row, began_at, now) else row


def _row_of_replica(job: Job, replica: Replica, now: datetime) -> FailureRow | None:
    row = replica.failing
    if row is None or replica.state is ReplicaState.COMPLETED:
        return None
    if is_member(job.plan, replica.replica_id):  # its row is that of the round
        return None
    runs_since = replica.ready_at if replica.state is ReplicaState.RUNNING else None
    return None if _is_over(row, runs_since, now) else row


def _is_over(row: FailureRow, runs_since: datetime | None, now: datetime) -> bool:
    """Whether the program has come further than before each failure of the row.

    `runs_since`: when it was started; None: it does not run.
    """
    if runs_since is None:
        return False
    return now - runs_since > max(timedelta(seconds=row.longest_s), USEFUL_LIFE_MIN)


def failing_words(row: FailureRow) -> str:
    """Return the row as a clause: `failing: 6 in a row, last ValueError: ... (train.py:18)`."""
    return f"failing: {row.failures} in a row, last {row.last}"


def following_words(job: Job, row: FailureRow) -> str:
    """Return what follows, as sentences: what the last decision did, and when the job ends."""
    if row.failures_left is not None and row.failures > 1:
        end = _end_at_this_pace(row, row.failures_left, job.plan.restarts.exit_policy)
        ending = f"{_most_failures(row.failures_left)}, at about {end:%H:%M} at this pace."
    elif row.failures_left is None and job.started_at is not None:
        limit_at = job.started_at + timedelta(seconds=job.plan.limits.max_running_s)
        ending = f"The job's maxRunningTime ends it at {limit_at:%Y-%m-%d %H:%M}."
    else:
        ending = ending_words(row)
    return f"{row.next_step[0].upper()}{row.next_step[1:]}. {ending}"


def ending_words(row: FailureRow) -> str:
    """Return how often the job may still fail, as a sentence."""
    if row.failures_left is None:
        return "It is restarted while its budgets last."
    return f"{_most_failures(row.failures_left)}."


def _most_failures(left: int) -> str:
    failures = "failure" if left == 1 else "failures"
    return f"The job is FAILED after at most {left} more {failures}"


def _end_at_this_pace(row: FailureRow, left: int, policy: ExitPolicy) -> datetime:
    """Return when the job is FAILED if each start takes as long as those of the row did on average.

    The pauses are added as the policy orders them: they grow from failure to failure.
    """
    past = _pauses(range(1, row.failures), row, policy)
    to_come = _pauses(range(row.failures, row.failures + left), row, policy)
    start = max(row.at - row.since - past, timedelta()) / (row.failures - 1)
    return row.at + start * left + to_come


def _pauses(failures: range, row: FailureRow, policy: ExitPolicy) -> timedelta:
    """Return the sum of the pauses after these failures of the row, counted from 1.

    A program that ran for long is restarted at once.
    """
    if timedelta(seconds=row.longest_s) >= USEFUL_LIFE_MIN:
        return timedelta()
    return timedelta(seconds=sum(map(policy.restart_pause_s, failures)))
