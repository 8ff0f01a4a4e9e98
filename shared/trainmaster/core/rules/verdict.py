"""The verdict: one decision about the round that ended, which also begins the next one.

A round is one common run of the members of a synchronous job. When one member fails or loses its
VM, its peers fail, too; so the verdict looks for the end that came first (`evidence`), and charges
that member alone. Until then the next round is held: its members wait for each other.

    first end by (rank, time)    rank 0   the machine: free
                                 else     rules 6, 8 and 10 judge this one end
    no end                       the job starts, or was rerun: the round begins

When all members are ready, all evidence is there: with its readiness, each agent has reported how
its last program ended. A verdict that ends the job does not wait for VMs that never reported.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import BeginRound, BeginRunning, FailJob
from trainmaster.core.decisions import Decision, Reason, Rule, provisional, stale
from trainmaster.core.events import (
    AllReady,
    End,
    ExitCause,
    MemberMissing,
    ReplicaExited,
    SaveOver,
)
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.members import awaited_for_start, is_ready, may_go_without, members
from trainmaster.core.rules.evidence import Rank, rank_of, replica_of
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.hung_member import find_hung_member, find_stalled_member
from trainmaster.core.rules.messages import member_names
from trainmaster.core.rules.replica_exit import first_match
from trainmaster.core.rules.user_requests import cancel_at_cap
from trainmaster.core.rules.vm_loss import FAULTY_ENDS, describe_loss


def judge_round(state: State, event: AllReady, now: datetime) -> Decision:
    """Begin the held round, rerun the job or end it. `state` holds the whole attempt."""
    job = state.job
    if (event.attempt, event.round) != (job.attempt, job.round.number) or not job.round.is_held:
        return stale(Reason.NOTHING_TO_DO, "The round began before.")
    waiting = [member for member in members(state) if not is_ready(job, member)]
    waiting += [replica for replica in awaited_for_start(state) if replica not in waiting]
    without = tuple(
        member.replica_id
        for member in waiting
        if member.awaits_vm and member.replica_id in event.without
    )
    decision = _verdict(state, event, now)
    names = member_names([member.replica_id for member in waiting])
    may_begin = not waiting or (len(without) == len(waiting) and may_go_without(job.plan, without))
    if not may_begin and not isinstance(decision.action, FailJob):
        return provisional(f"Round {event.round} waits for {names}.")
    if job.round.ends_job and job.plan.limits.cap and not isinstance(decision.action, FailJob):
        return cancel_at_cap(
            job.plan.limits.cap,
            f"All programs have ended before the job costs its maxCost, {job.plan.limits.cap}",
        )
    if without and isinstance(decision.action, BeginRound):
        text = f"{decision.text} Round {event.round} goes on without {names}."
        return replace(decision, text=text, action=replace(decision.action, without=without))
    return decision


def _verdict(state: State, event: AllReady, now: datetime) -> Decision:
    """Return the decision as if all members were ready."""
    if not event.ends:
        if state.job.state is JobState.PREPARING:
            return begin_running(state.job, event.round)
        who = "Each member that has a VM" if event.without else "Every member"
        text = f"{who} is ready: round {event.round} of attempt {event.attempt} begins."
        return Decision(Rule.LIFECYCLE, Reason.ROUND_BEGINS, text, BeginRound(event.round))
    end = event.ends[0]
    replica = state.find(event.attempt, replica_of(end))
    if replica is None:
        return provisional("The member that ended the round was not loaded.")
    if isinstance(end, ReplicaExited) and not _is_decided(end):
        # A member that hung is charged instead of the peer that reported the consequence.
        hung = (
            find_stalled_member(state, event.ends)
            if end.cause is ExitCause.STALLED
            else find_hung_member(state, end, event.ends)
        )
        return first_match(Case(state, hung or replica, end, now, is_verdict=True, ends=event.ends))
    cause = _describe(end)
    text = f"Round {event.round - 1} ended: {cause[0].lower()}{cause[1:]}. Free of charge."
    return Decision(Rule.VM_LOST, Reason.ROUND_BEGINS, text, BeginRound(event.round, replica.key))


def _is_decided(end: ReplicaExited) -> bool:
    """Whether a machine ended the round, so that the rule table has nothing to decide. A reboot is
    a row of the table, which may replace the VM. A VM that could not be set up was replaced
    already.
    """
    is_reboot = end.cause is ExitCause.VM_RESTARTED
    is_setup = end.cause is ExitCause.SETUP
    return is_setup or (rank_of(end) is Rank.MACHINE and not is_reboot)


def begin_running(job: Job, round_number: int | None = None) -> Decision:
    """Let the job run, and its first round begin if it is synchronous."""
    everyone = (
        "Every replica"
        if job.plan.restarts.gang
        else "Every replica that the job cannot start without"
    )
    cause = "The first trial runs" if job.tuning else f"{everyone} is ready"
    text = f"{cause}: the job is running."
    return Decision(Rule.LIFECYCLE, Reason.ALL_READY, text, BeginRunning(round_number))


def _describe(end: End) -> str:
    """Return what happened to the machine, as the beginning of a sentence."""
    if isinstance(end, MemberMissing):
        return f"The VM of {end.replica_id.words} was lost as the round began"
    if isinstance(end, SaveOver):
        return "The time to save was over, and more members can join"
    if isinstance(end, ReplicaExited) and end.cause is ExitCause.SAVED:
        return f"{end.subject.replica_id.words} ended after all members were asked to save"
    if isinstance(end, ReplicaExited):
        happened = FAULTY_ENDS.get(end.cause, FAULTY_ENDS[ExitCause.VM_STOPPING])
        return f"The VM of {end.subject.replica_id.words} {happened}"
    return describe_loss(end)
