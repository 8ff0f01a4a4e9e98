"""The rules: what an event means for a job. Total: every event has a decision, stale and unknown ones included.

    event ──► stale? (rule 1) ──► the event's own rules, first match wins ──► decision

The rule table is in docs/rules.md. What an exit means is in `shared.core.rules.replica_exit`, whose fault it was in
`shared.core.rules.attribution`, what follows when Compute Engine has no machines in `shared.core.rules.capacity`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from shared.core.decisions import (
    AcceptJob,
    BeginPreparing,
    BeginRunning,
    CancelJob,
    Decision,
    DeleteJob,
    Ignore,
    MarkHostReady,
    MarkReady,
    ReactivateReplica,
    Reason,
    Rule,
    SetLabels,
)
from shared.core.events import (
    AllReady,
    CancelRequested,
    CompletionOutdated,
    Deadline,
    DeadlinePassed,
    DeleteRequested,
    Event,
    JobSubmitted,
    LabelsChanged,
    ProvisioningStarted,
    ReplicaEvent,
    ReplicaExited,
    StudyOver,
    TrialEnded,
    TrialStarted,
    TrialSuggested,
    VmLost,
    VmReady,
    VmsNotCreated,
    VmsQueued,
)
from shared.core.model.job import Job, JobState, State
from shared.core.model.replica import Replica, ReplicaState
from shared.core.model.vm import LossCause
from shared.core.rules import messages
from shared.core.rules.capacity import judge_vms_not_created, judge_vms_queued
from shared.core.rules.reactivation import must_reactivate
from shared.core.rules.replica_exit import internal_error, judge_exit, vm_lost
from shared.core.rules.tuning import judge_over, judge_suggestion, judge_trial


def judge(state: State | None, event: Event, now: datetime) -> Decision:
    """`state` is None only where no job of that id exists."""
    if isinstance(event, JobSubmitted):
        return _judge_submission(state, event)
    if state is None:
        return Ignore(Rule.STALE, Reason.UNKNOWN_INCARNATION, "No such job.")
    if isinstance(event, LabelsChanged):
        return _judge_labels(state.job, event)
    if isinstance(event, DeleteRequested):
        return _judge_deletion(state.job)
    if isinstance(event, TrialStarted | TrialEnded):
        return judge_trial(state.job, event)
    if state.job.state.is_terminal:
        return Ignore(Rule.STALE, Reason.JOB_ENDED, f"The job has already ended: {state.job.state}.")
    match event:
        case ProvisioningStarted():
            if state.job.state is not JobState.QUEUED:
                return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "Provisioning had begun before.")
            whose = "first trial's" if state.job.tuning else "job's"
            return BeginPreparing(Rule.LIFECYCLE, Reason.PREPARING, f"The {whose} VMs are being created.")
        case AllReady():
            if event.attempt != state.job.attempt:
                return Ignore(Rule.STALE, Reason.OLD_ATTEMPT, f"Attempt {event.attempt} was rerun.")
            if state.job.state is not JobState.PREPARING:
                return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The job is running already.")
            who = "The first trial runs" if state.job.tuning else "Every replica is up"
            return BeginRunning(Rule.LIFECYCLE, Reason.ALL_READY, f"{who}: the job is running.")
        case VmsNotCreated():
            return judge_vms_not_created(state, event, now)
        case VmsQueued():
            return judge_vms_queued(state, event, now)
        case CancelRequested():
            return CancelJob(
                messages.CANCELLED_BY_USER, Rule.ENDED, Reason.CANCELLED_BY_USER, f"Cancelled by {event.by}."
            )
        case DeadlinePassed():
            return _judge_deadline(state.job, event, now)
        case TrialSuggested():
            return judge_suggestion(state.job, event)
        case StudyOver():
            return judge_over(state.job)
        case VmReady() | ReplicaExited() | VmLost() | CompletionOutdated():
            return _judge_replica(state, event, now)
        case _:
            assert_never(event)


def _judge_submission(state: State | None, event: JobSubmitted) -> Decision:
    if state is None:
        text = "The job is valid and new."
        if event.exhausted:
            text += f" Tried last: {', '.join(event.exhausted)}, which had no room for such machines a moment ago."
        return AcceptJob(event.job, Rule.LIFECYCLE, Reason.ACCEPTED, text)
    if state.job.submission == event.job.submission:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The same submission was accepted before.")
    return Ignore(Rule.STALE, Reason.JOB_ID_TAKEN, messages.JOB_EXISTS)


def _judge_labels(job: Job, event: LabelsChanged) -> Decision:
    """Also of a job that has ended: labels are what its user finds it by."""
    if event.seen is not None and event.seen != job.labels_version:
        return Ignore(Rule.STALE, Reason.CHANGED_MEANWHILE, "The labels were changed since the user looked at them.")
    said = ", ".join(f"{label.key}={label.value}" for label in event.labels) or "none"
    return SetLabels(event.labels, Rule.LIFECYCLE, Reason.LABELS_CHANGED, f"The job's labels are now: {said}.")


def _judge_deletion(job: Job) -> Decision:
    if job.deleted_at is not None:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "It was deleted before.")
    if not job.state.is_terminal:
        return Ignore(Rule.STALE, Reason.NOT_ENDED, f"The job has not ended: {job.state}. Cancel it first.")
    return DeleteJob(Rule.LIFECYCLE, Reason.DELETED_BY_USER, "Deleted by its user; its history is kept.")


def _judge_deadline(job: Job, event: DeadlinePassed, now: datetime) -> Decision:
    """Rule 12. The judge looks at the clock itself: a deadline that was reported too early is not one."""
    if event.deadline is not passed_deadline(job, now):
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The deadline has not passed.")
    match event.deadline:
        case Deadline.RUNNING:
            limit_s, said, reason = job.plan.max_running_s, messages.exceeded_running_time, Reason.MAX_RUNNING_TIME
        case Deadline.WAIT:
            limit_s, said, reason = job.plan.max_wait_s or 0, messages.exceeded_wait_time, Reason.MAX_WAIT_TIME
        case _:
            assert_never(event.deadline)
    return CancelJob(said(limit_s), Rule.ENDED, reason, f"{limit_s} s have passed: the job is cancelled.")


def passed_deadline(job: Job, now: datetime) -> Deadline | None:
    """maxRunningTime counts from RUNNING, maxWaitTime from creation until then."""
    plan = job.plan
    if job.started_at is not None:
        return Deadline.RUNNING if now >= job.started_at + timedelta(seconds=plan.max_running_s) else None
    if plan.max_wait_s is not None and now >= job.created_at + timedelta(seconds=plan.max_wait_s):
        return Deadline.WAIT
    return None


def _judge_replica(state: State, event: ReplicaEvent, now: datetime) -> Decision:
    subject = event.subject
    # A machine outlives an attempt: its loss, told under an older one, is the loss of the replica's present machine.
    is_vm_loss = isinstance(event, VmLost) and event.is_vm_loss
    replica = state.find(state.job.attempt, subject.replica_id)
    if subject.attempt < state.job.attempt and not is_vm_loss:
        return Ignore(Rule.STALE, Reason.OLD_ATTEMPT, f"Attempt {subject.attempt} was rerun.")
    if replica is None or subject.attempt > state.job.attempt:
        return Ignore(Rule.STALE, Reason.UNKNOWN_INCARNATION, "The job has no such replica.")
    if subject.vm_generation != replica.vm_generation:
        return _other_incarnation(
            Reason.OLD_VM_GENERATION, "VM", is_older=subject.vm_generation < replica.vm_generation
        )
    if isinstance(event, VmLost):
        return _judge_loss(state, replica, event, now)
    if subject.incarnation != replica.incarnation:
        return _other_incarnation(
            Reason.OLD_INCARNATION, "incarnation", is_older=subject.incarnation < replica.incarnation
        )
    if isinstance(event, CompletionOutdated):
        return _judge_completion(state, replica)
    if replica.state is ReplicaState.COMPLETED:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica has already exited 0.")
    if isinstance(event, VmReady):
        return _judge_ready(state.job, replica, event)
    return judge_exit(state, replica, event, now)


def _judge_completion(state: State, replica: Replica) -> Decision:
    """Rule 3, where an exit 0 does not last."""
    primary = state.find(replica.attempt, state.job.plan.primary)
    if primary is None or not must_reactivate(state.job, replica, primary):
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "Nothing waits for it.")
    text = (
        f"{primary.replica_id.words} begins incarnation {primary.incarnation} and may wait for {replica.replica_id.words}, which had "
        "exited 0: it is called back on another VM with the same hostname, at no charge."
    )
    return ReactivateReplica(replica.key, Rule.REPLICA_DONE, Reason.PRIMARY_RESTARTED, text)


def _judge_ready(job: Job, replica: Replica, event: VmReady) -> Decision:
    """A slice is up when the last of its hosts is."""
    subject, who = event.subject, replica.replica_id.words
    if replica.state is ReplicaState.RUNNING:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica is up already.")
    hosts = job.plan.group(replica.replica_id.task_type).hosts
    up = {*replica.hosts_ready, *(() if subject.host is None else (subject.host,))}
    if subject.host is not None and len(up) < hosts:
        text = f"Host {subject.host} of {who} is up: {len(up)} of {hosts}."
        return MarkHostReady(replica.key, subject.host, Rule.LIFECYCLE, Reason.HOST_READY, text)
    text = f"{who} is up on {subject.vm.name}."
    return MarkReady(replica.key, subject.vm.instance_id, Rule.LIFECYCLE, Reason.READY, text)


def _other_incarnation(reason: Reason, what: str, *, is_older: bool) -> Ignore:
    if is_older:
        return Ignore(Rule.STALE, reason, f"It comes from an older {what} of this replica.")
    return Ignore(Rule.STALE, Reason.UNKNOWN_INCARNATION, f"It comes from a {what} that was never ordered.")


def _judge_loss(state: State, replica: Replica, event: VmLost, now: datetime) -> Decision:
    """Rule 4. The incarnation does not matter where the machine is lost, whatever incarnation was on it."""
    if replica.state is ReplicaState.COMPLETED:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica had exited 0; its VM is not needed.")
    if not event.is_vm_loss and event.subject.incarnation != replica.incarnation:
        return Ignore(Rule.STALE, Reason.OLD_INCARNATION, "Another incarnation has been ordered since.")
    if event.cause is LossCause.STARTUP_TIMEOUT:
        if replica.state is ReplicaState.RUNNING:
            return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica has spoken meanwhile.")
        if replica.startup_timeouts:
            cause = f"{replica.replica_id.words} never spoke from its new VM either"
            return internal_error(state.job, cause, Reason.STARTUP_TIMEOUT)
    if event.cause is LossCause.WRONG_ZONE and event.subject.vm.zone == state.job.zone:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "Its peers are requested in its zone again.")
    why = {
        LossCause.MAINTENANCE: "goes into host maintenance",
        LossCause.PREEMPTION: "was preempted",
        LossCause.HOST_ERROR: "was lost to a host error",
        LossCause.GONE: "is gone",
        LossCause.STARTUP_TIMEOUT: "runs, and the replica ordered on it never spoke",
        LossCause.WRONG_ZONE: f"is in {event.subject.vm.zone}, and its peers are requested in {state.job.zone}",
    }[event.cause]
    return vm_lost(state, replica, f"{event.subject.vm.name} {why}", Reason(event.cause.value), now)
