"""Rule 12 and other requests of users: cancellation, deadlines that the job file sets, labels, deletion."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from trainmaster.core.actions import CancelJob, DeleteJob, SetLabels
from trainmaster.core.decisions import Decision, Reason, Rule, not_yet, stale
from trainmaster.core.events import CancelRequested, Deadline, DeadlinePassed, DeleteRequested, LabelsChanged
from trainmaster.core.model.job import Job, State
from trainmaster.core.rules import messages
from trainmaster.core.timeouts import HISTORY_KEPT


def judge_cancel(state: State, event: CancelRequested, now: datetime) -> Decision:
    """Cancel the job."""
    action = CancelJob(messages.CANCELLED_BY_USER)
    return Decision(Rule.ENDED, Reason.CANCELLED_BY_USER, f"Cancelled by {event.by}.", action)


def judge_deadline(state: State, event: DeadlinePassed, now: datetime) -> Decision:
    """Cancel the job if the deadline has really passed at `now`: an event may be early."""
    job = state.job
    if event.deadline is Deadline.COST:
        return _judge_cost(job, event)
    if event.deadline is not passed_deadline(job, now):
        return not_yet("The deadline has not passed.")
    match event.deadline:
        case Deadline.RUNNING:
            limit_s = job.plan.max_running_s
            message, reason = messages.exceeded_running_time(limit_s), Reason.MAX_RUNNING_TIME
        case Deadline.WAIT:
            limit_s = job.plan.max_wait_s or 0
            message, reason = messages.exceeded_wait_time(limit_s), Reason.MAX_WAIT_TIME
        case _:
            assert_never(event.deadline)
    return Decision(Rule.ENDED, reason, f"{limit_s} s have passed: the job is cancelled.", CancelJob(message))


def passed_deadline(job: Job, now: datetime) -> Deadline | None:
    """Return the deadline that has passed: maxRunningTime counts from RUNNING, maxWaitTime from creation until then."""
    plan = job.plan
    if job.started_at is not None:
        return Deadline.RUNNING if now >= job.started_at + timedelta(seconds=plan.max_running_s) else None
    if plan.max_wait_s is not None and now >= job.created_at + timedelta(seconds=plan.max_wait_s):
        return Deadline.WAIT
    return None


def _judge_cost(job: Job, event: DeadlinePassed) -> Decision:
    cap = job.plan.cap
    if cap is None or not cap.is_reached(event.spent):
        return not_yet("The job may cost more.")
    text = f"The job has cost up to {event.spent:.2f} {cap.currency} of its maxCost, {cap}: it is cancelled."
    return Decision(Rule.ENDED, Reason.MAX_COST, text, CancelJob(messages.exceeded_cost(str(cap))))


def judge_labels(state: State, event: LabelsChanged, now: datetime) -> Decision:
    """Replace the labels of a job, which may have ended: users search by labels."""
    if event.seen is not None and event.seen != state.job.labels_version:
        return stale(Reason.CHANGED_MEANWHILE, "The labels were changed after the user read them.")
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
