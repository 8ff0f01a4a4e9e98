"""What stops a round, the common run of the members of a synchronous job (rule 7): the end of a
member, and requests to save before a VM goes or more members join.

    running ── a member ends, or the time to save is over ──► StopRound: the next round is held
    held    ── all members are ready again ──► the verdict (`verdict`) says what the end costs

A round is held while its members wait for each other. A member without a VM may be left out of a
round of an elastic job (`Round.without`), and joins a later one: the job grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import SaveRound, StopRound
from trainmaster.core.decisions import Decision, Reason, Rule, provisional, stale
from trainmaster.core.events import (
    ExitCause,
    MemberMissing,
    MembersJoin,
    ReplicaExited,
    SaveOver,
    VmNoticed,
)
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import (
    can_spare,
    channel_members,
    has_run,
    is_held,
    joining_members,
)
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import SaveCause, SaveRequest
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
from trainmaster.core.rules.vm_loss import VmEnd, judge_vm_end
from trainmaster.core.timeouts import SAVE_MAX


def judge_member_exit(
    state: State, replica: Replica, event: ReplicaExited, now: datetime
) -> Decision:
    """Decide about an exit of the current round.

    Most exits only stop the round: whose failure it was is decided when all members have stopped
    (the verdict). An unfit machine, a failed set-up and a failed installation decide at once,
    because no peer can cause them.
    """
    case = Case(state, replica, event, now)
    number = state.job.round.number
    held = is_held(state.job, replica.replica_id)
    if held and event.cause is ExitCause.INSTALL and can_spare(state, replica.replica_id):
        cause = f"{case.who} could not be set up ({messages.exit_outcome(event)})"
        return judge_vm_end(state, replica, VmEnd(cause, Reason.SETUP_FAILED, event.at), now)
    at_once = judge_unfit(case) or judge_setup_failure(case) or judge_failed_installation(case)
    if at_once is not None:
        return at_once
    if held and event.cause is ExitCause.INSTALL:
        # The exit policy restarts after a failed installation: the rule table decides, and counts
        # it as a failure of the round.
        return first_match(replace(case, is_verdict=True))
    if held:
        return provisional("The round has not begun.")
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
    """Note that the agent of this member has asked all members to save, and direct those that did
    not answer.

    Several notices, or a notice and another cause, within `SAVE_MAX` are one request.
    """
    job = state.job
    round_ = job.round
    members = channel_members(job.plan)
    if job.plan.saving.on_notice is not SaveOnNotice.GANG or replica.replica_id not in members:
        return stale(Reason.NOTHING_TO_DO, "The members of the job do not save together.")
    if is_held(job, replica.replica_id):
        return provisional("The round has not begun.")
    saving = round_.saving
    is_known = saving is not None and event.number <= saving.number
    is_recent = saving is not None and now - saving.at < SAVE_MAX
    # The agents answer a request of each number once. They saw this number long ago, so that none
    # of them has answered now.
    must_ask_all = is_known and not is_recent
    silent = tuple(
        member
        for number, member in enumerate(members)
        if member not in round_.without and (must_ask_all or number in event.silent)
    )
    if saving is not None and (round_.ends_job or (is_known and is_recent)):
        return _join_request(job, saving, silent, event)
    by_directive = f"; directives tell {len(silent)} of them" if silent else ""
    text = (
        f"The VM of {replica.replica_id.words} goes: all members of round {round_.number} are asked"
        f" to save{by_directive}."
    )
    number = max(event.number, round_.next_save)
    asked = SaveRequest(number, now, event.gives_up_at, SaveCause.NOTICE, silent)
    return Decision(Rule.VM_LOST, Reason.MEMBERS_SAVE, text, SaveRound(round_.number, asked))


def _join_request(
    job: Job, saving: SaveRequest, silent: Sequence[ReplicaId], event: VmNoticed
) -> Decision:
    """Let directives ask these members, too.

    The end of a request to save before a growth or the job's end stays: the report may be that of
    the primary, whose VM does not go.
    """
    others = tuple(member for member in silent if member not in saving.asked)
    if not others:
        return stale(Reason.NOTHING_TO_DO, "The members are asked to save already.")
    text = f"Directives ask {messages.member_names(others)} to save, too."
    is_of_vm = saving.why is SaveCause.NOTICE
    joined = replace(
        saving,
        number=max(saving.number, event.number),
        until=min(saving.until, event.gives_up_at) if is_of_vm else saving.until,
        asked=(*saving.asked, *others),
    )
    return Decision(Rule.ROUND, Reason.MEMBERS_SAVE, text, SaveRound(job.round.number, joined))


def judge_growth(state: State, event: MembersJoin, now: datetime) -> Decision:
    """Ask the members to save, so that the next round begins with those that this one goes
    without.
    """
    job = state.job
    round_ = job.round
    saving = round_.saving
    joining = [member.replica_id for member in joining_members(state)]
    runs = (event.attempt, event.round) == (job.attempt, round_.number) and not round_.is_held
    has_other_request = event.number != round_.next_save
    is_saving = saving is not None and now - saving.at < SAVE_MAX
    if not runs or has_other_request or round_.ends_job or is_saving or not joining:
        return provisional("The round has ended, its members save, or none can join.")
    who = messages.member_names(joining)
    until = now + SAVE_MAX
    text = (
        f"{who} can join round {event.round + 1}: all members of round {event.round} are asked to"
        f" save. The round ends when one of them has stopped, or at {until:%H:%M:%S}: a program"
        f" that does not catch {job.plan.saving.signal} runs until then, and repeats what it did"
        " since its last checkpoint."
    )
    asked = SaveRequest(event.number, now, until, SaveCause.GROWTH, (job.plan.primary,))
    return Decision(Rule.ROUND, Reason.MEMBERS_SAVE, text, SaveRound(event.round, asked))


def judge_save_over(state: State, event: SaveOver, now: datetime) -> Decision:
    """End a round whose members were asked to save and have not stopped, because more can join."""
    job = state.job
    round_ = job.round
    saving = round_.saving
    primary = state.find(event.attempt, event.replica_id)
    is_of_round = (event.attempt, event.round) == (job.attempt, round_.number)
    has_ended = not is_of_round or round_.is_held
    if has_ended or primary is None or saving is None or saving.number != event.number:
        return stale(Reason.NOTHING_TO_DO, "The round has ended, or another request followed.")
    if saving.why is not SaveCause.GROWTH or now < saving.until:
        return provisional("The time of the request is not over.")
    signal = job.plan.saving.signal
    text = (
        f"Round {event.round} ended: its programs did not stop within"
        f" {SAVE_MAX.seconds // 60} minutes, and more members can join. Programs that do not catch"
        f" {signal} were not asked to save, and repeat what they did since their last checkpoint."
        " Free of charge."
    )
    return Decision(Rule.ROUND, Reason.SAVED, text, StopRound(event.round, primary.key))


def judge_primary_success(state: State, event: ReplicaExited, now: datetime) -> Decision | None:
    """End the job if the event is a success of its primary; None: it is not.

    The primary is the replica whose exit 0 is the job's success. It counts in any round and on any
    VM of the current attempt. In the attempt before, it counts unless the primary has run again
    since.
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
    is_host_of_slice = subject.host is not None
    if is_host_of_slice and not is_of_last:  # its other hosts may not have exited 0
        return None
    return judge_exit_zero(Case(state, replica, event, now))


def judge_missing_member(state: State, event: MemberMissing, now: datetime) -> Decision:
    """Stop a round that began although the VM of a member had been lost."""
    job = state.job
    replica = state.find(event.attempt, event.replica_id)
    is_of_round = (event.attempt, event.round) == (job.attempt, job.round.number)
    if not is_of_round or job.round.is_held or replica is None:
        return stale(Reason.NOTHING_TO_DO, "The round has ended.")
    if not replica.awaits_vm or event.replica_id in job.round.without:
        return stale(Reason.NOTHING_TO_DO, "The member has a VM, or the round goes without it.")
    who = event.replica_id.words
    text = (
        f"Round {event.round} ended: the VM of {who} was lost as the round began. Free of charge."
    )
    return Decision(Rule.ROUND, Reason.GONE, text, StopRound(event.round, replica.key))
