"""Exits of replicas (rules 2 to 10 and 14): `ROWS` has their rules in the order of judging, first match wins.

Each row is a function from the case to a decision, or to None if the row does not apply. `Row.condition` says in words
when it applies; `trainmaster why` prints the conditions of the rows that were passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from trainmaster.core.actions import (
    Budget,
    HoldReplica,
    RecordCompletion,
    RecordHostDone,
    RerunJob,
    RestartReplica,
    SucceedJob,
)
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.model.exit_policy import ExitAction, Preset
from trainmaster.core.model.job import RERUNS_MAX, RESTARTS_MAX, STALLS_MAX, State
from trainmaster.core.model.replica import EndKind, Replica
from trainmaster.core.rules.attribution import blame, may_be_collateral, past_exit
from trainmaster.core.rules.causes import Causes
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.repetition import bug_signature
from trainmaster.core.rules.vm_loss import internal_error, replace_vm
from trainmaster.core.timeouts import QUICK_FAILURE_MAX_S, REBOOT_INTERVAL_MIN

IMPORT_ERRORS: Final = ("ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError", "TabError")
"""Exceptions of a program that cannot be imported. Another attempt raises them again, if they came soon after the
start: a program that has run for longer may have raised them from its data or from its VM's libraries."""


def judge_exit(state: State, replica: Replica, event: ReplicaExited, now: datetime) -> Decision:
    """Decide about an exit of the replica's current incarnation.

    `state` holds the replica and the peers whose losses may explain the exit. If it does not hold all of them,
    `attribution.may_be_explained` says whether another one may change the decision.
    """
    case = Case(state, replica, event, now)
    return next(decision for row in ROWS if (decision := row.decide(case)))


def _primary_done(case: Case) -> Decision | None:
    if not case.event.succeeded or case.replica.replica_id != case.job.plan.primary or case.hosts_left:
        return None
    action = SucceedJob(case.replica.key, case.event.measurement)
    return Decision(Rule.PRIMARY_DONE, Reason.PRIMARY_EXITED_ZERO, f"{case.who} is the primary and exited 0.", action)


def _replica_done(case: Case) -> Decision | None:
    if not case.event.succeeded:
        return None
    host = case.event.subject.host
    if host is not None and case.hosts_left:
        text = f"Host {host} of {case.who} exited 0; {case.hosts_left} of its hosts still run."
        action = RecordHostDone(case.replica.key, host, case.event.measurement)
        return Decision(Rule.REPLICA_DONE, Reason.HOST_EXITED_ZERO, text, action)
    text = f"{case.who} exited 0; the job continues."
    return Decision(Rule.REPLICA_DONE, Reason.EXITED_ZERO, text, RecordCompletion(case.replica.key, case.event.at))


def _vm_stopping(case: Case) -> Decision | None:
    """Treat every exit during a shutdown as a lost VM, even an exit 0: the program may exit 0 after a checkpoint."""
    if case.event.cause is not ExitCause.VM_STOPPING:
        return None
    cause = f"The VM of {case.who} was shutting down when its program exited"
    return replace_vm(
        case.state,
        case.replica,
        cause,
        Reason.VM_STOPPING,
        case.event.at,
        case.now,
        measurement=case.event.measurement,
    )


def _vm_restarted(case: Case) -> Decision | None:
    """Restart free of charge. A second reboot soon after the first one is charged: the program may bring its VM
    down."""
    if case.event.cause is not ExitCause.VM_RESTARTED or _has_just_rebooted(case):
        return None
    cause = f"The VM of {case.who} rebooted under its program"
    if case.job.plan.restart_job_on_worker_restart:
        text = f"{cause}: the whole job is rerun (restartJobOnWorkerRestart), free of charge."
        return Decision(Rule.VM_LOST, Reason.VM_RESTARTED, text, _rerun_action(case, Budget.FREE))
    text = f"{cause}: it restarts in the same VM, free of charge."
    return Decision(Rule.VM_LOST, Reason.VM_RESTARTED, text, _restart_action(case, Budget.FREE))


