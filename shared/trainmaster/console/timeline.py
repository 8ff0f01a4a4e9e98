"""The timeline of a job: a lane for the job and one for each replica, with spans and marks.

It is made from the ledger, the job's record of events and decisions. An incarnation is one
execution of a replica's program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

from trainmaster.core.actions import (
    AcceptJob,
    BeginPreparing,
    BeginRound,
    BeginRunning,
    CancelJob,
    CompleteTuning,
    ContinueProvisioning,
    FailJob,
    Ignore,
    RerunJob,
    SucceedJob,
)
from trainmaster.core.events import DeadlinePassed, ReplicaExited, VmLost, VmReady
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import LossCause
from trainmaster.core.reporting.explain import replica_of
from trainmaster.core.reporting.history import History
from trainmaster.core.reporting.phases import Span, job_spans, replica_spans
from trainmaster.errors import PermanentError
from trainmaster.presentation.durations import duration_words

LANES_MAX: Final = 100
"""Replicas above which only those with incidents are shown, unless the user asks for all."""
BARS_PER_LANE_MAX: Final = 1_000
"""Largest number of bars in a lane if there are more than `LANES_MAX` lanes. Phases shorter than
1/1,000 of the job's time have no bar then, which would be narrower than a pixel.
"""


class MarkKind(StrEnum):
    """The kind of an incident or decision. Each kind has its own shape."""

    EXIT = "exit"
    OUT_OF_MEMORY = "out of memory"
    PREEMPTION = "preemption"
    MAINTENANCE = "maintenance"
    VM_LOST = "VM lost"
    CAPACITY = "capacity error"
    RERUN = "rerun"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class Mark:
    """An incident or a decision worth a symbol."""

    at: datetime
    kind: MarkKind
    key: str
    """Key of the ledger entry."""
    replica_id: ReplicaId | None
    """None: it concerns the job as a whole."""
    text: str
    """The decision in one sentence."""
    rule: int
    """Number of the rule that decided; 0: none, in the normal course of a job."""


Item = TypeVar("Item", Mark, Span)


@dataclass(frozen=True, slots=True)
class Bar:
    """A span in words and times, of the job or of a replica."""

    label: str
    """The phase, or the job's state in lower case."""
    start: datetime
    end: datetime | None
    """None: it has not ended."""
    title: str
    """The whole span in words."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the timeline."""

    name: str
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All lanes, the job's own first."""

    lanes: tuple[Lane, ...]
    hidden: int
    """Number of replicas that are not shown."""
    attempts: tuple[datetime, ...]
    """When each attempt (execution of the whole job) but the first began."""
    start: datetime
    end: datetime


def read_timeline(history: History, now: datetime, *, with_all: bool = False) -> Timeline:
    """Return the timeline until the job's end, or until now.

    Above `LANES_MAX` replicas, only those with a mark have a lane, at most `LANES_MAX`; `with_all`
    shows every replica.
    """
    job = history.state.job
    marks = (_mark(step.entry) for step in history.steps)
    by_replica = _by_replica(mark for mark in marks if mark is not None)
    replica_ids = () if job.tuning else job.plan.replica_ids
    shown = _replicas_with_lanes(replica_ids, by_replica, with_all=with_all)
    spans = _by_replica(replica_spans(history))
    end = job.ended_at or max(now, history.steps[-1].entry.at)
    lanes = [_job_lane(history, tuple(by_replica.get(None, ())), now)]
    shortest_s = 0.0  # shorter spans of replicas have no bar
    if len(shown) > LANES_MAX:
        shortest_s = (end - job.created_at).total_seconds() / BARS_PER_LANE_MAX
    for replica_id in shown:
        visible = [span for span in spans[replica_id] if span.seconds(end) >= shortest_s]
        lanes.append(_lane(replica_id, visible, tuple(by_replica.get(replica_id, ())), end))
    attempts = tuple(step.entry.at for step in history.steps if step.begins_attempt)[1:]
    return Timeline(tuple(lanes), len(replica_ids) - len(shown), attempts, job.created_at, end)


