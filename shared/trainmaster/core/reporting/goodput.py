"""Where the machine time of a job went: machine-seconds by phase and attempt, and the part that was
lost.

There are two sums:

    paid       machine-seconds in which a replica had a VM that ran: what Compute Engine charges for
    counted    machine-seconds of all machines from RUNNING to the end: what AI Platform Training
               charged for, and equal to `trainmaster.presentation.ml_units.usage`

Goodput is (running - lost work) / paid. Lost work has two bounds, and so has goodput.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.lost_work import (
    LostWork,
    WrittenObjects,
    losses,
    lost_work_by_attempt,
)
from trainmaster.core.reporting.phases import PAID, PARTLY_PAID, Phase, Span


@dataclass(frozen=True, slots=True)
class AttemptTime:
    """Machine-seconds of one attempt."""

    attempt: int
    total_s: Mapping[Phase, float]
    """Machine-seconds since the acceptance of the job, by phase."""
    counted_s: Mapping[Phase, float]
    """The part of them after the job became RUNNING."""
    lost: LostWork = field(default_factory=LostWork)
    """The part of `running` that was lost."""

    @property
    def paid_s(self) -> float:
        """Machine-seconds in which there was a VM: the sum of the phases in `PAID`."""
        return sum(seconds for phase, seconds in self.total_s.items() if phase in PAID)


@dataclass(frozen=True, slots=True)
class Goodput:
    """Where the machine time of a job went."""

    attempts: tuple[AttemptTime, ...]
    unsplit_s: float = 0.0
    """Machine-seconds of phases that contain both the search for a VM and its setup, because the
    agent has not yet reported when it started. They are not in `paid_s`.
    """

    @property
    def counted_s(self) -> float:
        """Machine-seconds from RUNNING to the end: the job's usage."""
        return sum(sum(attempt.counted_s.values()) for attempt in self.attempts)

    @property
    def paid_s(self) -> float:
        return sum(attempt.paid_s for attempt in self.attempts)

    @property
    def running_s(self) -> float:
        """Machine-seconds in which programs ran."""
        return sum(attempt.total_s.get(Phase.RUNNING, 0.0) for attempt in self.attempts)

    @property
    def lost(self) -> LostWork:
        return sum((attempt.lost for attempt in self.attempts), LostWork())

    @property
    def at_most(self) -> float | None:
        """Share of the paid time in which programs did work that was not lost, at most; None:
        nothing is paid.
        """
        return (self.running_s - self.lost.at_least_s) / self.paid_s if self.paid_s else None

    @property
    def at_least(self) -> float | None:
        """Share of the paid time in which programs did work that was not lost, at least; None:
        nothing is paid.
        """
        return max(self.running_s - self.lost.at_most_s, 0.0) / self.paid_s if self.paid_s else None

    @property
    def words(self) -> str:
        """`81 % to 93 % of the machine time`; empty if nothing is paid."""
        if self.at_least is None or self.at_most is None:
            return ""
        low = f"{self.at_least:.0%}".replace("%", " %")
        high = f"{self.at_most:.0%}".replace("%", " %")
        return (
            f"{high} of the machine time" if low == high else f"{low} to {high} of the machine time"
        )


def goodput_of(
    job: Job, spans: Sequence[Span], now: datetime, written: WrittenObjects | None = None
) -> Goodput:
    """Return where the machine time of a job went until its end, or until now.

    `spans`: all spans of the job, as `replica_spans` sorts them. `written`: what the listing of the
    job's directory found; None: it was not listed.
    """
    total: dict[int, dict[Phase, float]] = {}
    counted: dict[int, dict[Phase, float]] = {}
    for span in spans:
        machines = span.machines(job.plan)
        of_attempt = total.setdefault(span.attempt, defaultdict(float))
        of_attempt[span.phase] += machines * span.seconds(now)
        of_counted = counted.setdefault(span.attempt, defaultdict(float))
        if job.started_at is not None:
            of_counted[span.phase] += machines * span.seconds(now, since=job.started_at)
    lost = lost_work_by_attempt(losses(job.plan, spans), written, now)
    attempts = tuple(
        AttemptTime(number, total[number], counted[number], lost.get(number, LostWork()))
        for number in sorted(total)
    )
    unsplit = (span.machines(job.plan) * span.seconds(now) for span in unsplit_spans(spans))
    return Goodput(attempts, sum(unsplit))


def unsplit_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans that contain both the search for a VM and its setup.

    The last span of a replica that still starts is one of them: agents report when they started
    once they are ready.
    """
    previous: dict[ReplicaId, Span] = {}
    for span in spans:
        last = previous.get(span.replica_id)
        # Without a report of the agent's start, the program runs right after the search.
        is_setup_missing = (
            span.phase is Phase.RUNNING
            and last is not None
            and last.phase in (*PARTLY_PAID, Phase.REPLACING)
        )
        if last is not None and is_setup_missing and last.end != last.start:
            yield last
        previous[span.replica_id] = span
    yield from (span for span in previous.values() if span.phase in PARTLY_PAID)
