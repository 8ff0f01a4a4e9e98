"""Invariants across all jobs, in addition to those of each job.

answers   of the submissions of one job id, one becomes the job and the others are refused
I5        two VMs of one name, in two zones, exist only for a short time
limits    what all admitted jobs need together never exceeds the limits
queue     no job is admitted that takes capacity from a job before it in the admission queue, as the
          admitting invocation has read the queue; a job that was submitted after that may be
          overtaken
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trainmaster.core.intake.job_files import ERROR_SUFFIX
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.rules.admission_queue import resource_needs
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.invariants.job_invariants import JobInvariants
from trainmaster_local.simulator.invariants.machine_set_invariants import check_holders
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.vm import VmPool

DUPLICATE_NAME_MAX_S: Final = 400.0
"""Longest time for which two VMs may have one name.

A late insert in a zone that was given up creates a second VM, which the next sweep finds; its
shutdown takes some time.
"""


@dataclass(slots=True)
class GlobalInvariants:
    """The invariants of one history."""

    context: Context
    pool: VmPool
    jobs: dict[str, JobInvariants]
    """The invariants of each job, by its id."""
    limits: Mapping[str, int]
    """Resource → the most that all admitted jobs may need together; empty: no limits."""
    last_commit_s: float = 0.0
    """Virtual time, as of the next two fields."""
    _queued_since: dict[str, float] = field(default_factory=dict)
    """Job that waits for admission → since when."""
    _duplicate_name_since: float | None = None
    """Since when two VMs have one name; None: no two do."""

    @property
    def has_ended(self) -> bool:
        """Whether all jobs have ended."""
        return all(job.has_ended for job in self.jobs.values())

    def check_commit(self, job_id: str, queue_read_at: float | None = None) -> None:
        """Check the job, and its admission if there are limits.

        Called after every commit of the job.

        `queue_read_at`: when the committing invocation last read the admission queue. None: it has
        not read it.
        """
        invariants = self.jobs[job_id]
        invariants.check_commit()
        self.last_commit_s = self.context.now
        check_holders(other.job for other in self.jobs.values())
        if self.limits and invariants.job is not None:
            self._check_admission(invariants.job, queue_read_at)

    def check_action(self) -> None:
        """Check for duplicate VM names in two zones (I5), and all time limits.

        Called after every action.

        Within a zone, Compute Engine itself keeps names unique.
        """
        now = self.context.now
        present = self.pool.present
        names = {name for name, _ in present}
        if len(names) < len(present):
            since = now if self._duplicate_name_since is None else self._duplicate_name_since
            self._duplicate_name_since = since
            if now - since > DUPLICATE_NAME_MAX_S:
                raise ViolationError(
                    f"I5: two VMs of one name for {DUPLICATE_NAME_MAX_S:.0f} s: {list(present)}"
                )
        else:
            self._duplicate_name_since = None
        for invariants in self.jobs.values():
            invariants.cluster.check_time_limits()

    def check_end(self) -> None:
        """Check the end of all jobs.

        Called when the faults are over and nothing happens any more.
        """
        for invariants in self.jobs.values():
            invariants.check_end()

    def _check_admission(self, job: Job, queue_read_at: float | None) -> None:
        """Check the limits and the queue if this commit has admitted the job."""
        if job.state is JobState.QUEUED:
            self._queued_since.setdefault(job.job_id, self.context.now)
            return
        was_queued = self._queued_since.pop(job.job_id, None) is not None
        if not was_queued or job.state.is_terminal:
            return
        stored = [invariants.job for invariants in self.jobs.values() if invariants.job]
        live = [other for other in stored if not other.state.is_terminal]
        admitted = [other for other in live if other.state is not JobState.QUEUED]
        self._check_limits(admitted, "limits: the admitted jobs need more than the limits allow")
        known_before = self.context.now if queue_read_at is None else queue_read_at
        ahead = [
            other
            for other in live
            if self._queued_since.get(other.job_id, self.context.now) < known_before
            and _queue_position(other) < _queue_position(job)
        ]
        self._check_limits(
            [*admitted, *ahead], f"queue: {job.job_id} was admitted before jobs ahead of it"
        )

    def _check_limits(self, jobs: list[Job], violation: str) -> None:
        """Raise ViolationError if these jobs together need more than the limits allow.

        Needs are sums of fractions, hence the rounding.
        """
        total: Counter[str] = Counter()
        for job in jobs:
            total.update(resource_needs(job.plan))
        if any(round(total[name], 2) > limit for name, limit in self.limits.items()):
            states = [(job.job_id, job.state.value) for job in jobs]
            raise ViolationError(f"{violation}: {states} need {dict(total)} of {dict(self.limits)}")


def _queue_position(job: Job) -> tuple[object, ...]:
    """Return the sort key of the admission queue."""
    return (-job.plan.limits.priority, job.created_at, job.job_id)


def check_submissions(
    submissions: Mapping[str, tuple[str, str]], store: MemoryStore, objects: MemoryObjects
) -> None:
    """Check that each submission became its job, or was refused, but not both.

    Called when nothing is in flight.

    `submissions`: source of a submission → job id, and URI of the job file. Raises ViolationError.
    """
    refused = {rejection.source for rejection in store.rejections(limit=1_000_000)}
    for source, (job_id, uri) in submissions.items():
        loaded = store.load(job_id)
        is_the_job = loaded is not None and loaded.state.job.submission == source
        is_refused = source in refused or objects.read(uri + ERROR_SUFFIX, max_bytes=1) is not None
        if is_the_job and is_refused:
            raise ViolationError(
                f"submissions: {source} became the job {job_id} and was refused as well"
            )
        if not is_the_job and not is_refused:
            raise ViolationError(
                f"submissions: {source} neither became the job {job_id} nor was refused"
            )
