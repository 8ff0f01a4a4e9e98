"""Sentences about one exit: parts of the text of the decision about it, which users read.

An exit is judged alone, or as the verdict of a round: members of a synchronous job start, fail and
restart together, and one exit decides whose failure it was. A text is `what happened` and the
consequence, which the rule passes. What is free of charge uses up no restart or rerun.

The ranks of a member, the processes that its launcher starts, may have exited 0 although the member
has not completed: its launcher still runs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from trainmaster.core.events import ReplicaExited
from trainmaster.core.model.members import channel_members
from trainmaster.core.rules import messages
from trainmaster.core.rules.exit_case import Case
from trainmaster.core.rules.hung_member import (
    find_member_without_failure,
    had_completed,
    members_that_left,
)
from trainmaster.core.rules.stall_texts import stalled_round
from trainmaster.core.timeouts import LIKELY_BUG_FAILURES, USEFUL_LIFE_MIN
from trainmaster.program_errors.meaning import Meaning, is_passing

_SAME_STEPS: Final = "Give all ranks the same number of steps: the others wait for those that end."


def outcome(case: Case) -> str:
    """Return what happened: `worker 1 exited with status 1: ValueError: ...`, or in a verdict
    `Round 8 ended: worker 1 failed first: ...`.
    """
    if not case.is_verdict:
        return f"{case.who} {messages.exit_outcome(case.event)}"
    return f"Round {case.ended_round} ended: {_end_of_round(case)}"


def _end_of_round(case: Case) -> str:
    if case.is_stall:
        stalls = [end for end in case.ends or (case.event,) if isinstance(end, ReplicaExited)]
        return stalled_round(stalls, len(channel_members(case.job.plan)))
    failure = messages.failure(case.event)
    if case.is_hung:  # the member that is charged is not the one that exited
        failed = case.event.subject.replica_id.words
        return f"{case.who} did not answer, and {failed} failed: {failure}"
    return "; ".join([f"{case.who} failed first: {failure}", *_absences(case)])


def _absences(case: Case) -> list[str]:
    """Return which members left the others, or else which single one reported no failure."""
    left = members_that_left(case.state, case.event, case.ends)
    completed = [member.replica_id for member in left if had_completed(case.job, member)]
    launching = [member.replica_id for member in left if not had_completed(case.job, member)]
    words = []
    if completed:
        words.append(f"{messages.member_names(completed)} had exited 0")
    if launching:
        words.append(f"the ranks of {messages.member_names(launching)} had exited 0")
    absent = find_member_without_failure(case.state, case.event, case.ends)
    if absent is not None and not left:
        words.append(f"{absent.replica_id.words} reported no failure")
    return words


def with_consequence(case: Case, consequence: str) -> str:
    """Return the decision's text: what happened, and what follows."""
    if case.is_verdict:
        return f"{outcome(case)}. {consequence[0].upper()}{consequence[1:]}"
    return f"{outcome(case)}: {consequence}"


def about_vm(case: Case, cause: str, consequence: str) -> str:
    """Return the text of a decision about something that happened to the VM of the replica.

    A verdict that a VM caused always has the same consequence.
    """
    if case.is_verdict:
        return f"Round {case.ended_round} ended: {cause}. Free of charge."
    return f"{cause[0].upper()}{cause[1:]}: {consequence}"


def after_pause(case: Case) -> str:
    """Return ` after a pause of 4 s`; empty if there is none."""
    pause_s = case.policy.restart_pause_s(case.quick_failures)
    return f" after a pause of {pause_s} s" if pause_s else ""


def bug_advice(case: Case) -> str:
    """Return what to do about failures that look like a bug, with a leading space; empty unless
    they do.
    """
    if case.meaning is Meaning.LOST_PEER:
        return _absence_advice(case)
    may_pass = case.meaning is not None and is_passing(case.meaning)
    if may_pass or case.code is None or case.quick_failures < LIKELY_BUG_FAILURES:
        return ""
    minutes = USEFUL_LIFE_MIN // timedelta(minutes=1)
    return (
        f" {case.quick_failures} failures in a row, each within {minutes} minutes of the start,"
        " look like a bug. "
        f'`trainmaster.exitPolicy.fail: ["{case.code}"]` ends such a job at its first failure.'
    )


def _absence_advice(case: Case) -> str:
    """Return what to do if a member or a rank is lost that reports no failure, with a leading
    space.
    """
    if case.ranks_that_left:
        return f" {case.ranks_that_left} of {case.who} had exited 0. {_SAME_STEPS}"
    if not case.is_verdict or not case.quick_failures:
        return ""
    if members_that_left(case.state, case.event, case.ends):
        return f" {_SAME_STEPS}"
    absent = find_member_without_failure(case.state, case.event, case.ends)
    if absent is None:
        return ""
    times = f"{case.quick_failures} times in a row, no" if case.quick_failures > 1 else "No"
    return (
        f" {times} VM and no program was lost. If the ranks of {absent.replica_id.words} end before"
        " those of the others, give all ranks the same number of steps."
    )