def _has_just_rebooted(case: Case) -> bool:
    """Whether the previous incarnation also ended by a reboot, within `REBOOT_INTERVAL_MIN`."""
    previous = case.replica.previous
    if previous is None or previous.kind is not EndKind.REBOOT:
        return False
    return case.event.at - previous.ended_at < REBOOT_INTERVAL_MIN


def _setup_failed(case: Case) -> Decision | None:
    if case.event.cause is not ExitCause.SETUP:
        return None
    cause = case.event.tail.strip() or (case.event.error.message if case.event.error else "no cause given")
    text = f"{case.who} could not be set up: {cause}"
    reporter_vm = case.event.subject.vm.instance_id
    return internal_error(case.job, text, Reason.SETUP_FAILED, case.replica.key, reporter_vm)


def _retries_disabled(case: Case) -> Decision | None:
    """Fail the job, unless the loss of a peer may still explain the exit: rules 9 and 10 limit such exits."""
    if not case.job.plan.disable_retries:
        return None
    if may_be_collateral(case.job, case.event) and case.replica.restarts_used < RESTARTS_MAX:
        return None
    text = f"{case.outcome}; retries are disabled."
    return case.fail_unless_explained(Rule.RETRIES_DISABLED, Reason.RETRIES_DISABLED, text)


def _collateral(case: Case) -> Decision | None:
    ended = past_exit(case.replica, case.event, is_charged=True)
    peer = Causes(case.state).find(case.replica, ended)
    if peer is None:
        return None
    is_down = peer.state.is_down
    reason = Reason.PEER_DOWN if is_down else Reason.PEER_LOST_MEANWHILE
    when = "it restarts when no peer is down" if is_down else "it restarts"
    text = f"{case.outcome} because {peer.replica_id.words} was lost: {when}, free of charge."
    action = HoldReplica(case.replica.key, peer.key, case.event.subject.vm.instance_id, case.event.measurement)
    return Decision(Rule.COLLATERAL, reason, text, action)


def _stalled(case: Case) -> Decision | None:
    """Restart a program that hung, while its own budget lasts: `STALLS_MAX` of its latest ends. Then rerun the job."""
    if case.event.cause is not ExitCause.STALLED:
        return None
    if case.job.plan.restart_job_on_worker_restart:
        return _rerun(case, Rule.STALLED, Reason.RESTART_JOB_ON_WORKER_RESTART)
    used = sum(ended.kind is EndKind.STALL and ended.is_charged for ended in case.replica.past)
    if used >= STALLS_MAX:
        return _rerun(case, Rule.STALLED, Reason.STALLS_SPENT, f" after {STALLS_MAX} such restarts")
    text = f"{case.outcome}: it restarts in the same VM (stall {used + 1} of {STALLS_MAX})."
    return Decision(Rule.STALLED, Reason.STALLED, text, _restart_action(case, Budget.FREE))


def _permanent(case: Case) -> Decision | None:
    reason = _permanent_reason(case)
    if reason is None:
        return None
    return case.fail(Rule.PERMANENT, reason, f"{case.outcome}: this error is permanent, so the job is not retried.")


def _permanent_reason(case: Case) -> Reason | None:
    event = case.event
    if case.user_action is not None:
        return Reason.EXIT_POLICY if case.user_action is ExitAction.FAIL else None
    if case.policy.preset is Preset.RESTART:
        return None
    if event.out_of_memory:
        return Reason.OUT_OF_MEMORY
    cannot_import = event.error and event.error.type in IMPORT_ERRORS and (event.ran_s or 0) < QUICK_FAILURE_MAX_S
    if event.cause is ExitCause.INSTALL or cannot_import:
        return Reason.INSTALL_FAILED
    if case.policy.preset_action(case.code) is ExitAction.FAIL and not case.may_be_collateral_failure:
        return Reason.COMMON_ERROR
    return Reason.SAME_FAILURE_AGAIN if case.proves_bug else None


