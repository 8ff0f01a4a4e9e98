"""Ends of members, which stop their round (rule 7). The verdict follows when all members are ready for the next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import SaveRound, StopRound
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import ExitCause, MemberMissing, ReplicaExited, VmNoticed
from trainmaster.core.model.job import State
from trainmaster.core.model.members import channel_members
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.round import Saving
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.replica_exit import (
    first_match,
    judge_exit_zero,
    judge_failed_installation,
    judge_setup_failure,
    judge_unfit,
    judge_vm_stopping,
)

SAVE_AGAIN_MIN: Final = timedelta(minutes=10)
"""Notices of several VMs that follow each other within this time are one, as in the agent. A later one asks again: the
first may have been withdrawn."""


def judge_member_exit(state: State, replica: Replica, event: ReplicaExited, now: datetime) -> Decision:
    """Decide about an exit of the current round. No peer can cause an unfit machine, a failed set-up or a failed
    installation, so these decide at once."""
    case, number = Case(state, replica, event, now), state.job.round.number
    if decision := judge_unfit(case) or judge_setup_failure(case) or judge_failed_installation(case):
        return decision
    if state.job.round.is_held and event.cause is ExitCause.INSTALL:  # the exit policy restarts it
        return first_match(replace(case, is_verdict=True))
    if state.job.round.is_held:
        return stale(Reason.ROUND_ENDED, "The round has not begun.")
    if decision := judge_exit_zero(case) or judge_vm_stopping(case):
        return decision
    rule, reason = Rule.ROUND, Reason.MEMBER_FAILED
    text = f"{case.outcome}: round {number} ends, and its verdict follows when every member has stopped."
    if event.cause is ExitCause.SAVED:
        rule, reason = Rule.VM_LOST, Reason.SAVED
        text = f"Round {number} ended: {case.who} ended after all members were asked to save. Free of charge."
    new_vm = None if replica.instance_id else event.subject.vm.instance_id or None
    return Decision(rule, reason, text, StopRound(number, replica.key, instance_id=new_vm))


def judge_notice(state: State, replica: Replica, event: VmNoticed, now: datetime) -> Decision:
    """Note that all members save, because the VM of this one goes. Of several notices the first one counts."""
    job, members = state.job, channel_members(state.job.plan)
    if job.plan.save_on_notice != "gang" or replica.replica_id not in members:
        return stale(Reason.NOTHING_TO_DO, "The members of the job do not save together.")
    if job.round.is_held or (job.round.saving and now - job.round.saving.at < SAVE_AGAIN_MIN):
        return stale(Reason.ROUND_ENDED, "The round has not begun, or its members save already.")
    silent = tuple(members[number] for number in sorted(set(event.silent)) if 0 <= number < len(members))
    told = f"; directives tell {len(silent)} of them" if silent else ""
    text = f"The VM of {replica.replica_id.words} goes: all members of round {job.round.number} save{told}."
    saving = Saving(replica.replica_id, now, event.gives_up_at, silent)
    return Decision(Rule.VM_LOST, Reason.MEMBERS_SAVE, text, SaveRound(job.round.number, saving))


def judge_primary_success(state: State, event: ReplicaExited, now: datetime) -> Decision | None:
    """End the job if its primary exited 0 in any round and on any VM of this attempt; None: it did not."""
    job, subject = state.job, event.subject
    replica = state.find(job.attempt, subject.replica_id)
    if (
        replica is None
        or not event.succeeded
        or (subject.attempt, subject.replica_id)
        != (
            job.attempt,
            job.plan.primary,
        )
    ):
        return None
    is_slice = job.plan.group(subject.replica_id.task_type).hosts > 1
    is_of_last = (subject.vm_generation, subject.incarnation) == (replica.vm_generation, replica.incarnation)
    if is_slice and not is_of_last:  # not every host of it is known to have exited 0
        return None
    return judge_exit_zero(Case(state, replica, event, now))


def judge_missing_member(state: State, event: MemberMissing, now: datetime) -> Decision:
    """Stop a round that began although the VM of a member had been lost."""
    job = state.job
    replica = state.find(event.attempt, event.replica_id)
    if (event.attempt, event.round) != (job.attempt, job.round.number) or job.round.is_held or replica is None:
        return stale(Reason.NOTHING_TO_DO, "The round has ended.")
    if not replica.awaits_vm:
        return stale(Reason.NOTHING_TO_DO, "The member has a VM.")
    who = event.replica_id.words
    text = f"Round {event.round} ended: the VM of {who} was lost as the round began. Free of charge."
    return Decision(Rule.ROUND, Reason.MEMBER_MISSING, text, StopRound(event.round, replica.key))
