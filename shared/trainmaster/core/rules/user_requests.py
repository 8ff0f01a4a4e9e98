"""Rule 12 and other requests of users: cancellation, the limits of time and cost that the job file
sets, labels, deletion.

A job with a cap (`maxCost`) ends in two steps, so that little work is lost: its programs are asked
to save, and it is cancelled when they have ended or their time is over, at the latest before it
costs more. Its round, the common run of its members, holds the request to save; `ends_job` says
that it is the last one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from trainmaster.core.actions import CancelJob, DeleteJob, NoteCost, SaveRound, SetLabels
from trainmaster.core.decisions import Decision, Reason, Rule, provisional, stale
from trainmaster.core.events import (
    CancelRequested,
    CostChecked,
    Deadline,
    DeadlinePassed,
    DeleteRequested,
    LabelsChanged,
)
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import is_member
from trainmaster.core.model.money import ZERO
from trainmaster.core.model.round import SaveCause, SaveRequest
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.rules import messages
from trainmaster.core.timeouts import COST_SAVE_S, HISTORY_KEPT, SAVE_MAX


def judge_cancel(state: State, event: CancelRequested, now: datetime) -> Decision:
    """Cancel the job."""
    action = CancelJob(messages.CANCELLED_BY_USER)
    return Decision(Rule.ENDED, Reason.CANCELLED_BY_USER, f"Cancelled by {event.by}.", action)


def judge_deadline(state: State, event: DeadlinePassed, now: datetime) -> Decision:
    """Cancel the job if the deadline has really passed at `now`: an event may be early."""
    job = state.job
    if event.deadline is not passed_deadline(job, now):
        return provisional("The deadline has not passed.")
    match event.deadline:
        case Deadline.RUNNING:
            limit_s = job.plan.limits.max_running_s
            message = messages.exceeded_running_time(limit_s)
            reason = Reason.MAX_RUNNING_TIME
        case Deadline.WAIT:
            limit_s = job.plan.limits.max_wait_s or 0
            message = messages.exceeded_wait_time(limit_s)
            reason = Reason.MAX_WAIT_TIME
        case _:
            assert_never(event.deadline)
    return Decision(
        Rule.ENDED, reason, f"{limit_s} s have passed: the job is cancelled.", CancelJob(message)
    )


def passed_deadline(job: Job, now: datetime) -> Deadline | None:
    """Return the deadline that has passed: maxRunningTime counts from RUNNING, maxWaitTime from
    creation until then.
    """
    if job.started_at is not None:
        ends_at = job.started_at + timedelta(seconds=job.plan.limits.max_running_s)
        return Deadline.RUNNING if now >= ends_at else None
    wait_ends_at = end_of_wait(job)
    return Deadline.WAIT if wait_ends_at is not None and now >= wait_ends_at else None


def end_of_wait(job: Job) -> datetime | None:
    """Return when maxWaitTime ends a job that has not run yet; None: nothing ends its wait."""
    wait_s = job.plan.limits.max_wait_s
    if job.started_at is not None or wait_s is None:
        return None
    return job.created_at + timedelta(seconds=wait_s)


def judge_cost(state: State, event: CostChecked, now: datetime) -> Decision:
    """Let the programs save, then cancel the job, so that it costs no more than its cap; or note
    when its cost is computed next.
    """
    job = state.job
    cap = state.job.plan.limits.cap
    if cap is None:
        return stale(Reason.NOTHING_TO_DO, "The job has no maxCost.")
    text = f"The job has cost at most {event.spent:.2f} {cap.limit.currency} of its maxCost, {cap}"
    save_is_over = job.round.ends_job and job.round.saving and now >= job.round.saving.until
    if cap.is_reached(event.spent) or save_is_over:
        return cancel_at_cap(cap, text)
    saving = _last_save(job, now) if cap.is_reached(event.spent, COST_SAVE_S) else None
    if saving is not None:
        asked = "have just been asked" if saving.at < now else "are asked"
        signal = job.plan.saving.signal
        text += f": all programs that catch {signal} {asked} to save, and then it is cancelled."
        return Decision(Rule.ENDED, Reason.MEMBERS_SAVE, text, SaveRound(job.round.number, saving))
    next_at = cap.next_check_at(event.at, event.spent)
    return Decision(
        Rule.LIFECYCLE, Reason.COST_CHECKED, f"{text}.", NoteCost(next_at, event.spent, event.at)
    )


def cancel_at_cap(cap: Cap, text: str) -> Decision:
    """Cancel a job because of its cap. `text`: why, without its end."""
    action = CancelJob(messages.exceeded_cost(str(cap)))
    return Decision(Rule.ENDED, Reason.MAX_COST, f"{text}: it is cancelled.", action)


def _last_save(job: Job, now: datetime) -> SaveRequest | None:
    """Return the request to save after which the job ends; None: nothing runs, nobody is to be
    asked, or all were asked.

    The primary's agent asks the members that save together. Directives ask all other replicas.
    """
    plan = job.plan
    saving = job.round.saving
    if job.round.is_held or job.round.ends_job or plan.saving.on_notice is SaveOnNotice.OFF:
        return None
    saves_together = plan.saving.on_notice is SaveOnNotice.GANG
    asked = tuple(
        replica_id
        for replica_id in plan.replica_ids
        if replica_id == plan.primary or not (saves_together and is_member(plan, replica_id))
    )
    if saving is not None and now - saving.at < timedelta(seconds=COST_SAVE_S):
        # The programs are saving already, for another reason: only the others are asked.
        others = tuple(replica_id for replica_id in asked if replica_id not in saving.asked)
        until = min(saving.until, now + SAVE_MAX)
        return replace(saving, why=SaveCause.CAP, until=until, asked=(*saving.asked, *others))
    return SaveRequest(job.round.next_save, now, now + SAVE_MAX, SaveCause.CAP, asked)


def must_check_cost(job: Job, now: datetime) -> bool:
    """Whether the job may have reached its cap since its cost was computed last."""
    cap = job.plan.limits.cap
    if cap is None or not cap.per_hour or job.tuning is not None:
        return False
    return now >= (job.cost_check_at or cap.next_check_at(job.created_at, ZERO))


def judge_labels(state: State, event: LabelsChanged, now: datetime) -> Decision:
    """Replace the labels of a job, which may have ended: users search by labels."""
    if event.seen is not None and event.seen != state.job.labels_version:
        return stale(Reason.OUTDATED, "The labels were changed after the user read them.")
    labels = ", ".join(f"{label.key}={label.value}" for label in event.labels) or "none"
    text = f"The job's labels are now: {labels}{f'; changed by {event.by}' if event.by else ''}."
    return Decision(Rule.LIFECYCLE, Reason.LABELS_CHANGED, text, SetLabels(event.labels))


def judge_deletion(state: State, event: DeleteRequested, now: datetime) -> Decision:
    """Delete a job that has ended."""
    job = state.job
    if job.deleted_at is not None:
        return stale(Reason.NOTHING_TO_DO, "The job was deleted before.")
    if not job.state.is_terminal:
        return stale(Reason.NOT_ENDED, f"The job has not ended: {job.state}. Cancel it first.")
    text = f"Deleted by {event.by or 'its user'}; its history is kept for {HISTORY_KEPT.days} days."
    return Decision(Rule.LIFECYCLE, Reason.DELETED_BY_USER, text, DeleteJob())
