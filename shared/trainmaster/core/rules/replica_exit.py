"""Decide what follows the exit of a replica's program (rules 2 to 10).

`ROWS` lists the rules. They are tried in this order, and the first one that applies decides.

There are two kinds of exits, which `Case.is_verdict` tells apart: that of a replica which is judged
alone; and the one exit that decides about a round, in which the members of a synchronous job start,
fail and restart together (`verdict`). Then "restart" means the next round.

Each row is a function from the case to a decision, or to None if the row does not apply.
`Row.condition` says in words when it applies; `trainmaster why` prints the conditions of the rows
that were passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import (
    Budget,
    FailJob,
    RecordCompletion,
    RecordHostDone,
    SucceedJob,
)
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.exit_policy import ExitAction, Preset
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import RERUNS_MAX, RESTARTS_MAX, State
from trainmaster.core.model.last_progress import LastProgress
from trainmaster.core.model.members import can_spare
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules import exit_texts, messages
from trainmaster.core.rules.exit_actions import replace_action, rerun_action, restart_action
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.failure_row import Following
from trainmaster.core.rules.messages import has_image_error
from trainmaster.core.rules.success_notes import success_notes
from trainmaster.core.rules.user_requests import cancel_at_cap
from trainmaster.core.rules.vm_loss import VmEnd, judge_vm_end
from trainmaster.core.rules.wasted import is_short_life
from trainmaster.core.timeouts import USEFUL_LIFE_MIN

IMPORT_ERRORS: Final = (
    "ModuleNotFoundError",
    "ImportError",
    "SyntaxError",
    "IndentationError",
    "TabError",
)
"""Exceptions of a program that cannot be imported.

