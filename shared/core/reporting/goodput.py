"""Where the machine time of a job went: machine-seconds by phase and attempt, and the part that was lost.

Machine time counts from RUNNING to the end of the job, as the service counted it, so that the sum of all phases equals
the machine-hours of `shared.presentation.ml_units.usage`. Time before RUNNING is listed, but not counted.

Lost work is known only within bounds: an incarnation that did not end well lost at least nothing, if the program saved
a checkpoint just before, and at most the whole time that it ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from shared.core.model.job import Job
from shared.core.model.replica_id import ReplicaId
from shared.core.reporting.history import History
from shared.core.reporting.phases import Phase, Span, replica_spans


@dataclass(frozen=True, slots=True)
class AttemptTime:
    """Machine-seconds of one attempt."""

    attempt: int
    total_s: Mapping[Phase, float]
    """Machine-seconds since the acceptance of the job, by phase."""
    counted_s: Mapping[Phase, float]
    """The part of them after the job became RUNNING."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Where the machine time of a job went."""

    attempts: tuple[AttemptTime, ...]
    lost_at_most_s: float
    """Machine-seconds that incarnations ran which did not end well: an upper bound of the lost work."""

    @property
    def counted_s(self) -> float:
        """Machine-seconds from RUNNING to the end: the job's usage."""
        return sum(sum(attempt.counted_s.values()) for attempt in self.attempts)

    @property
    def running_s(self) -> float:
        """Counted machine-seconds in which programs ran."""
        return sum(attempt.counted_s.get(Phase.RUNNING, 0.0) for attempt in self.attempts)

    @property
    def at_most(self) -> float | None:
        """Share of the counted time in which programs ran; None: nothing is counted."""
        return self.running_s / self.counted_s if self.counted_s else None

    @property
    def at_least(self) -> float | None:
        """The same share without all work that may have been lost; None: nothing is counted."""
        return max(self.running_s - self.lost_at_most_s, 0.0) / self.counted_s if self.counted_s else None

    @property
    def words(self) -> str:
        """`81 % to 93 % of the machine time`; empty if nothing is counted."""
        if self.at_least is None or self.at_most is None:
            return ""
        low, high = f"{self.at_least:.0%}".replace("%", " %"), f"{self.at_most:.0%}".replace("%", " %")
        return f"{high} of the machine time" if low == high else f"{low} to {high} of the machine time"


def goodput(history: History, now: datetime) -> Goodput | None:
    """Return where the job's machine time went until its end, or until now. None for a tuning job: see its trials."""
    job = history.state.job
    return None if job.tuning is not None else goodput_of(job, replica_spans(history), now)


def goodput_of(job: Job, spans: Iterable[Span], now: datetime) -> Goodput:
    """Return where the machine time of these spans went. `spans` are all spans of the job, as `replica_spans` sorts."""
    hosts = {group.task_type: group.hosts for group in job.plan.groups}
    total: dict[int, dict[Phase, float]] = {}
    counted: dict[int, dict[Phase, float]] = {}
    lost_s = 0.0
    previous: dict[ReplicaId, Span] = {}
    for span in spans:
        machines = hosts[span.replica_id.task_type]
        of_attempt = total.setdefault(span.attempt, defaultdict(float))
        of_attempt[span.phase] += machines * span.seconds(now)
        of_counted = counted.setdefault(span.attempt, defaultdict(float))
        if job.started_at is not None:
            of_counted[span.phase] += machines * span.seconds(now, since=job.started_at)
        last = previous.get(span.replica_id)
        if last is not None and last.phase is Phase.RUNNING and span.phase is not Phase.COMPLETED:
            lost_s += machines * last.seconds(now, since=job.started_at)
        previous[span.replica_id] = span
    attempts = tuple(AttemptTime(number, total[number], counted[number]) for number in sorted(total))
    return Goodput(attempts, lost_s)
