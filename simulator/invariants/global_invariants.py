"""What holds of all jobs together, beside what `simulator.invariants.job_invariants` asks of each.

twins     of two VMs of one name, in two zones, one is gone soon
limits    what all admitted jobs need is never more than there is
line      nobody is admitted who would take what was promised to somebody before it in line
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shared.core.model.job import Job, JobState
from shared.core.rules.admission_queue import needs
from simulator.invariants.job_invariants import ViolationError, Watch
from simulator.world.context import Context
from simulator.world.fleet import SimFleet

TWINS_S: Final = 400.0
"""How long two VMs of one name may live in two zones: an insert that came late in a zone that was given up is found by
the next sweep, and a shutdown takes its time."""
KNOWN_S: Final = 30.0
"""Who was stored so long ago was seen by every turn that is taken, however long its function was suspended."""


@dataclass(slots=True)
class Overseer:
    context: Context
    fleet: SimFleet
    watches: dict[str, Watch]
    limits: Mapping[str, int]
    changed_s: float = 0.0
    _waiting_since: dict[str, float] = field(default_factory=dict)
    _twins_since: float | None = None

    @property
    def has_ended(self) -> bool:
        return all(watch.has_ended for watch in self.watches.values())

    def changed(self, job_id: str) -> None:
        """After every write."""
        watch = self.watches[job_id]
        watch.changed()
        self.changed_s = self.context.now
        if self.limits and watch.job is not None:
            self._look_at_line(watch.job)

    def machines(self) -> None:
        """After everything that happens (I5). Within a zone Compute itself gives a name once."""
        now, there = self.context.now, self.fleet.there
        if len(there) > 1 and len({name for name, _ in there}) < len(there):
            self._twins_since = now if self._twins_since is None else self._twins_since
            if now - self._twins_since > TWINS_S:
                raise ViolationError(f"I5: two VMs of one name for {TWINS_S:.0f} s: {list(there)}")
        elif self._twins_since is not None:
            self._twins_since = None
        for watch in self.watches.values():
            watch.is_prompt()

    def finish(self) -> None:
        for watch in self.watches.values():
            watch.finish()

    def _look_at_line(self, job: Job) -> None:
        if job.state is JobState.QUEUED:
            self._waiting_since.setdefault(job.job_id, self.context.now)
            return
        if self._waiting_since.pop(job.job_id, None) is None or job.state.is_terminal:
            return
        live = [watch.job for watch in self.watches.values() if watch.job and not watch.job.state.is_terminal]
        admitted = [each for each in live if each.state is not JobState.QUEUED]
        self._must_fit(admitted, "limits: more than there is for all")
        known = [each for each in live if self._waiting_since.get(each.job_id, self.context.now) < self._known_before]
        before = [each for each in known if _place(each) < _place(job)]
        self._must_fit([*admitted, *before], f"line: {job.job_id} took what was promised to others")

    @property
    def _known_before(self) -> float:
        return self.context.now - KNOWN_S

    def _must_fit(self, jobs: list[Job], what: str) -> None:
        total: Counter[str] = Counter()
        for job in jobs:
            total.update(needs(job.plan))
        if any(total[name] > limit for name, limit in self.limits.items()):
            raise ViolationError(f"{what}: {[(each.job_id, each.state.value) for each in jobs]} need {dict(total)}")


def _place(job: Job) -> tuple[object, ...]:
    return (-job.plan.priority, job.created_at, job.job_id)
