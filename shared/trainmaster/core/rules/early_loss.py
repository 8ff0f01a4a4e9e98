"""Rule 4 for VMs that are lost early: before their agents report, or within ten minutes after the
first report.

    first loss in a row     another VM at once
    further losses          another VM after a pause that doubles, up to a quarter of an hour
    third loss in a zone    in the next zone, with all other VMs that have not reported
    30th loss               the job FAILED

The loss of a VM that lived longer ends the series. A replica that the job may run without (`gang:
false`, `elastic`) stays in its zone, and its losses never end the job.

Such losses are a shortage of Spot VMs that no stockout reports, or an image that shuts its VM down.
Without a limit, they would cost a boot per minute and replica for as long as the job may run.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import Budget, ContinueProvisioning, FailJob, RerunJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.model.capacity import candidate_words
from trainmaster.core.model.floor import next_floor
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import can_spare
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules import messages
from trainmaster.core.rules.capacity_backoff import is_too_early, is_whole_gang_requested
from trainmaster.core.rules.search import after_losses
from trainmaster.core.timeouts import (
    EARLY_LOSS_AGE_MAX,
    EARLY_LOSSES_MAX,
    EARLY_LOSSES_PER_ZONE,
    RETRY_MAX,
    RETRY_MIN,
)

DOUBLINGS_MAX: Final = 10
"""With these doublings, the pause is far longer than `RETRY_MAX`.

Without a limit, it would overflow a timedelta.
"""


def is_early_loss(replica: Replica, at: datetime) -> bool:
    """Whether a VM that is lost at this time is lost before its agent reported, or soon after its
    first report.
    """
    return replica.awaits_vm or (
        replica.vm_since is not None and at - replica.vm_since < EARLY_LOSS_AGE_MAX
    )


def judge_early_loss(state: State, replica: Replica, cause: str, now: datetime) -> Decision | None:
    """Decide about an early loss of a VM; None: another VM is requested in the same zone.

    A move to another zone is decided with the whole attempt. `cause` begins the text.
    """
    job = state.job
    who = replica.replica_id.words
    losses = replica.early_losses + 1
    series = describe_series(replica, cause)
    if losses >= EARLY_LOSSES_MAX and _is_required(state, replica):
        lost = f"{who} lost {losses} VMs in a row before their agents reported, or soon after"
        message = messages.internal_error(f"{lost}; {cause[0].lower()}{cause[1:]}")
        return Decision(
            Rule.INTERNAL, Reason.VMS_LOST_EARLY, f"{series}: the job fails.", FailJob(message)
        )
    if not _is_zone_exhausted(state, replica):
        return None
    turn = after_losses(job, now)
    placement = job.placement
    pause = _pause(losses)
    zone = candidate_words(job.plan, turn.candidate)
    if is_whole_gang_requested(state) and not (
        job.plan.restarts.restart_job_on_worker_restart and replica.ever_ready
    ):
        text = f"{series}: trying {zone} in {pause.total_seconds():.0f} s, free of charge."
        action = ContinueProvisioning(
            turn.candidate,
            placement.round + 1,
            placement.since,
            now + pause,
            lost=replica.key,
            remaining=turn.remaining,
            floor=next_floor(state.replicas),
        )
        return Decision(Rule.VM_LOST, Reason.VMS_LOST_EARLY, text, action)
    text = (
        f"{series}: the whole job moves to {zone} in {pause.total_seconds():.0f} s, free of charge."
    )
    rerun = RerunJob(
        Budget.FREE,
        turn.candidate,
        remaining=turn.remaining,
        lost=replica.key,
        is_vm_taken=True,
        next_at=now + pause,
    )
    return Decision(Rule.VM_LOST, Reason.VMS_LOST_EARLY, text, rerun)


def next_request_at(job: Job, replica: Replica, now: datetime) -> datetime | None:
    """Return when VMs are requested again after another early loss.

    None: at once, or after a pause that has begun.
    """
    if not replica.early_losses or is_too_early(job, now):
        return None
    return now + _pause(replica.early_losses + 1)


def describe_series(replica: Replica, cause: str) -> str:
    """Return the begin of the text about another early loss, whose cause is `cause`."""
    when = (
        "before its agent reported"
        if replica.vm_since is None
        else "soon after its agent's first report"
    )
    return (
        f"{cause} {when}, as early loss {replica.early_losses + 1} of {replica.replica_id.words} in"
        " a row"
    )


def _pause(losses: int) -> timedelta:
    pause: timedelta = RETRY_MIN * 2 ** min(losses - 2, DOUBLINGS_MAX)
    return min(pause, RETRY_MAX)


def _is_zone_exhausted(state: State, replica: Replica) -> bool:
    """Whether required VMs are requested in another zone, if there is one, after this loss."""
    is_last_loss = replica.early_losses_in_zone + 1 >= EARLY_LOSSES_PER_ZONE
    return is_last_loss and _is_required(state, replica) and len(state.job.plan.where.zones) > 1


def _is_required(state: State, replica: Replica) -> bool:
    return is_required(state.job.plan, replica.replica_id) and not can_spare(
        state, replica.replica_id
    )
