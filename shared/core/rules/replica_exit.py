"""What a replica's exit means: the rows of the rule table in their order, first match wins.

Each row is a function from the case to a decision, or None where it does not apply; beside it stands what it takes,
which is what `why` says of the rows that were passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from shared.core.decisions import (
    Budget,
    Decision,
    FailJob,
    HoldReplica,
    Reason,
    RecordCompletion,
    RecordHostDone,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    Rule,
    SucceedJob,
)
from shared.core.events import ExitCause, ReplicaExited
from shared.core.model.exit_policy import Blame, ExitAction, ExitPolicy, Preset, code_of
from shared.core.model.job import INTERNAL_RETRIES_MAX, RERUNS_MAX, RESTARTS_MAX, Job, State
from shared.core.model.replica import LastExit, Replica
from shared.core.rules import messages
from shared.core.rules.attribution import blame, explained_charges, explains_rerun, lost_peer, told

REBOOTS_APART: Final = timedelta(hours=1)
"""A VM that restarts under the same replica twice within that was hardly unlucky twice."""
IMPORT_ERRORS: Final = ("ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True, slots=True)
class Case:
    """One exit, and what the judge may look at."""

    state: State
    replica: Replica
    event: ReplicaExited
    now: datetime

    @property
    def job(self) -> Job:
        return self.state.job

    @property
    def policy(self) -> ExitPolicy:
        return self.job.plan.exit_policy

    @property
    def code(self) -> int | None:
        return code_of(self.event.exit_status, self.event.signal)

    @property
    def chosen(self) -> ExitAction | None:
        """What the user's own exit rules say of it."""
        return self.policy.chosen(self.code, self.replica.replica_id.task_type)

    @property
    def hosts_left(self) -> int:
        """How many hosts of the slice run on after this exit 0; a VM has none. A slice is done when they all are."""
        host = self.event.subject.host
        if host is None:
            return 0
        return self.job.plan.group(self.replica.replica_id.task_type).hosts - len({*self.replica.hosts_done, host})

    @property
    def said(self) -> str:
        """`worker 1 exited with status 1 (ValueError)`."""
        return f"{self.replica.replica_id.words} {messages.how_it_ended(self.event)}"


def judge_exit(state: State, replica: Replica, event: ReplicaExited, now: datetime) -> Decision:
    """The exit is of the replica's present incarnation."""
    case = Case(state, replica, event, now)
    decision = next(found for row in ROWS if (found := row.decide(case)))
    if isinstance(decision, RecordHostDone | RestartReplica | HoldReplica | ReplaceVm | SucceedJob):
        return replace(decision, measurement=event.measurement)
    return replace(decision, replica=replica.key) if isinstance(decision, FailJob) else decision


def _succeed(case: Case) -> Decision | None:
    if not case.event.succeeded or case.replica.replica_id != case.job.plan.primary or case.hosts_left:
        return None
    text = f"{case.replica.replica_id.words} is the primary and exited 0."
    return SucceedJob(case.replica.key, Rule.PRIMARY_DONE, Reason.PRIMARY_EXITED_ZERO, text)


def _complete(case: Case) -> Decision | None:
    if not case.event.succeeded:
        return None
    host = case.event.subject.host
    if host is not None and case.hosts_left:
        text = f"Host {host} of {case.replica.replica_id.words} exited 0; {case.hosts_left} of its hosts run on."
        return RecordHostDone(case.replica.key, host, Rule.REPLICA_DONE, Reason.HOST_EXITED_ZERO, text)
    text = f"{case.replica.replica_id.words} exited 0; the job goes on."
    return RecordCompletion(case.replica.key, Rule.REPLICA_DONE, Reason.EXITED_ZERO, text)


def _vm_stopping(case: Case) -> Decision | None:
    """Whatever the program made of SIGTERM, exit 0 after a checkpoint included: it is not what ended."""
    if case.event.cause is not ExitCause.VM_STOPPING:
        return None
    said = f"The VM of {case.replica.replica_id.words} is shutting down under it"
    return vm_lost(case.state, case.replica, said, Reason.VM_STOPPING, case.now, has_run=True)