Another attempt raises them again, if they came soon after the start: a program that has run for
longer may have raised them from its data or from its VM's libraries.
"""


def judge_exit(state: State, replica: Replica, event: ReplicaExited, now: datetime) -> Decision:
    """Decide about an exit of the current incarnation of a replica that is judged alone."""
    cap = state.job.plan.limits.cap
    if event.cause is ExitCause.SAVED and state.job.round.ends_job and cap is not None:
        return _judge_last_save(state, replica, cap)
    return first_match(Case(state, replica, event, now))


def _judge_last_save(state: State, replica: Replica, cap: Cap) -> Decision:
    """Decide about an exit after the save with which a job ends, because it is about to cost its
    cap.
    """
    plan = state.job.plan
    ended = f"{replica.replica_id.words} ended after it was asked to save"
    has_other_programs = len(plan.replica_ids) > 1 or plan.groups[0].hosts > 1
    if has_other_programs:  # they may still save
        return stale(Reason.NOTHING_TO_DO, f"{ended}. The job is about to be cancelled.")
    return cancel_at_cap(cap, f"{ended}, before the job costs its maxCost, {cap}")


def first_match(case: Case) -> Decision:
    """Return the decision of the first row that applies. The last one always does."""
    decisions = (row.decide(case) for row in ROWS)
    return next(decision for decision in decisions if decision is not None)


# The rows. `member_exit` judges by some of them alone, before all members are ready.


def judge_exit_zero(case: Case) -> Decision | None:
    """Decide about an exit 0 (rules 2 and 3); None: the exit is another one."""
    event = case.event
    replica = case.replica
    who = case.who
    host = event.subject.host
    if not event.succeeded:
        return None
    if host is not None and case.hosts_left:
        text = f"Host {host} of {who} exited 0; {case.hosts_left} of its hosts still run."
        action = RecordHostDone(replica.key, host, event.measurement)
        return Decision(Rule.REPLICA_DONE, Reason.HOST_EXITED_ZERO, text, action)
    if replica.replica_id == case.job.plan.primary:
        notes = success_notes(case.state, event)
        text = f"{who} is the primary and exited 0."
        if notes:
            text += f" But: {'; '.join(notes)}."
        success = SucceedJob(replica.key, event.measurement, notes, event.progress)
        return Decision(Rule.PRIMARY_DONE, Reason.PRIMARY_EXITED_ZERO, text, success)
    completion = RecordCompletion(replica.key, event.at)
    return Decision(
        Rule.REPLICA_DONE, Reason.EXITED_ZERO, f"{who} exited 0; the job continues.", completion
    )


def judge_vm_stopping(case: Case) -> Decision | None:
    """Decide by rule 4 about an exit while the VM shuts down; None: the exit is another one.

    Treat every exit during a shutdown as a lost VM, even an exit 0: the program may exit 0 after a
    checkpoint.
    """
    if case.event.cause is not ExitCause.VM_STOPPING:
        return None
    cause = f"The VM of {case.who} was shutting down when its program exited"
    end = VmEnd(cause, Reason.VM_STOPPING, case.event.at, case.event.measurement)
    return judge_vm_end(case.state, case.replica, end, case.now)


def judge_unfit(case: Case) -> Decision | None:
    """Decide by rule 4 about a machine that failed the preflight; None: the exit is another one."""
    if case.event.cause is not ExitCause.UNFIT:
        return None
    fault = case.event.tail.strip()
    cause = (
        f"The VM of {case.who} failed the preflight ({fault}; `trainmaster.preflight: report` keeps"
        " such VMs)"
    )
    end = VmEnd(cause, Reason.UNFIT, case.event.at)
    return judge_vm_end(case.state, case.replica, end, case.now)


def _interrupted(case: Case) -> Decision | None:
    """Restart in the same VM, free of charge, after a reboot, or after a save because of a notice
    that was withdrawn.

    If the program had just started when the VM rebooted, restart on another one: the program, or a
    fault of the machine, may bring the VM down at each start.
    """
    match case.event.cause:
        case ExitCause.VM_RESTARTED:
            reason = Reason.VM_RESTARTED
            cause = f"the VM of {case.who} rebooted under its program"
        case ExitCause.SAVED:
            reason = Reason.SAVED
            cause = f"{case.who} ended after it was asked to save"
        case _:
            return None
    is_young = case.is_on_current_vm and is_short_life(case.program_began_at, case.event.at)
    if is_young and reason is Reason.VM_RESTARTED:
        what = f"{cause[0].upper()}{cause[1:]}"
        end = VmEnd(what, reason, case.event.at, is_verdict=case.is_verdict)
        return judge_vm_end(case.state, case.replica, end, case.now)
    rerun = case.job.plan.restarts.restart_job_on_worker_restart
    consequence = (
        "the whole job is rerun (restartJobOnWorkerRestart)"
        if rerun
        else "it restarts in the same VM"
    )
    text = exit_texts.about_vm(case, cause, f"{consequence}, free of charge.")
    action = rerun_action(case, Budget.FREE) if rerun else restart_action(case, Budget.FREE)
    return Decision(Rule.VM_LOST, reason, text, action)


def judge_setup_failure(case: Case) -> Decision | None:
    """Decide by rule 4 about a set-up that failed; None: the exit is another one."""
    if case.event.cause is not ExitCause.SETUP:
        return None
    problem = case.event.tail.strip() or (
        case.event.error.message if case.event.error else "no cause given"
    )
    cause = f"{case.who} could not be set up: {problem}"
    is_spared = can_spare(case.state, case.replica.replica_id)
    is_needed = is_required(case.job.plan, case.replica.replica_id) and not is_spared
    if case.job.plan.restarts.disable_retries and is_needed:
        failure = FailJob(messages.internal_error(cause), case.replica.key)
        text = f"{cause}: retries are disabled."
        return Decision(Rule.RETRIES_DISABLED, Reason.RETRIES_DISABLED, text, failure)
    end = VmEnd(cause, Reason.SETUP_FAILED, case.event.at)
    return judge_vm_end(case.state, case.replica, end, case.now)


def _retries_disabled(case: Case) -> Decision | None:
    """Fail at the first failure, by rule 6."""
    if not case.job.plan.restarts.disable_retries:
        return None
    return _fail(case, Rule.RETRIES_DISABLED, Reason.RETRIES_DISABLED, "retries are disabled.")


def _permanent(case: Case) -> Decision | None:
    """Fail at a failure that another attempt would repeat."""
    reason = _permanent_reason(case)
    if reason is None:
        return None
    what = (
        "it hung at the same lines twice in a row" if case.is_stall else "this error is permanent"
    )
    return _fail(case, Rule.PERMANENT, reason, f"{what}, so it is not retried.")


def judge_failed_installation(case: Case) -> Decision | None:
    """Decide by rule 8 about packages or imports that fail; None: the exit is another one, or the
    policy decides.
    """
    is_installation = _permanent_reason(case) in (Reason.INSTALL_FAILED, Reason.IMAGE_FAILED)
    return _permanent(case) if is_installation else None


def _permanent_reason(case: Case) -> Reason | None:
    """Return why the failure is permanent; None: it may be transient.

    The user's own rules for exit codes come first. The preset `restart` restarts after everything.
    """
    event = case.event
    if case.user_action is not None:
        return Reason.EXIT_POLICY if case.user_action is ExitAction.FAIL else None
    if case.policy.preset is Preset.RESTART:
        return None
    if event.out_of_memory:
        return Reason.OUT_OF_MEMORY
    cannot_import = (
        event.error
        and event.error.type in IMPORT_ERRORS
        and timedelta(seconds=event.ran_s or 0) < USEFUL_LIFE_MIN
    )
    if event.cause is ExitCause.INSTALL or cannot_import:
        return Reason.IMAGE_FAILED if has_image_error(event) else Reason.INSTALL_FAILED
    if case.policy.preset_action(case.code) is ExitAction.FAIL and not case.is_peer_loss_at_service:
        return Reason.COMMON_ERROR
    return Reason.SAME_FAILURE_AGAIN if case.proves_bug else None


def _crash(case: Case) -> Decision | None:
    """Rerun the whole job, if the exit policy says so for this exit code."""
    if case.user_action is not None:
        return (
            _rerun(case, Rule.CRASH, Reason.EXIT_POLICY)
            if case.user_action is ExitAction.RERUN
            else None
        )
    # A round restarts all members anyway, as a rerun would.
    if not case.is_verdict and case.policy.preset_action(case.code) is ExitAction.RERUN:
        is_second = case.job.budgets.reruns_used > 0
        return _rerun(case, Rule.CRASH, Reason.CRASH_SIGNAL, replaces_vm=is_second)
    return None


def _restart(case: Case) -> Decision:
    """Restart the replica or the round; rerun the job if it must, or if no restarts are left."""
    if case.job.plan.restarts.restart_job_on_worker_restart:
        return _rerun(case, Rule.RESTART, Reason.RESTART_JOB_ON_WORKER_RESTART)
    if case.restarts_used >= RESTARTS_MAX:
        after = f"after {RESTARTS_MAX} restarts, "
        return _rerun(case, Rule.RESTART, Reason.RESTARTS_SPENT, after, replaces_vm=True)
    # In a held round, all others wait: a failed installation is repeated on another VM.
    replaces_vm = case.is_verdict and case.event.cause is ExitCause.INSTALL
    number = _restart_number(case)
    if replaces_vm:
        action = replace_action(case)
    else:
        whose = f" of {case.who}" if case.is_verdict else ""
        step = f"{number}{whose}{exit_texts.after_pause(case)}"
        following = Following(step, case.failures_left)
        action = restart_action(case, Budget.RESTARTS, following, case.bug)
    is_on_other_vm = replaces_vm or not case.is_on_current_vm
    where = "on another VM" if is_on_other_vm else f"in the same VM{exit_texts.after_pause(case)}"
    restarts = (
        f"{number} of {case.who}, {where}" if case.is_verdict else f"it restarts {where} ({number})"
    )
    return Decision(
        Rule.RESTART,
        Reason.STALLED if case.is_stall else Reason.NON_ZERO_EXIT,
        exit_texts.with_consequence(case, f"{restarts}.{exit_texts.bug_advice(case)}"),
        action,
    )


def _restart_number(case: Case) -> str:
    """Return `restart 2 of 5`, and how many earlier ones do not count: losses of VMs explain
    them.
    """
    number = f"restart {case.restarts_used + 1} of {RESTARTS_MAX}"
    excused = len(case.state.excused)
    return f"{number}; {excused} beside losses of VMs do not count" if excused else number


def _rerun(
    case: Case, rule: Rule, reason: Reason, after: str = "", *, replaces_vm: bool = False
) -> Decision:
    """Rerun the job while reruns last.

    `replaces_vm`: on another VM of the replica, which may be the cause.
    """
    used = case.job.budgets.reruns_used
    if used >= RERUNS_MAX:
        return _fail(
            case, rule, Reason.RERUNS_SPENT, f"{after}the job was rerun {RERUNS_MAX} times."
        )
    replaces_vm &= case.is_on_current_vm
    other_vm = f", {case.who} on another VM" if replaces_vm else ""
    number = f"rerun {used + 1} of {RERUNS_MAX}"
    pause = exit_texts.after_pause(case)
    advice = exit_texts.bug_advice(case)
    text = exit_texts.with_consequence(
        case, f"{after}the whole job is rerun{pause} ({number}){other_vm}.{advice}"
    )
    following = Following(f"{number}{pause}", _failures_left_after_rerun(case))
    action = rerun_action(case, Budget.RERUNS, following, case.bug, replaces_vm=replaces_vm)
    return Decision(rule, reason, text, action)


def _fail(case: Case, rule: Rule, reason: Reason, consequence: str) -> Decision:
    """Return the decision to end the job with this exit as its error message, or to give up an
    optional replica.
    """
    key = case.replica.key
    if not is_required(case.job.plan, case.replica.replica_id):
        consequence = f"{consequence} The job continues without {case.who}."
        text = exit_texts.with_consequence(case, consequence)
        return Decision(rule, reason, text, RecordCompletion(key, case.event.at))
    silent = case.replica.replica_id if case.is_hung and not case.is_stall else None
    message = messages.replica_failed(_end_of_charged(case), case.job.plan, silent)
    action = FailJob(message, key, _progress_of_primary(case))
    return Decision(rule, reason, exit_texts.with_consequence(case, consequence), action)


def _end_of_charged(case: Case) -> ReplicaExited:
    """Return the end of the replica that is charged; if it has none, the end that decides."""
    own = (
        end
        for end in case.ends
        if isinstance(end, ReplicaExited) and end.subject.replica_id == case.replica.replica_id
    )
    return next(own, case.event)


def _progress_of_primary(case: Case) -> LastProgress | None:
    """Return how far the primary's program was; None: its end is not among those that decide."""
    exits = (end for end in (case.event, *case.ends) if isinstance(end, ReplicaExited))
    primary = case.job.plan.primary
    return next((end.progress for end in exits if end.subject.replica_id == primary), None)


