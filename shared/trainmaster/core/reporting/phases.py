"""The phases of each replica with their times, derived from the ledger. The timeline of a job, its
machine time and its cost are made of them.

An attempt is one run of the whole job, and an incarnation one execution of a replica's program in
it. The phases of a replica follow each other without a gap, from the acceptance of the job to its
end. Their times are those of the ledger entries, which `presentation.ml_units` uses, too. A
vm-ready message states when the agent started: the search for a VM ended and its setup began. As
long as no such time is known, STARTING and REPLACING contain both.

`replica_spans` goes through the steps of a job's history, keeps the open span of each replica, and
closes it when the replica is in another phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from trainmaster.core.events import Event, ProvisioningStarted, VmReady
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.machine_set import KeptVm, MachineSet
from trainmaster.core.model.members import current_incarnation, is_held
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import OnDemand, PriceClass
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reconcile.desired import price_of_vm
from trainmaster.core.reporting.history import History, Step


class Phase(StrEnum):
    """The activity of a replica."""

    QUEUED = "queued"  # the job is in the admission queue
    # Its first VM is requested, or the VM is being set up: the ledger does not tell which.
    STARTING = "starting"
    GETTING_MACHINES = "getting machines"  # its first VM is requested, and no agent runs yet
    SETTING_UP = "setting up"  # the agent runs, and the program does not yet
    RUNNING = "running"
    RESTARTING = "restarting"  # the next incarnation was ordered in the same VM
    REPLACING = "replacing"  # another VM was ordered, and its agent does not run yet
    HELD = "held"  # its round waits until every member is ready
    # It has ended, and its VM waits: for the end of the job, or for the next job.
    KEPT = "kept"
    COMPLETED = "completed"  # it exited 0, and its VM was released


PAID: Final = frozenset((Phase.SETTING_UP, Phase.RUNNING, Phase.RESTARTING, Phase.HELD, Phase.KEPT))
"""Phases in which the replica has a VM that runs, so that Compute Engine charges for it."""
PARTLY_PAID: Final = frozenset((Phase.STARTING,))
"""Phases that may contain the setup of a VM: how much of them is charged is not known."""


_PHASES: Final = {
    ReplicaState.WAITING: Phase.STARTING,
    ReplicaState.RUNNING: Phase.RUNNING,
    ReplicaState.RESTARTING: Phase.RESTARTING,
    ReplicaState.REPLACING: Phase.REPLACING,
    ReplicaState.COMPLETED: Phase.COMPLETED,
}


_SEARCHES: Final = {Phase.STARTING: Phase.GETTING_MACHINES, Phase.REPLACING: Phase.REPLACING}
"""Phase that contains the search for a VM and its setup → phase of the search alone."""


@dataclass(frozen=True, slots=True)
class Span:
    """One phase of one incarnation of a replica."""

    replica_id: ReplicaId
    attempt: int
    """The job's attempt."""
    incarnation: int
    """Incarnation within the attempt."""
    vm_generation: int
    """VM generation that the replica has or waits for."""
    phase: Phase
    start: datetime
    end: datetime | None = None
    """None: it has not ended."""
    price: PriceClass = field(default_factory=OnDemand)
    """How the replica's VM is bought."""
    candidate: int = 0
    """Candidate of the plan that the VM was requested as."""

    def machines(self, plan: Plan) -> int:
        """Return on how many machines the replica ran: the hosts of its slice, or one VM. `plan`:
        the stored one.
        """
        return plan.at(self.candidate).group(self.replica_id.task_type).hosts

    def seconds(self, now: datetime, since: datetime | None = None) -> float:
        """Return the length in seconds until its end, or until now; with `since`, only the part
        after that time.
        """
        start = self.start if since is None else max(self.start, since)
        return max(((self.end or now) - start).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class JobSpan:
    """One state of the job."""

    state: JobState
    start: datetime
    end: datetime | None = None
    """None: it has not ended."""


def job_spans(history: History) -> tuple[JobSpan, ...]:
    """Return the states that the job had before its end, in order."""
    spans: list[JobSpan] = []
    for step in history.steps:
        if spans and spans[-1].state is step.job.state:
            continue
        if spans and spans[-1].end is None:
            spans[-1] = replace(spans[-1], end=max(step.entry.at, spans[-1].start))
        if not step.job.state.is_terminal:
            spans.append(JobSpan(step.job.state, step.entry.at))
        elif spans[-1].end is not None:
            break
    return tuple(spans)


@lru_cache(maxsize=1)
def replica_spans(history: History) -> tuple[Span, ...]:
    """Return the phases of all replicas: by attempt, then in the order of the plan, then by time.

    The timeline and the costs on one page need them, which takes a quarter of a second for 1,000
    replicas.
    """
    spans = _Spans()
    for step in history.steps:
        is_queued = step.job.state is JobState.QUEUED
        was_queued = step.previous is not None and step.previous.state is JobState.QUEUED
        was_live = step.previous is not None and not step.previous.state.is_terminal
        is_over = step.job.state.is_terminal
        if is_over and was_live:
            _follow_replicas(spans, step, is_queued=False)
            spans.close_all(step.entry.at)
        if is_over:
            continue
        if was_queued and not is_queued:
            spans.leave_queue(step.entry.at)
        _follow_replicas(spans, step, is_queued=is_queued)
    job = history.state.job
    order = {replica_id: index for index, replica_id in enumerate(job.plan.replica_ids)}
    within_job = [_within_job(span, job) for span in (*spans.closed, *spans.open.values())]
    return tuple(
        sorted(within_job, key=lambda span: (span.attempt, order[span.replica_id], span.start))
    )


@dataclass(slots=True)
class _Spans:
    """The spans of all replicas up to one step of the history."""

    closed: list[Span] = field(default_factory=list)
    open: dict[ReplicaId, Span] = field(default_factory=dict)
    """The phase that each replica is in."""

    def close_all(self, at: datetime) -> None:
        """End all open spans with the job. Clocks differ, so that none ends before its start."""
        self.closed += [replace(span, end=max(at, span.start)) for span in self.open.values()]
        self.open = {}

    def leave_queue(self, at: datetime) -> None:
        """Let STARTING follow QUEUED in all open spans."""
        queued = self.open
        self.close_all(at)
        self.open = {
            replica_id: replace(span, phase=Phase.STARTING, start=max(at, span.start))
            for replica_id, span in queued.items()
        }


def _within_job(span: Span, job: Job) -> Span:
    """Return the span without what lies after the job's end.

    Two functions may decide at the same moment, each with its own clock: a replica may be completed
    a second after the time at which the job ended, and before that end is committed.
    """
    if job.ended_at is None or span.end is None or span.end <= job.ended_at:
        return span
    return replace(span, start=min(span.start, job.ended_at), end=job.ended_at)


def _follow_replicas(spans: _Spans, step: Step, *, is_queued: bool) -> None:
    """Close the span of each replica that the step puts into another phase, and open the next."""
    at = step.entry.at
    job = step.job
    placed = job.placed.plan
    for replica in step.changed:
        phase = Phase.QUEUED if is_queued else _phase(step, replica)
        last = spans.open.get(replica.replica_id)
        start = at if last is None else max(at, last.start)
        incarnation = current_incarnation(job, replica)
        generation = replica.vm_generation
        price = price_of_vm(placed, replica)
        candidate = job.placement.zone_index
        if last is not None and last.vm_generation == generation and last.phase in PAID:
            # It keeps its VM, also if others are bought otherwise now.
            price = last.price
            candidate = last.candidate
        span = Span(
            replica.replica_id,
            replica.attempt,
            incarnation,
            generation,
            phase,
            start,
            price=price,
            candidate=candidate,
        )
        if last is not None:
            if _distinction(last) == _distinction(span):
                continue
            if last.phase in _SEARCHES:  # a gang that has moved gets the VM that it requested last
                last = replace(last, price=price, candidate=candidate)
            spans.closed += _split_span(replace(last, end=start), step.entry.event)
        spans.open[replica.replica_id] = span


def _phase(step: Step, replica: Replica) -> Phase:
    """Return the phase of a replica that has left the admission queue."""
    job = step.job
    phase = _PHASES[replica.state]
    if phase is Phase.RUNNING and is_held(job, replica.replica_id):
        return Phase.HELD
    if phase is Phase.COMPLETED and job.machines is not None:
        return Phase.KEPT
    event = step.entry.event
    is_taken = isinstance(event, ProvisioningStarted) and event.taken is not None
    return Phase.SETTING_UP if is_taken and replica.instance_id else phase


def kept_spans(history: History, machines: MachineSet) -> tuple[Span, ...]:
    """Return the times after the job's end in which its machines were kept for another job."""
    job = history.state.job
    periods = [period for period in machines.kept_periods if period.job_id == job.job_id]
    spans = [
        _kept_span(job, vm, period.began_at, period.ended_at)
        for period in periods
        for vm in period.vms
    ]
    if machines.is_kept and machines.holder == job.job_id:
        spans += [_kept_span(job, vm, machines.ended_at, end=None) for vm in machines.vms]
    return tuple(spans)


def _kept_span(job: Job, vm: KeptVm, start: datetime, end: datetime | None) -> Span:
    return Span(
        replica_id=vm.replica_id,
        attempt=job.attempt,
        incarnation=0,
        vm_generation=vm.vm_generation,
        phase=Phase.KEPT,
        start=start,
        end=end,
        price=job.placed.plan.group(vm.replica_id.task_type).purchase.price,
        candidate=job.placement.zone_index,
    )


def _distinction(span: Span) -> tuple[int, int, int, Phase, PriceClass]:
    """Return what distinguishes a span from the one before it."""
    return span.attempt, span.incarnation, span.vm_generation, span.phase, span.price


def _split_span(span: Span, event: Event) -> Iterator[Span]:
    """Yield the parts of a span that `event` ended: the search for a VM, and its setup, if the
    event contains the time between them.

    The times of the VM's clock count only within the span. An agent that ran before its span, such
    as one of an earlier attempt, leaves no search.
    """
    started_at = event.agent_started_at if isinstance(event, VmReady) else None
    is_of_replica = isinstance(event, VmReady) and event.subject.replica_id == span.replica_id
    if started_at is None or not is_of_replica or span.phase not in _SEARCHES or span.end is None:
        yield span
        return
    agent_start = min(max(started_at, span.start), span.end)
    if agent_start > span.start:
        yield replace(span, phase=_SEARCHES[span.phase], end=agent_start)
    if agent_start < span.end:
        yield replace(span, phase=Phase.SETTING_UP, start=agent_start)
    elif agent_start == span.start:
        yield span
