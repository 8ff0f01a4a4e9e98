"""Rule 4: a replica gets another VM of the same name, free of charge, because it lost its VM, or
because the VM is of no use.

    lost or about to be, unfit, not set up, startup timeout, silent agent, reboot after a short life
        ──► another VM; a running round ends
            restartJobOnWorkerRestart: the whole job is rerun, free
    several without ten useful minutes, in a row ("wasted")
        ──► pauses, other zones, and an end: `trainmaster.core.rules.wasted`

The replica is a member of a round if it runs together with others: see `verdict`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import (
    Action,
    Budget,
    ContinueProvisioning,
    FailJob,
    RecordCompletion,
    ReplaceVm,
    RerunJob,
    StopRound,
)
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import ExitCause, VmLost
from trainmaster.core.model.capacity import candidate_words
from trainmaster.core.model.floor import next_floor
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import current_incarnation, is_held, is_member, is_ready
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.tuning import Measurement
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules import messages
from trainmaster.core.rules.capacity_backoff import is_whole_gang_requested
from trainmaster.core.rules.search import Turn, after_losses
from trainmaster.core.rules.wasted import (
    count_wasted,
    is_limit_reached,
    is_zone_exhausted,
    pause_after,
)
from trainmaster.core.timeouts import RETRY_MIN, WASTED_MAX

GIVEN_UP: Final = (
    Reason.STARTUP_TIMEOUT,
    Reason.AGENT_SILENT,
    Reason.SETUP_FAILED,
    Reason.VM_RESTARTED,
)
"""Reasons for which Trainmaster gives up a VM that still exists."""
ENDS_OF_PROGRAMS: Final = (Reason.VM_STOPPING, Reason.VM_RESTARTED)
"""Reasons that tell of a program that had run on the VM, whether or not a report of its start has
arrived.
"""
FAULTY_ENDS: Final = {
    ExitCause.UNFIT: "failed the preflight",
    ExitCause.SETUP: "could not be set up",
    ExitCause.VM_STOPPING: "was shutting down",
}
"""Causes of exits after which a job that runs gets another VM, and what the VM did, in words."""


def judge_vm_loss(state: State, replica: Replica, event: VmLost, now: datetime) -> Decision:
    """Decide about a lost VM. A real loss of the VM counts whatever incarnation was on it."""
    if replica.state is ReplicaState.COMPLETED:
        return _judge_loss_after_completion(state.job, replica, event)
    is_current = event.subject.incarnation == current_incarnation(state.job, replica)
    if not event.is_vm_loss and not is_current:
        return stale(Reason.OUTDATED, "Another incarnation has been ordered since.")
    if event.cause is LossCause.STARTUP_TIMEOUT and is_ready(state.job, replica):
        return stale(Reason.NOTHING_TO_DO, "The replica has reported since.")
    cause = describe_loss(event)
    return judge_vm_end(state, replica, VmEnd(cause, Reason(event.cause.value), event.at), now)


def _judge_loss_after_completion(job: Job, replica: Replica, event: VmLost) -> Decision:
    """Decide about the loss of a VM on which the program has exited 0: a job that keeps its
    machines has a use for it.
    """
    would_be_kept = job.machines is not None and replica.instance_id is not None
    if not (would_be_kept and event.is_vm_loss and replica.done_at):
        return stale(Reason.NOTHING_TO_DO, "The replica had exited 0 and does not need its VM.")
    text = f"{describe_loss(event)}, and will not be kept. The replica had exited 0."
    action = RecordCompletion(replica.key, replica.done_at, is_vm_lost=True)
    return Decision(Rule.VM_LOST, Reason(event.cause.value), text, action)


@dataclass(frozen=True, slots=True)
class VmEnd:
    """How a VM ended, or why it is given up."""

    cause: str
    """What happened, as the beginning of a sentence."""
    reason: Reason
    at: datetime
    measurement: Measurement | None = None
    """In a trial, the last measurement that its program reported."""
    is_verdict: bool = False
    """Whether the verdict on a round found it; False: its event is judged alone."""


def judge_vm_end(state: State, replica: Replica, end: VmEnd, now: datetime) -> Decision:
    """Decide by rule 4: another VM for the replica, free of charge."""
    reason = end.reason
    wasted = count_wasted(replica, reason, end.at)
    if is_limit_reached(state, replica, wasted):
        return _give_up(replica, end)
    pause = pause_after(state, replica, reason, wasted)
    if pause:
        counted = f"{end.cause} (wasted machines in a row: {wasted} of {WASTED_MAX})"
        end = replace(end, cause=counted)
    replacement = ReplaceVm(
        replica.key,
        is_vm_taken=reason not in GIVEN_UP,
        has_run=reason in ENDS_OF_PROGRAMS,
        wasted=wasted,
        measurement=end.measurement,
    )
    if is_zone_exhausted(state, replica, reason, wasted):
        can_move = is_whole_gang_requested(state) and not end.is_verdict
        is_rerun = _reruns_job(state.job, replica, reason) or not can_move
        move = _rerun_elsewhere if is_rerun else _request_elsewhere
        text, action = move(state, replacement, end.cause, now=now, next_at=now + pause)
        return Decision(Rule.VM_LOST, reason, text, action)
    reruns_job = _reruns_job(state.job, replica, reason)
    holds_gang = reruns_job or is_member(state.job.plan, replica.replica_id)
    next_at = _next_at(state.job, pause, now, holds_gang=holds_gang)
    free = f"in {_seconds(now, next_at)}, free of charge" if next_at else "free of charge"
    if reruns_job:
        text = (
            f"{end.cause}: the whole job is rerun (restartJobOnWorkerRestart), and"
            f" {replica.replica_id.words} gets another VM, {free}."
        )
        paused_until = next_at or (state.job.placement.next_at if wasted else None)
        return Decision(Rule.VM_LOST, reason, text, _rerun(replacement, paused_until))
    replacement = replace(replacement, next_at=next_at)
    text, following = _after_loss(state.job, replica, replacement, end, free)
    return Decision(Rule.VM_LOST, reason, text, following)


def _give_up(replica: Replica, end: VmEnd) -> Decision:
    """End the job by the last wasted machine."""
    cause = end.cause
    if end.reason is not Reason.SETUP_FAILED:
        who = replica.replica_id.words
        cause = f"no VM of {who} in a row was of use for ten minutes; {_lower_first(cause)}"
    message = messages.internal_error(cause)
    text = f"{cause[0].upper()}{cause[1:]}: the job fails."
    failure = FailJob(message, replica.key)
    return Decision(Rule.VM_LOST, Reason.INTERNAL_BUDGET_SPENT, text, failure)


def _reruns_job(job: Job, replica: Replica, reason: Reason) -> bool:
    """Whether the job sets restartJobOnWorkerRestart, and the replica has run.

    Source: Vertex AI's documentation of that field, "if a worker gets restarted", whatever the
    cause.
    """
    has_run = reason in ENDS_OF_PROGRAMS or replica.ever_ready
    return job.plan.restarts.restart_job_on_worker_restart and has_run


def _next_at(job: Job, pause: timedelta, now: datetime, *, holds_gang: bool) -> datetime | None:
    """Return when the VM is requested; None: at once, or when a pause of the gang that has begun
    ends.

    `holds_gang`: whether no VM of the job is requested before then; False: only this VM is not. A
    gang loses many VMs at once, and each pause writes the job, so that a pause of about the same
    length is not begun again.
    """
    if not pause:
        return None
    if not holds_gang:
        return now + pause
    until = job.placement.next_at
    is_paused = until is not None and until > now and until >= now + pause - RETRY_MIN
    return None if is_paused else now + pause


def _request_elsewhere(
    state: State, replacement: ReplaceVm, cause: str, *, now: datetime, next_at: datetime
) -> tuple[str, Action]:
    """Request all VMs that have not reported in the next zone."""
    job = state.job
    turn = after_losses(job, now)
    zone = candidate_words(job.plan, turn.candidate)
    text = f"{cause}: trying {zone} in {_seconds(now, next_at)}, free of charge."
    action = ContinueProvisioning(
        turn.candidate,
        job.placement.round + 1,
        job.placement.since,
        next_at,
        replacement=replacement,
        remaining=turn.remaining,
        floor=next_floor(state.replicas),
    )
    return text, action


def _rerun_elsewhere(
    state: State, replacement: ReplaceVm, cause: str, *, now: datetime, next_at: datetime
) -> tuple[str, Action]:
    """Move the whole job to the next zone: a part of it runs here."""
    job = state.job
    turn = after_losses(job, now)
    zone = candidate_words(job.plan, turn.candidate)
    when = _seconds(now, next_at)
    text = f"{cause}: the whole job moves to {zone} in {when}, free of charge."
    return text, _rerun(replacement, next_at, turn)


def _rerun(replacement: ReplaceVm, next_at: datetime | None, turn: Turn | None = None) -> RerunJob:
    """Return the free rerun with another VM of one replica. `turn`: where; None: here."""
    return RerunJob(
        Budget.FREE,
        turn.candidate if turn else None,
        remaining=turn.remaining if turn else None,
        lost=replacement.replica,
        is_vm_taken=replacement.is_vm_taken,
        wasted=replacement.wasted,
        next_at=next_at,
    )


def _after_loss(
    job: Job, replica: Replica, replacement: ReplaceVm, end: VmEnd, free: str
) -> tuple[str, Action]:
    """Return text and action of a loss.

    The loss of a member's VM ends its round, unless it is held already. A verdict holds the next
    round, which waits for the VM.
    """
    who = replica.replica_id.words
    number = job.round.number
    is_running = is_member(job.plan, replica.replica_id) and not is_held(job, replica.replica_id)
    if not (is_running or end.is_verdict):
        text = f"{end.cause}: {who} restarts on another VM with the same hostname, {free}."
        return text, replacement
    ended = number - 1 if end.is_verdict else number
    text = (
        f"Round {ended} ended: {_lower_first(end.cause)}. {free.capitalize()}. Round {number + 1}"
        f" waits for another VM of {who}."
    )
    return text, StopRound(number, replica.key, replacement)


def _seconds(now: datetime, next_at: datetime) -> str:
    return f"{(next_at - now).total_seconds():.0f} s"


def _lower_first(cause: str) -> str:
    return f"{cause[0].lower()}{cause[1:]}"


def describe_loss(event: VmLost) -> str:
    """Return what happened to the VM, as the beginning of a sentence."""
    what_happened = {
        LossCause.MAINTENANCE: "goes into host maintenance",
        LossCause.PREEMPTION: "was preempted",
        LossCause.HOST_ERROR: "was lost to a host error",
        LossCause.GONE: "is gone",
        LossCause.AGENT_SILENT: "runs, but its agent writes no heartbeat",
        LossCause.STARTUP_TIMEOUT: "runs, but its agent did not report the replica ready in time",
    }[event.cause]
    return f"The VM of {event.subject.replica_id.words} {what_happened}"
