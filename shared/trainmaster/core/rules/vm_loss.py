"""Rules 4 and 5: a replica loses its VM, or something fails that is not the program's fault.

VM lost or about to be, startup timeout, silent agent
    ──► another VM of the same name, free; a running round ends
        restartJobOnWorkerRestart: the whole job is rerun, free
VM lost before its agent reported, or soon after
    ──► `trainmaster.core.rules.early_loss`
internal error
    ──► the job is rerun while internal retries last; then it fails
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.core.actions import Action, Budget, FailJob, ReplaceVm, RerunJob, StopRound
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import VmLost
from trainmaster.core.model.job import INTERNAL_RETRIES_MAX, Job, State
from trainmaster.core.model.members import (
    can_spare,
    current_incarnation,
    is_held,
    is_member,
    is_ready,
)
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.tuning import Measurement
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules import messages
from trainmaster.core.rules.early_loss import (
    describe_series,
    is_early_loss,
    judge_early_loss,
    next_request_at,
)


def judge_vm_loss(state: State, replica: Replica, event: VmLost, now: datetime) -> Decision:
    """Decide about a lost VM. A real loss of the VM counts whatever incarnation was on it."""
    if replica.state is ReplicaState.COMPLETED:
        return stale(Reason.NOTHING_TO_DO, "The replica had exited 0 and does not need its VM.")
    if not event.is_vm_loss and event.subject.incarnation != current_incarnation(
        state.job, replica
    ):
        return stale(Reason.OLD_INCARNATION, "Another incarnation has been ordered since.")
    if event.cause is LossCause.STARTUP_TIMEOUT:
        if is_ready(state.job, replica):
            return stale(Reason.NOTHING_TO_DO, "The replica has reported since.")
        if replica.startup_timeouts and not can_spare(state, replica.replica_id):
            cause = f"{replica.replica_id.words} did not report from its second VM either"
            return internal_error(
                state.job, cause, Reason.STARTUP_TIMEOUT, replica.key, replaces_vm=True
            )
    cause = describe_loss(event)
    return replace_vm(state, replica, cause, Reason(event.cause.value), event.at, now)


def replace_vm(
    state: State,
    replica: Replica,
    cause: str,
    reason: Reason,
    at: datetime,
    now: datetime,
    *,
    measurement: Measurement | None = None,
) -> Decision:
    """Decide by rule 4: another VM for the replica, free of charge.

    With restartJobOnWorkerRestart the whole job is rerun instead, unless the replica has never run.
    Source: Vertex AI's documentation of that field, "if a worker gets restarted", whatever the
    cause. `cause` begins the decision's text; `at` is when the loss was reported. Early losses in a
    row lead to a pause, another zone or the end of the job.
    """
    who = replica.replica_id.words
    has_run = reason is Reason.VM_STOPPING
    is_vm_taken = reason not in (Reason.STARTUP_TIMEOUT, Reason.AGENT_SILENT)
    is_early = is_vm_taken and is_early_loss(replica, at) and not (has_run and replica.awaits_vm)
    next_at = None
    if is_early:
        decision = judge_early_loss(state, replica, cause, now)
        if decision is not None:
            return decision
        next_at = next_request_at(state.job, replica, now)
        if next_at is not None:
            cause = describe_series(replica, cause)
            reason = Reason.VMS_LOST_EARLY
    free = (
        f"in {(next_at - now).total_seconds():.0f} s, free of charge"
        if next_at
        else "free of charge"
    )
    if state.job.plan.restarts.restart_job_on_worker_restart and (has_run or replica.ever_ready):
        text = (
            f"{cause}: the whole job is rerun (restartJobOnWorkerRestart), and {who} gets another"
            f" VM, {free}."
        )
        paused_until = next_at or (state.job.placement.next_at if is_early else None)
        action = RerunJob(
            Budget.FREE,
            lost=replica.key,
            is_vm_taken=is_vm_taken,
            is_early=is_early,
            next_at=paused_until,
        )
        return Decision(Rule.VM_LOST, reason, text, action)
    replacement = ReplaceVm(
        replica.key,
        is_startup_timeout=reason is Reason.STARTUP_TIMEOUT,
        is_vm_taken=is_vm_taken,
        is_early=is_early,
        next_at=next_at,
        measurement=measurement,
    )
    return Decision(
        Rule.VM_LOST, reason, *_after_loss(state.job, replica, replacement, cause, free)
    )


def _after_loss(
    job: Job, replica: Replica, replacement: ReplaceVm, cause: str, free: str
) -> tuple[str, Action]:
    """Return text and action of a loss.

    The loss of a member's VM ends its round, unless it is held already.
    """
    who = replica.replica_id.words
    number = job.round.number
    if not is_member(job.plan, replica.replica_id) or is_held(job, replica.replica_id):
        return f"{cause}: {who} restarts on another VM with the same hostname, {free}.", replacement
    ended = f"Round {number} ended: {cause[0].lower()}{cause[1:]}. {free.capitalize()}."
    text = f"{ended} Round {number + 1} waits for another VM of {who}."
    return text, StopRound(number, replica.key, replacement)


def internal_error(
    job: Job,
    cause: str,
    reason: Reason,
    replica: str | None = None,
    *,
    replaces_vm: bool = False,
) -> Decision:
    """Decide by rule 5: rerun the job while its internal retries last, else fail it.

    `replica` is the key of the replica that is the cause, if one is. `replaces_vm`: the VM may be
    the cause, so the second retry is on another one.
    """
    if job.plan.restarts.disable_retries or job.budgets.internal_used >= INTERNAL_RETRIES_MAX:
        failure = FailJob(messages.internal_error(cause), replica)
        return Decision(Rule.INTERNAL, Reason.INTERNAL_BUDGET_SPENT, f"{cause}.", failure)
    text = (
        f"{cause}: the job is rerun (internal retry {job.budgets.internal_used + 1} of"
        f" {INTERNAL_RETRIES_MAX})."
    )
    lost = replica if replaces_vm and job.budgets.internal_used else None
    action = RerunJob(Budget.INTERNAL, lost=lost, reporter=replica)
    return Decision(Rule.INTERNAL, reason, text, action)


def describe_loss(event: VmLost) -> str:
    """Return what happened to the VM, as the begin of a sentence."""
    what_happened = {
        LossCause.MAINTENANCE: "goes into host maintenance",
        LossCause.PREEMPTION: "was preempted",
        LossCause.HOST_ERROR: "was lost to a host error",
        LossCause.GONE: "is gone",
        LossCause.AGENT_SILENT: "runs, but its agent writes no heartbeat",
        LossCause.STARTUP_TIMEOUT: "runs, but its agent did not report the replica ready in time",
    }[event.cause]
    return f"The VM of {event.subject.replica_id.words} {what_happened}"