def _vm_restarted(case: Case) -> Decision | None:
    """Free; but not again and again: what brings its VM down itself is charged like any other exit."""
    if case.event.cause is not ExitCause.VM_RESTARTED or _has_just_restarted(case):
        return None
    said = f"The VM of {case.replica.replica_id.words} restarted under it"
    if case.job.plan.restart_job_on_worker_restart:
        text = f"{said}: the whole job is rerun, as it asks for, at no charge."
        return RerunJob(Budget.FREE, Rule.VM_LOST, Reason.VM_RESTARTED, text)
    refunds = explained_charges(case.state, case.replica, case.now)
    return RestartReplica(
        case.replica.key,
        _last(case),
        Budget.FREE,
        Rule.VM_LOST,
        Reason.VM_RESTARTED,
        f"{said}: it goes on there, at no charge." + told(refunds),
        tuple(peer.key for peer in refunds),
    )


def _has_just_restarted(case: Case) -> bool:
    replica, last = case.replica, case.replica.last_exit
    was_last = last is not None and last.incarnation == replica.incarnation - 1
    was_cut_off = last is not None and last.exit_status is None and last.signal is None
    return was_last and was_cut_off and replica.lost_at is not None and case.now - replica.lost_at < REBOOTS_APART


def _setup_failed(case: Case) -> Decision | None:
    if case.event.cause is not ExitCause.SETUP:
        return None
    cause = case.event.tail.strip() or (case.event.error.message if case.event.error else "no cause given")
    return internal_error(
        case.job, f"{case.replica.replica_id.words} could not be set up: {cause}", Reason.SETUP_FAILED
    )


def _retries_disabled(case: Case) -> Decision | None:
    if not case.job.plan.disable_retries:
        return None
    text = f"{case.said}; retries are disabled."
    return FailJob(messages.failed(case.event), Rule.RETRIES_DISABLED, Reason.RETRIES_DISABLED, text)


def _collateral(case: Case) -> Decision | None:
    cause = lost_peer(case.state, case.replica, case.event)
    if cause is None:
        return None
    is_down = cause.state.is_down
    reason = Reason.PEER_DOWN if is_down else Reason.PEER_LOST_MEANWHILE
    when = "it restarts when its peers are back, at no charge." if is_down else "it restarts at no charge."
    text = f"{case.said} because {cause.replica_id.words} was lost: {when}"
    return HoldReplica(case.replica.key, cause.key, Rule.COLLATERAL, reason, text)


def _permanent(case: Case) -> Decision | None:
    reason = _why_permanent(case)
    if reason is None:
        return None
    text = f"{case.said}: trying again gives the same."
    return FailJob(messages.failed(case.event), Rule.PERMANENT, reason, text)


def _why_permanent(case: Case) -> Reason | None:
    event, chosen = case.event, case.chosen
    if chosen is not None:
        return Reason.EXIT_POLICY if chosen is ExitAction.FAIL else None
    if case.policy.preset is Preset.RESTART:
        return None
    if event.out_of_memory:
        return Reason.OUT_OF_MEMORY
    if event.cause is ExitCause.INSTALL or (event.error and event.error.type in IMPORT_ERRORS):
        return Reason.INSTALL_FAILED
    if case.policy.preset_action(case.code) is ExitAction.FAIL:
        return Reason.COMMON_ERROR
    return Reason.SAME_FAILURE_AGAIN if _is_repetition(case) else None


def _is_repetition(case: Case) -> bool:
    """The same status and the same error signature as the previous incarnation's charged exit, and of its own making."""
    event, before = case.event, case.replica.last_exit
    return (
        before is not None
        and event.error is not None
        and blame(event) is Blame.OWN
        and before.incarnation == event.subject.incarnation - 1
        and (before.exit_status, before.signal, before.signature) == (event.exit_status, event.signal, event.signature)
    )


def _crash(case: Case) -> Decision | None:
    if case.chosen is not None:
        return _rerun(case, Rule.CRASH, Reason.EXIT_POLICY) if case.chosen is ExitAction.RERUN else None
    if case.policy.preset_action(case.code) is ExitAction.RERUN:
        return _rerun(case, Rule.CRASH, Reason.CRASH_SIGNAL)
    return None