def _crash(case: Case) -> Decision | None:
    if case.user_action is not None:
        return _rerun(case, Rule.CRASH, Reason.EXIT_POLICY) if case.user_action is ExitAction.RERUN else None
    if case.policy.preset_action(case.code) is ExitAction.RERUN:
        return _rerun(case, Rule.CRASH, Reason.CRASH_SIGNAL)
    return None


def _restart(case: Case) -> Decision:
    replica = case.replica
    if case.job.plan.restart_job_on_worker_restart:
        return _rerun(case, Rule.RESTART, Reason.RESTART_JOB_ON_WORKER_RESTART)
    if replica.restarts_used >= RESTARTS_MAX:
        return _rerun(case, Rule.RESTART, Reason.RESTARTS_SPENT, f" after {RESTARTS_MAX} restarts")
    number = f"restart {replica.restarts_used + 1} of {RESTARTS_MAX}"
    text = f"{case.outcome}: it restarts in the same VM{case.after_pause} ({number}).{case.bug_advice}"
    return Decision(Rule.RESTART, Reason.NON_ZERO_EXIT, text, _restart_action(case, Budget.RESTARTS))


def _restart_action(case: Case, charge: Budget) -> RestartReplica:
    event, is_failure = case.event, charge is Budget.RESTARTS
    is_charged = is_failure or event.cause is ExitCause.STALLED
    bug = bug_signature(event) if is_failure else None
    ended = replace(past_exit(case.replica, event, is_charged=is_charged), bug=bug)
    is_quick = is_failure and bool(case.quick_failures)
    return RestartReplica(case.replica.key, ended, charge, event.subject.vm.instance_id, is_quick, event.measurement)


def _rerun(case: Case, rule: Rule, reason: Reason, after: str = "") -> Decision:
    used = case.job.budgets.reruns_used
    if used >= RERUNS_MAX:
        text = f"{case.outcome}{after}, and the job was rerun {RERUNS_MAX} times."
        return case.fail_unless_explained(rule, Reason.RERUNS_SPENT, text)
    text = f"{case.outcome}{after}: the whole job is rerun{case.after_pause} (rerun {used + 1} of {RERUNS_MAX})."
    return Decision(rule, reason, text + case.bug_advice, _rerun_action(case, Budget.RERUNS))


def _rerun_action(case: Case, charge: Budget) -> RerunJob:
    key = case.replica.key
    return RerunJob(
        charge,
        blame=blame(case.event),
        exited_at=case.event.at,
        reporter=key,
        reporter_vm=case.event.subject.vm.instance_id,
        quick_failure=key if charge is Budget.RERUNS and case.quick_failures else None,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the rule table for exits."""

    rule: Rule
    decide: Callable[[Case], Decision | None]
    condition: str
    """When the row applies, in words."""


# The order counts, not the ids of the rules. The column "order" in docs/rules.md has the same order.
ROWS: Final = (
    Row(Rule.PRIMARY_DONE, _primary_done, "the primary replica exits 0"),
    Row(Rule.REPLICA_DONE, _replica_done, "the replica exits 0"),
    Row(Rule.VM_LOST, _vm_stopping, "its VM was shutting down"),
    Row(Rule.VM_LOST, _vm_restarted, "its VM rebooted"),
    Row(Rule.INTERNAL, _setup_failed, "the agent could not set up"),
    Row(Rule.COLLATERAL, _collateral, "a peer is down, or was lost during this incarnation"),
    Row(Rule.RETRIES_DISABLED, _retries_disabled, "the job disables retries"),
    Row(Rule.STALLED, _stalled, "it printed nothing for the job's stallTimeout"),
    Row(Rule.PERMANENT, _permanent, "out of memory, a permanent exit code, missing packages, or a repeated bug"),
    Row(Rule.CRASH, _crash, "it crashed (SIGABRT, SIGSEGV)"),
    Row(Rule.RESTART, _restart, "any other failure"),
)
