"""Ends of members, which stop their round (rule 7). The verdict follows when all members are ready for the next one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import StopRound
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import ExitCause, MemberMissing, ReplicaExited
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.replica_exit import (
    first_match,
    judge_exit_zero,
    judge_failed_installation,
    judge_setup_failure,
    judge_vm_stopping,
)


def judge_member_exit(state: State, replica: Replica, event: ReplicaExited, now: datetime) -> Decision:
    """Decide about an exit of the current round. No peer can cause a failed set-up or installation, so it decides at
    once."""
    case, number = Case(state, replica, event, now), state.job.round.number
    if decision := judge_setup_failure(case) or judge_failed_installation(case):
        return decision
    if state.job.round.is_held and event.cause is ExitCause.INSTALL:  # the exit policy restarts it
        return first_match(replace(case, is_verdict=True))
    if state.job.round.is_held:
        return stale(Reason.ROUND_ENDED, "The round has not begun.")
    if decision := judge_exit_zero(case) or judge_vm_stopping(case):
        return decision
    text = f"{case.outcome}: round {number} ends, and its verdict follows when every member has stopped."
    new_vm = None if replica.instance_id else event.subject.vm.instance_id or None
    return Decision(Rule.ROUND, Reason.MEMBER_FAILED, text, StopRound(number, replica.key, instance_id=new_vm))


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
