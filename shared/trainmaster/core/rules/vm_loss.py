"""Rules 4 and 5: a replica loses its VM, or something fails that is not the program's fault.

VM lost or about to be, startup timeout, wrong zone,
  silent agent ──────────────────────────────────► the next incarnation on another VM of the same name, free
                                                  restartJobOnWorkerRestart: the whole job is rerun, free
VM lost before its agent reported, or soon after ► `trainmaster.core.rules.early_loss`
internal error ──────────────────────────────────► the job is rerun while internal retries last; then it fails
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.core.actions import Budget, FailJob, ReplaceVm, RerunJob
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import VmLost
from trainmaster.core.model.job import INTERNAL_RETRIES_MAX, Job, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.tuning import Measurement
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules import messages
from trainmaster.core.rules.attribution import explains_rerun, past_vm
from trainmaster.core.rules.early_loss import describe_series, is_early_loss, judge_early_loss, next_request_at


def judge_vm_loss(state: State, replica: Replica, event: VmLost, now: datetime) -> Decision:
    """Decide about a lost VM. A real loss of the VM counts whatever incarnation was on it."""
    if replica.state is ReplicaState.COMPLETED:
        return stale(Reason.NOTHING_TO_DO, "The replica had exited 0 and does not need its VM.")
    if not event.is_vm_loss and event.subject.incarnation != replica.incarnation:
        return stale(Reason.OLD_INCARNATION, "Another incarnation has been ordered since.")
    if event.cause is LossCause.STARTUP_TIMEOUT:
        if replica.state is ReplicaState.RUNNING:
            return stale(Reason.NOTHING_TO_DO, "The replica has reported since.")
        if replica.startup_timeouts:
            cause = f"{replica.replica_id.words} did not report from its second VM either"
            return internal_error(state.job, cause, Reason.STARTUP_TIMEOUT)
    if event.cause is LossCause.WRONG_ZONE and event.subject.vm.zone == state.job.zone:
        return stale(Reason.NOTHING_TO_DO, "VMs for its peers are requested in its zone again.")
    cause = _describe_loss(state.job, event)
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

    With restartJobOnWorkerRestart the whole job is rerun instead, unless the replica has never run. Source: Vertex AI's
    documentation of that field, "if a worker gets restarted", whatever the cause. `cause` begins the decision's text;
    `at` is when the loss was reported. Early losses in a row lead to a pause, another zone or the end of the job.
    """
    who = replica.replica_id.words
    has_run = reason is Reason.VM_STOPPING
    is_vm_taken = reason not in (Reason.STARTUP_TIMEOUT, Reason.AGENT_SILENT, Reason.WRONG_ZONE)
    is_early = is_vm_taken and is_early_loss(replica, at) and not (has_run and replica.awaits_vm)
    next_at = None
    if is_early:
        if decision := judge_early_loss(state, replica, cause, now):
            return decision
        if next_at := next_request_at(state.job, replica, now):
            cause = describe_series(replica, cause)
            reason = Reason.VMS_LOST_EARLY
    free = f"in {(next_at - now).total_seconds():.0f} s, free of charge" if next_at else "free of charge"
    if state.job.plan.restart_job_on_worker_restart and (has_run or replica.ever_ready):
        text = f"{cause}: the whole job is rerun (restartJobOnWorkerRestart), and {who} gets another VM, {free}."
        paused_until = next_at or (state.job.placement.next_at if is_early else None)
        action = RerunJob(
            Budget.FREE, lost=replica.key, is_vm_taken=is_vm_taken, is_early=is_early, next_at=paused_until
        )
        return Decision(Rule.VM_LOST, reason, text, action)
    refunds_rerun = explains_rerun(state.job, replica, at)
    text = f"{cause}: {who} restarts on another VM with the same hostname, {free}."
    if refunds_rerun:
        text += " This explains the earlier rerun of the job: that rerun is refunded."
    replacement = ReplaceVm(
        replica.key,
        past_vm(replica, at),
        refunds_rerun=refunds_rerun,
        is_startup_timeout=reason is Reason.STARTUP_TIMEOUT,
        is_vm_taken=is_vm_taken,
        is_early=is_early,
        next_at=next_at,
        measurement=measurement,
    )
    return Decision(Rule.VM_LOST, reason, text, replacement)


def internal_error(
    job: Job, cause: str, reason: Reason, replica: str | None = None, reporter_vm: str | None = None
) -> Decision:
    """Decide by rule 5: rerun the job while its internal retries last, else fail it.

    `replica` is the key of the replica whose exit is the cause, if one is; `reporter_vm` is the id of its VM.
    """
    if job.plan.disable_retries or job.budgets.internal_used >= INTERNAL_RETRIES_MAX:
        action = FailJob(messages.internal_error(cause), replica)
        return Decision(Rule.INTERNAL, Reason.INTERNAL_BUDGET_SPENT, f"{cause}.", action)
    text = f"{cause}: the job is rerun (internal retry {job.budgets.internal_used + 1} of {INTERNAL_RETRIES_MAX})."
    return Decision(Rule.INTERNAL, reason, text, RerunJob(Budget.INTERNAL, reporter=replica, reporter_vm=reporter_vm))


def _describe_loss(job: Job, event: VmLost) -> str:
    vm = event.subject.vm
    what_happened = {
        LossCause.MAINTENANCE: "goes into host maintenance",
        LossCause.PREEMPTION: "was preempted",
        LossCause.HOST_ERROR: "was lost to a host error",
        LossCause.GONE: "is gone",
        LossCause.AGENT_SILENT: "runs, but its agent has written no heartbeat for a quarter of an hour",
        LossCause.STARTUP_TIMEOUT: "runs, but its agent did not report the replica ready in time",
        LossCause.WRONG_ZONE: f"is in {vm.zone}, but VMs for its peers are requested in {job.zone}",
    }[event.cause]
    return f"{vm.name} {what_happened}"
