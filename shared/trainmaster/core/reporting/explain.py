"""The ledger in plain words, and what another exit policy would have decided: what `why` and
`replay` print.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Final

from trainmaster.core.actions import (
    ContinueProvisioning,
    FailJob,
    Ignore,
    MarkHostReady,
    MarkReady,
    RecordMeasurements,
    ReplaceVm,
    RerunJob,
    StopRound,
)
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import (
    AllReady,
    MemberMissing,
    ReplicaEvent,
    ReplicaExited,
    SaveOver,
    VmReady,
)
from trainmaster.core.ledger import LedgerEntry, judged, replay
from trainmaster.core.model.exit_policy import ExitPolicy
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.replica import replica_key
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.replica_exit import ROWS

CAPACITY_ERRORS_SHOWN: Final = 8
"""Capacity errors in a row that are shown: two passes over the zones of a region."""
MEASUREMENTS_SHOWN: Final = 1
"""Entries in a row with measurements of running trials that are shown, besides the last one."""

READY_SHOWN: Final = 8
"""Reports of ready replicas in a row that are shown, besides the last one."""

_COUNTERS: Final = ("restarts_used", "reruns_used", "replaced")


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that another policy would have changed, judged on the state that existed at the
    time.
    """

    entry: LedgerEntry
    would_be: Decision


def replica_of(entry: LedgerEntry) -> ReplicaId | None:
    """Return the replica that the entry is about; None: the job as a whole."""
    event = entry.event
    if isinstance(event, MemberMissing | SaveOver):
        return event.replica_id
    return event.subject.replica_id if isinstance(event, ReplicaEvent) else None


def is_news(entry: LedgerEntry) -> bool:
    """Whether the entry changed something, or reports what the job waits for."""
    decision = entry.decision
    return not isinstance(decision.action, Ignore) or decision.reason in (
        Reason.QUEUED,
        Reason.OUT_OF_REACH,
    )


