"""Ends of members, which stop their round (rule 7).

The verdict follows when all members are ready for the next one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import SaveRound, StopRound
from trainmaster.core.decisions import Decision, Reason, Rule, not_yet, stale
from trainmaster.core.events import ExitCause, MemberMissing, MembersJoin, ReplicaExited, VmNoticed
from trainmaster.core.model.job import State
from trainmaster.core.model.members import (
    can_spare,
    channel_members,
    has_run,
    is_held,
    joining_members,
)
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.round import Saving
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.rules import exit_texts, messages
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.replica_exit import (
    first_match,
    judge_exit_zero,
    judge_failed_installation,
    judge_setup_failure,
    judge_unfit,
    judge_vm_stopping,
)
from trainmaster.core.rules.vm_loss import replace_vm
from trainmaster.core.timeouts import SAVE_AGAIN_MIN


def judge_member_exit(
    state: State, replica: Replica, event: ReplicaExited, now: datetime
) -> Decision:
    """Decide about an exit of the current round.

    No peer can cause an unfit machine, a failed set-up or a failed installation, so these decide at
    once.
    """
    case = Case(state, replica, event, now)
    number = state.job.round.number
    held = is_held(state.job, replica.replica_id)
    is_setup = event.cause in (ExitCause.SETUP, ExitCause.INSTALL)
    if held and is_setup and can_spare(state, replica.replica_id):
        cause = f"{case.who} could not be set up ({messages.exit_outcome(event)})"
        return replace_vm(state, replica, cause, Reason.SETUP_FAILED, event.at, now)
    at_once = judge_unfit(case) or judge_setup_failure(case) or judge_failed_installation(case)
    if at_once is not None:
        return at_once
    if held and event.cause is ExitCause.INSTALL:  # the exit policy restarts it
        return first_match(replace(case, is_verdict=True))
    if held:
        return stale(Reason.ROUND_ENDED, "The round has not begun.")
    no_failure = judge_exit_zero(case) or judge_vm_stopping(case)
    if no_failure is not None:
        return no_failure
    rule = Rule.ROUND
    reason = Reason.MEMBER_FAILED
    text = (
        f"{exit_texts.outcome(case)}: round {number} ends, and its verdict follows when every"
        " member has stopped."
    )
    if event.cause is ExitCause.SAVED:
        rule = Rule.VM_LOST
        reason = Reason.SAVED
        text = (
            f"Round {number} ended: {case.who} ended after all members were asked to save. Free of"
            " charge."
        )
    return Decision(rule, reason, text, StopRound(number, replica.key))


def judge_notice(state: State, replica: Replica, event: VmNoticed, now: datetime) -> Decision:
    """Note that all members save, because the VM of this one goes.

    Of several notices the first one counts.
    """
    job = state.job
    members = channel_members(state.job.plan)
    saving = state.job.round.saving
    if job.plan.saving.on_notice is not SaveOnNotice.GANG or replica.replica_id not in members:
        return stale(Reason.NOTHING_TO_DO, "The members of the job do not save together.")
    numbers = sorted({number for number in event.silent if 0 <= number < len(members)})
    silent = tuple(
        members[number] for number in numbers if members[number] not in job.round.without
    )
    is_asked = saving is not None and saving.grows and saving.by == replica.replica_id
    if saving and is_asked and set(silent) - set(saving.silent) and not job.round.is_held:
        text = f"Directives tell {len(silent)} members of round {job.round.number} to save."
        asked = replace(saving, gives_up_at=event.gives_up_at, silent=(*saving.silent, *silent))
        return Decision(Rule.ROUND, Reason.MEMBERS_SAVE, text, SaveRound(job.round.number, asked))
    if (
        is_held(job, replica.replica_id)
        or is_asked
        or (saving and now - saving.at < SAVE_AGAIN_MIN)
    ):
        return stale(Reason.ROUND_ENDED, "The round has not begun, or its members save already.")
    told = f"; directives tell {len(silent)} of them" if silent else ""
    text = (
        f"The VM of {replica.replica_id.words} goes: all members of round {job.round.number}"
        f" save{told}."
    )
    saving = Saving(replica.replica_id, now, event.gives_up_at, silent)
    return Decision(Rule.VM_LOST, Reason.MEMBERS_SAVE, text, SaveRound(job.round.number, saving))


def judge_growth(state: State, event: MembersJoin, now: datetime) -> Decision:
    """Let the members save, so that the next round begins with those that this one goes without."""
    job = state.job
    round_ = state.job.round
    joining = [member.replica_id for member in joining_members(state)]
    if (
        (event.attempt, event.round) != (job.attempt, round_.number)
        or round_.is_held
        or round_.saving
        or not joining
    ):
        return not_yet("The round has ended, its members save, or none can join.")
    who = messages.member_names(joining)
    text = (
        f"{who} can join round {event.round + 1}: all members of round {event.round} save and stop."
    )
    saving = Saving(job.plan.primary, now, now + SAVE_AGAIN_MIN, (job.plan.primary,), grows=True)
    return Decision(Rule.ROUND, Reason.MEMBERS_JOIN, text, SaveRound(event.round, saving))


def judge_primary_success(state: State, event: ReplicaExited, now: datetime) -> Decision | None:
    """End the job if its primary exited 0 in any round and on any VM of this attempt, or of the one
    before, unless it has run in this one; None: it did not.
    """
    job = state.job
    subject = event.subject
    replica = state.find(job.attempt, subject.replica_id)
    if replica is None or not event.succeeded or subject.replica_id != job.plan.primary:
        return None
    is_of_attempt = subject.attempt == job.attempt
    is_of_one_before = subject.attempt == job.attempt - 1
    if not is_of_attempt and not (is_of_one_before and not has_run(job, replica)):
        return None
    is_of_last = is_of_attempt and (subject.vm_generation, subject.incarnation) == (
        replica.vm_generation,
        replica.incarnation,
    )
    if (
        subject.host is not None and not is_of_last
    ):  # not every host of the slice is known to have exited 0
        return None
    return judge_exit_zero(Case(state, replica, event, now))


def judge_missing_member(state: State, event: MemberMissing, now: datetime) -> Decision:
    """Stop a round that began although the VM of a member had been lost."""
    job = state.job
    replica = state.find(event.attempt, event.replica_id)
    if (
        (event.attempt, event.round) != (job.attempt, job.round.number)
        or job.round.is_held
        or replica is None
    ):
        return stale(Reason.NOTHING_TO_DO, "The round has ended.")
    if not replica.awaits_vm or event.replica_id in job.round.without:
        return stale(Reason.NOTHING_TO_DO, "The member has a VM, or the round goes without it.")
    who = event.replica_id.words
    text = (
        f"Round {event.round} ended: the VM of {who} was lost as the round began. Free of charge."
    )
    return Decision(Rule.ROUND, Reason.MEMBER_MISSING, text, StopRound(event.round, replica.key))