def _failures_left_after_rerun(case: Case) -> int | None:
    """Return `Case.failures_left` after a rerun: the restarts that are left to the current attempt
    are lost.
    """
    if case.failures_left is None or case.job.plan.restarts.restart_job_on_worker_restart:
        return case.failures_left
    return case.failures_left - max(RESTARTS_MAX - case.restarts_used, 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the rule table for exits."""

    rule: Rule
    decide: Callable[[Case], Decision | None]
    condition: str
    """When the row applies, in words."""


# The order counts, not the ids of the rules. The column "order" in docs/rules.md has the same
# order.
ROWS: Final = (
    Row(Rule.PRIMARY_DONE, judge_exit_zero, "the primary replica exits 0"),
    Row(Rule.VM_LOST, judge_vm_stopping, "its VM was shutting down"),
    Row(Rule.VM_LOST, judge_unfit, "its machine failed the preflight"),
    Row(Rule.VM_LOST, _interrupted, "its VM rebooted, or it was asked to save"),
    Row(Rule.VM_LOST, judge_setup_failure, "the agent could not set up"),
    Row(Rule.RETRIES_DISABLED, _retries_disabled, "the job disables retries"),
    Row(
        Rule.PERMANENT,
        _permanent,
        "out of memory, a permanent exit code, missing packages, or a repeated bug",
    ),
    Row(Rule.CRASH, _crash, "it crashed outside of a round (SIGABRT, SIGSEGV)"),
    Row(Rule.RESTART, _restart, "any other failure"),
)