def _restart(case: Case) -> Decision:
    replica = case.replica
    if case.job.plan.restart_job_on_worker_restart:
        return _rerun(case, Rule.RESTART, Reason.RESTART_JOB_ON_WORKER_RESTART)
    if replica.restarts_used >= RESTARTS_MAX:
        return _rerun(case, Rule.RESTART, Reason.RESTARTS_SPENT, f" after {RESTARTS_MAX} restarts")
    refunds = explained_charges(case.state, replica, case.now) if blame(case.event) is Blame.OWN else ()
    return RestartReplica(
        replica.key,
        _last(case),
        Budget.RESTARTS,
        Rule.RESTART,
        Reason.NON_ZERO_EXIT,
        f"{case.said}: it restarts in the same VM (restart {replica.restarts_used + 1} of {RESTARTS_MAX})."
        + told(refunds),
        tuple(peer.key for peer in refunds),
    )


def _last(case: Case) -> LastExit:
    event = case.event
    return LastExit(case.replica.incarnation, event.exit_status, event.signal, event.signature, blame(event))


def _rerun(case: Case, rule: Rule, reason: Reason, after: str = "") -> Decision:
    used = case.job.budgets.reruns_used
    if used >= RERUNS_MAX:
        text = f"{case.said}{after}, and the job was rerun {RERUNS_MAX} times."
        return FailJob(messages.failed(case.event), rule, Reason.RERUNS_SPENT, text)
    text = f"{case.said}{after}: the whole job is rerun (rerun {used + 1} of {RERUNS_MAX})."
    return RerunJob(Budget.RERUNS, rule, reason, text, blame=blame(case.event))


def vm_lost(
    state: State, replica: Replica, said: str, reason: Reason, now: datetime, *, has_run: bool = False
) -> ReplaceVm | RerunJob:
    """Rule 4: another VM for the replica, at no charge. Where one restart reruns the job, so does this, if there was a
    incarnation to restart. Source: Vertex AI: restartJobOnWorkerRestart, "if a worker gets restarted", whatever the cause.
    `said`: the beginning of the decision's sentence."""
    who = replica.replica_id.words
    if state.job.plan.restart_job_on_worker_restart and (has_run or replica.ever_ready):
        text = f"{said}: the whole job is rerun, as it asks for, and {who} gets another VM, at no charge."
        return RerunJob(Budget.FREE, Rule.VM_LOST, reason, text, lost=replica.key)
    refunds = explained_charges(state, replica, now)
    text = f"{said}: {who} starts on another VM with the same hostname, at no charge." + told(refunds)
    refunds_rerun = explains_rerun(state.job, replica, now)
    if refunds_rerun:
        text += " It explains why the job was rerun: that rerun is given back."
    return ReplaceVm(replica.key, Rule.VM_LOST, reason, text, tuple(peer.key for peer in refunds), refunds_rerun)


def internal_error(job: Job, cause: str, reason: Reason) -> Decision:
    """Rule 5: not the program's doing. The attempt is restarted while that budget lasts."""
    if job.plan.disable_retries or job.budgets.internal_used >= INTERNAL_RETRIES_MAX:
        return FailJob(messages.internal_error(cause), Rule.INTERNAL, Reason.INTERNAL_BUDGET_SPENT, f"{cause}.")
    nth = job.budgets.internal_used + 1
    text = f"{cause}: the attempt is restarted (internal retry {nth} of {INTERNAL_RETRIES_MAX})."
    return RerunJob(Budget.INTERNAL, Rule.INTERNAL, reason, text)


@dataclass(frozen=True, slots=True)
class Row:
    """`takes`: what must be so for the row to apply, in words that follow "because not:"."""

    rule: Rule
    decide: Callable[[Case], Decision | None]
    takes: str


ROWS: Final = (
    Row(Rule.PRIMARY_DONE, _succeed, "the primary replica exits 0"),
    Row(Rule.REPLICA_DONE, _complete, "the replica exits 0"),
    Row(Rule.VM_LOST, _vm_stopping, "its VM was shutting down under it"),
    Row(Rule.VM_LOST, _vm_restarted, "its VM restarted under it"),
    Row(Rule.INTERNAL, _setup_failed, "the agent could not set up"),
    Row(Rule.RETRIES_DISABLED, _retries_disabled, "the job disables retries"),
    Row(Rule.COLLATERAL, _collateral, "a peer is down, or was lost during this incarnation"),
    Row(Rule.PERMANENT, _permanent, "out of memory, a permanent code, missing packages, or the same failure again"),
    Row(Rule.CRASH, _crash, "it crashed (SIGABRT, SIGSEGV)"),
    Row(Rule.RESTART, _restart, "anything else"),
)