def final_entry(job: Job, entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Return the entry whose decision ended the job; None if the job has not ended, or if its
    ledger has expired.
    """
    return next(
        (entry for entry in reversed(entries) if entry.at == job.ended_at and is_news(entry)), None
    )


def final_exit(job: Job, entries: Sequence[LedgerEntry]) -> ReplicaExited | None:
    """Return the exit that ended the job; None if something else did, or if it is not known.

    A verdict about a round ends the job for the exit of one member, which is in the ledger.
    """
    final = final_entry(job, entries)
    if final is None:
        return None
    if isinstance(final.event, ReplicaExited):
        return final.event
    action = final.decision.action
    if not isinstance(action, FailJob):
        return None
    exits = (
        entry.event
        for entry in reversed(entries)
        if isinstance(entry.event, ReplicaExited) and entry.before.attempt == job.attempt
    )
    return next((event for event in exits if _replica_key(event) == action.replica), None)


def _replica_key(event: ReplicaExited) -> str:
    return replica_key(event.subject.attempt, event.subject.replica_id)


def shown_entries(
    entries: Iterable[LedgerEntry],
    replica_id: ReplicaId | None,
    *,
    everything: bool,
    with_ends: bool = False,
) -> tuple[tuple[LedgerEntry, int], ...]:
    """Return the entries about a replica, or all, in the form of `condense`.

    `everything`: without leaving any out. `with_ends`: with the end of each round besides its
    verdict.
    """
    chosen = [
        entry for entry in entries if replica_id is None or replica_of(entry) in (None, replica_id)
    ]
    return (
        tuple((entry, 0) for entry in chosen)
        if everything
        else condense(one_per_round(chosen, with_ends=with_ends))
    )


def one_per_round(
    entries: Iterable[LedgerEntry], *, with_ends: bool = False
) -> tuple[LedgerEntry, ...]:
    """Return the news among these entries, with one about each round: its verdict, or its end while
    that is all.

    The reports of members that they are ready for a later round are left out, unless their VM
    failed the preflight.
    """
    shown = []
    is_judged = False
    for entry in reversed([entry for entry in entries if is_news(entry)]):
        action = entry.decision.action
        is_verdict = isinstance(entry.event, AllReady)
        is_end = isinstance(action, StopRound) and not is_verdict
        is_end_of_judged_round = is_end and is_judged
        if _is_later_readiness(entry) or (is_end_of_judged_round and not with_ends):
            continue
        is_judged |= is_verdict or isinstance(action, RerunJob | FailJob)
        shown.append(entry)
    return tuple(reversed(shown))


def _is_later_readiness(entry: LedgerEntry) -> bool:
    """Whether the entry is only the report that a member, which has been ready before, is ready
    again.
    """
    action = entry.decision.action
    if not isinstance(action, MarkReady | MarkHostReady):
        return False
    is_first = (action.round or 1) == 1 and entry.after.attempt <= 1
    return not is_first and not _has_finding(entry)


def _has_finding(entry: LedgerEntry) -> bool:
    """Whether the entry is about a VM that failed the preflight."""
    return isinstance(entry.event, VmReady) and bool(entry.event.finding)


def budget_changes(entry: LedgerEntry) -> tuple[tuple[str, int, int], ...]:
    """Return the counters of an attempt that the decision changed: name, before, after."""
    before = entry.before
    after = entry.after
    if before.attempt != after.attempt:
        return ()
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in _COUNTERS)
    return tuple((name, old, new) for name, old, new in pairs if old != new)


def condense(entries: Iterable[LedgerEntry]) -> tuple[tuple[LedgerEntry, int], ...]:
    """Return the entries to show, each with the number of entries left out before it.

    In a long series of capacity errors, of measurements or of ready replicas, the first ones and
    the last one are shown.
    """
    shown: list[tuple[LedgerEntry, int]] = []
    for (_, limit), group in groupby(entries, _shown_in_a_row):
        series = list(group)
        is_long = limit is not None and len(series) > limit + 1
        head = series[:limit] if is_long else series
        shown += [(entry, 0) for entry in head]
        if len(head) < len(series):
            shown.append((series[-1], len(series) - len(head) - 1))
    return tuple(shown)


def _shown_in_a_row(entry: LedgerEntry) -> tuple[str, int | None]:
    """Return the kind of series that the entry belongs to, and how many entries are shown at its
    head; None: all.
    """
    match entry.decision.action:
        case ContinueProvisioning() | ReplaceVm(next_at=datetime()):
            return "capacity errors", CAPACITY_ERRORS_SHOWN
        case RecordMeasurements():
            return "measurements", MEASUREMENTS_SHOWN
        case MarkReady() | MarkHostReady() if not _has_finding(entry):
            return "ready replicas", READY_SHOWN
        case _:
            return "", None


def rules_passed_over(entry: LedgerEntry) -> tuple[tuple[Rule, str], ...]:
    """Return the rules that come before the one that decided about an exit, each with its
    condition.
    """
    if not _is_about_exit(entry) or entry.decision.rule in (Rule.LIFECYCLE, Rule.STALE, Rule.ROUND):
        return ()
    passed_over = []
    for row in ROWS:
        if row.rule is entry.decision.rule:
            break
        passed_over.append((row.rule, row.condition))
    return tuple(passed_over)


def _is_about_exit(entry: LedgerEntry) -> bool:
    """Whether the rules for exits judged the event: an exit, or a verdict."""
    return isinstance(entry.event, ReplicaExited) or (
        isinstance(entry.event, AllReady) and entry.event.round > 0
    )


def differences(entries: Iterable[LedgerEntry], policy: ExitPolicy) -> tuple[Difference, ...]:
    """Return every exit that `policy` would have judged differently, on the state that existed at
    the time.
    """
    stored: State | None = None
    changed = []
    for entry in entries:
        if stored is not None and _is_about_exit(entry):
            state = judged(stored, entry)
            plan = state.job.plan
            restarts = replace(plan.restarts, exit_policy=policy)
            job = replace(state.job, plan=replace(plan, restarts=restarts))
            decision = judge(replace(state, job=job), entry.event, entry.at)
            if decision.action.kind != entry.decision.action.kind:
                changed.append(Difference(entry, decision))
        stored = replay(stored, entry)
    return tuple(changed)