def zoom(timeline: Timeline, start: datetime | None, end: datetime | None) -> Timeline:
    """Return the part of the timeline between two times.

    Spans that cross its borders are cut there. None: from the beginning, or to the end. Raises
    PermanentError if no part of the timeline is between the times.
    """
    first = max(start or timeline.start, timeline.start)
    last = min(end or timeline.end, timeline.end)
    if first >= last:
        raise PermanentError(
            f"from, to: must be a range of the job's time, {timeline.start.isoformat()} to"
            f" {timeline.end.isoformat()}"
        )
    lanes = tuple(_cut(lane, first, last) for lane in timeline.lanes)
    attempts = tuple(at for at in timeline.attempts if first <= at <= last)
    return replace(timeline, lanes=lanes, attempts=attempts, start=first, end=last)


def _cut(lane: Lane, first: datetime, last: datetime) -> Lane:
    bars = tuple(
        replace(
            bar, start=max(bar.start, first), end=None if bar.end is None else min(bar.end, last)
        )
        for bar in lane.bars
        if bar.start <= last and (bar.end is None or bar.end >= first)
    )
    return replace(
        lane, bars=bars, marks=tuple(mark for mark in lane.marks if first <= mark.at <= last)
    )


def _replicas_with_lanes(
    replica_ids: tuple[ReplicaId, ...],
    marks: Mapping[ReplicaId | None, list[Mark]],
    *,
    with_all: bool,
) -> tuple[ReplicaId, ...]:
    if with_all or len(replica_ids) <= LANES_MAX:
        return replica_ids
    return tuple(replica_id for replica_id in replica_ids if replica_id in marks)[:LANES_MAX]


def _by_replica(items: Iterable[Item]) -> dict[ReplicaId | None, list[Item]]:
    """Return the marks or spans of each replica, in their order; under None, those of the job."""
    result: dict[ReplicaId | None, list[Item]] = {}
    for item in items:
        result.setdefault(item.replica_id, []).append(item)
    return result


def _job_lane(history: History, marks: tuple[Mark, ...], now: datetime) -> Lane:
    bars = tuple(
        Bar(
            span.state.lower(),
            span.start,
            span.end,
            f"{span.state} for {duration_words((span.end or now) - span.start)}",
        )
        for span in job_spans(history)
    )
    return Lane("job", bars, marks)


def _lane(
    replica_id: ReplicaId, spans: Sequence[Span], marks: tuple[Mark, ...], now: datetime
) -> Lane:
    return Lane(replica_id.words, tuple(_bar(span, now) for span in spans), marks)


def _bar(span: Span, now: datetime) -> Bar:
    name = f"attempt {span.attempt}, incarnation {span.incarnation}"
    lasted = duration_words(timedelta(seconds=span.seconds(now)))
    title = (
        f"{span.replica_id.words}, {name}: {span.phase} for {lasted}, VM generation"
        f" {span.vm_generation}"
    )
    return Bar(span.phase.value, span.start, span.end, title)


def _mark(entry: LedgerEntry) -> Mark | None:
    """Return the mark of a ledger entry; None if it gets none."""
    kind = _kind(entry)
    if kind is None:
        return None
    return Mark(
        entry.at, kind, entry.key, replica_of(entry), entry.decision.text, int(entry.decision.rule)
    )


def _kind(entry: LedgerEntry) -> MarkKind | None:
    """Return the kind of mark that an entry gets; None for the normal course of a job and for
    ignored events.
    """
    event = entry.event
    action = entry.decision.action
    if isinstance(event, VmReady) or isinstance(action, _NORMAL_COURSE):
        return None
    if isinstance(event, DeadlinePassed):
        return MarkKind.DEADLINE
    if isinstance(event, ReplicaExited) and not event.succeeded:
        return MarkKind.OUT_OF_MEMORY if event.out_of_memory else MarkKind.EXIT
    if isinstance(event, VmLost):
        return _LOSSES.get(event.cause, MarkKind.VM_LOST)
    return next(
        (kind for action_type, kind in _KINDS.items() if isinstance(action, action_type)), None
    )


_NORMAL_COURSE: Final = (AcceptJob, BeginPreparing, BeginRound, BeginRunning, Ignore)
_LOSSES: Final = {
    LossCause.PREEMPTION: MarkKind.PREEMPTION,
    LossCause.MAINTENANCE: MarkKind.MAINTENANCE,
}
_KINDS: Final = {
    ContinueProvisioning: MarkKind.CAPACITY,
    RerunJob: MarkKind.RERUN,
    FailJob: MarkKind.FAILED,
    CancelJob: MarkKind.CANCELLED,
    SucceedJob: MarkKind.SUCCEEDED,
    CompleteTuning: MarkKind.SUCCEEDED,
}
