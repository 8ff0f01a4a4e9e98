"""The invariants of the design (I1-I6, I9), asked after every step; I7, I8 and I10 are what histories are made of.

Everything is counted anew from the ledger's decisions, beside the code that keeps the books.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import Final

from shared.core.decisions import (
    AcceptJob,
    Budget,
    DeleteJob,
    HoldReplica,
    Ignore,
    MarkReady,
    ReactivateReplica,
    RecordCompletion,
    RecordHostDone,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    SetLabels,
    SucceedJob,
)
from shared.core.events import IncarnationRef, ReplicaEvent, ReplicaExited, VmLost, VmReady
from shared.core.evolve import apply, evolve
from shared.core.ledger import LedgerEntry, fold
from shared.core.model.job import INTERNAL_RETRIES_MAX as INTERNAL_MAX
from shared.core.model.job import RERUNS_MAX, RESTARTS_MAX, Job, JobState, Replica, ReplicaState, State
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.reconcile.plan import VmStatus, vm_name
from shared.memory.store import MemoryStore
from simulator.world.context import Context
from simulator.world.fleet import SimFleet, SimVm

NEEDED_S: Final = 400.0
"""How long a member of the cluster may be done while the primary incarnations on in a later incarnation: some sweeps."""
STUCK_S: Final = 10.0
"""How long a job may be PREPARING after its last replica has spoken, where messages and functions work."""


class ViolationError(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class Tally:
    """What a replica's budgets must say."""

    restarts_used: int = 0
    replaced: int = 0
    collateral: int = 0
    incarnations: int = 1


@dataclass(slots=True)
class Watch:
    context: Context
    store: MemoryStore
    fleet: SimFleet
    job_id: str
    state: State | None = None
    ended_s: float | None = None
    _folded: int = 0
    _tallies: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    _reruns: int = 0
    _internal: int = 0
    _moved: int = 0
    _ended_lives: set[tuple[str, int]] = field(default_factory=set)
    _ready_since: float | None = None
    _has_no_delays: bool = field(init=False)
    _labelled: int = 0
    _zones: dict[ReplicaId, str] = field(default_factory=dict)
    _alone_since: float | None = None
    _split_since: float | None = None
    _began: dict[ReplicaId, float] = field(default_factory=dict)
    _done: dict[ReplicaId, float] = field(default_factory=dict)
    _said: defaultdict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self._has_no_delays = not self.context.faults.delay

    @property
    def job(self) -> Job | None:
        return self.state.job if self.state else None

    @property
    def has_ended(self) -> bool:
        return self.ended_s is not None

    def changed(self) -> None:
        """After every write: the new entries, one by one, then what is stored against what they add up to (I9)."""
        ledger = self.store.ledger(self.job_id)
        if len(ledger) == self._folded:
            return
        for entry in ledger[self._folded :]:
            self._judge(entry)
        self._folded = len(ledger)
        loaded = self.store.load_attempt(self.job_id)
        if loaded is None or loaded.state != self.state:
            raise ViolationError(f"I9: stored {loaded and loaded.state}\nbut the ledger says {self.state}")

    def is_prompt(self) -> None:
        """After everything that happens: who is complete runs."""
        if self._ready_since is not None and self._has_no_delays and self.context.now - self._ready_since > STUCK_S:
            raise ViolationError("every replica has spoken, and the job is still PREPARING")
        if self._split_since is not None and self.context.now - self._split_since > NEEDED_S:
            raise ViolationError(f"zones: the gang is split: {self._zones}")
        if self._alone_since is not None and self.context.now - self._alone_since > NEEDED_S:
            raise ViolationError(
                "the primary incarnations a further incarnation, and a peer that was done before is not called back"
            )

    def deleted(self, vm: SimVm) -> None:
        """A VM that the stored state wants is never deleted: not by who knows less, not instead of an older one."""
        job = self.job
        if self.state is None or job is None or job.state.is_terminal or job.placement.round:
            return
        for replica in self.state.replicas:
            is_its = (
                vm.seen.name == vm_name(job.job_id, replica.replica_id)
                and vm.seen.vm_generation == replica.vm_generation
            )
            if is_its and replica.state is not ReplicaState.COMPLETED and vm.seen.status is VmStatus.RUNNING:
                raise ViolationError(f"I5: deleted {vm.seen.name}, machine {replica.vm_generation} of {replica.key}")

    def finish(self) -> None:
        """Once the faults are over and everything is quiet (I1, I6, I8)."""
        if self.state is None or not self.has_ended:
            raise ViolationError(f"I1: the job has not ended{self._why()}: {self.state}")
        if left := [vm.seen for vm in self.fleet.there.values() if vm.job_id == self.job_id]:
            raise ViolationError(f"I6: VMs are left: {left}")
        if fold(self.store.ledger(self.job_id)) != self.state:
            raise ViolationError("I9: the whole ledger's fold is not what is stored")

    def _why(self) -> str:
        """What keeps it, as far as that can be seen from here."""
        replicas = self.state.replicas if self.state else ()
        for replica in replicas:
            entry = self.store.entry(self.job_id, f"{replica.replica_id}-vm-{replica.vm_generation}-lost")
            if entry and isinstance(entry.decision, Ignore):
                return f": the loss of {replica.replica_id}'s machine {replica.vm_generation} was ignored ({entry.decision.reason})"
        there = {vm.seen.name for vm in self.fleet.there.values()}
        for replica in replicas:
            if replica.state is not ReplicaState.COMPLETED and vm_name(self.job_id, replica.replica_id) not in there:
                return f": machine {replica.vm_generation} of {replica.replica_id} is missing and is not made"
        return ""

    def _judge(self, entry: LedgerEntry) -> None:
        before = self.state
        self.context.say("judged", entry.key, entry.decision.kind, entry.decision.reason)
        if before is not None:
            self._check_stale(before, entry)
        change = evolve(before, entry.decision, entry.at)
        if isinstance(entry.decision, AcceptJob):
            self.state = State(entry.decision.job, change.replicas, whole=True)
        elif before is not None:
            self.state = apply(before, change)
        if self.state is None:
            raise ViolationError(f"{entry.key} was judged without a job")
        if before is not None and before.job.state.is_terminal and not _is_same_end(before.job, self.state.job):
            raise ViolationError(f"I1: {entry.key} changed a job that had ended")
        self._count(entry)
        self._check_budgets(self.state)
        self._check_hands(before, entry, self.state.job)
        self._check_hosts(entry, self.state.job)
        self._check_zones(entry, self.state)
        if self.state.job.state.is_terminal and self.ended_s is None:
            self.ended_s = self.context.now
        self._look_at_done(before, self.state)
        is_waiting = self.state.job.state is JobState.PREPARING and all(map(_has_spoken, self.state.replicas))
        self._ready_since = (self._ready_since or self.context.now) if is_waiting else None

    def _look_at_done(self, before: State | None, state: State) -> None:
        """Since when the primary incarnations a incarnation that began after a peer, which it may wait for, was done."""
        plan, now = state.job.plan, self.context.now
        for replica in state.replicas:
            was = before.find(replica.attempt, replica.replica_id) if before else None
            if was is None or was.incarnation != replica.incarnation:
                self._began[replica.replica_id] = now
                self._done.pop(replica.replica_id, None)
            if replica.state is ReplicaState.COMPLETED:
                self._done.setdefault(replica.replica_id, now)
        is_over = plan.independent or state.job.state.is_terminal
        done = [at for replica_id, at in self._done.items() if replica_id.task_type is not TaskType.EVALUATOR]
        is_alone = not is_over and any(at < self._began[plan.primary] for at in done)
        self._alone_since = (self._alone_since or now) if is_alone else None

    def _check_stale(self, before: State, entry: LedgerEntry) -> None:
        """I4, I2: who is not the present incarnation changes nothing, and a incarnation ends once."""
        event, decision = entry.event, entry.decision
        if not isinstance(event, ReplicaEvent) or isinstance(decision, Ignore):
            return
        subject = event.subject
        if before.job.state.is_terminal:
            return  # judged before the end was written; a replica of a job that wants nothing any more may still move
        replica = next((each for each in before.replicas if each.replica_id == subject.replica_id), None)
        if replica is None or (subject.attempt != replica.attempt and not isinstance(event, VmLost)):
            raise ViolationError(f"I4: {entry.key} is of an older attempt, and led to {decision.kind}")
        if not _is_present(subject, replica, is_loss=isinstance(event, VmLost)):
            raise ViolationError(
                f"I4: {entry.key} is not of the present incarnation {replica}, and led to {decision.kind}"
            )
        if isinstance(event, ReplicaExited | VmLost) and not isinstance(decision, RecordHostDone):
            end = (replica.key, replica.incarnation)
            if end in self._ended_lives:
                raise ViolationError(f"I2: incarnation {end} ended twice")
            self._ended_lives.add(end)

    def _count(self, entry: LedgerEntry) -> None:
        decision = entry.decision
        if isinstance(decision, RestartReplica | HoldReplica | ReplaceVm | ReactivateReplica):
            tally = self._tallies[decision.replica]
            tally.incarnations += 1
            tally.restarts_used += isinstance(decision, RestartReplica) and decision.charge is Budget.RESTARTS
            tally.collateral += isinstance(decision, HoldReplica)
            tally.replaced += isinstance(decision, ReplaceVm)
        if isinstance(decision, RestartReplica | ReplaceVm):
            for key in decision.refunded:
                self._tallies[key].restarts_used -= 1
                self._tallies[key].collateral += 1
        if isinstance(decision, ReplaceVm) and decision.refunds_rerun:
            self._reruns -= 1
            self._moved += 1
        if isinstance(decision, RerunJob):
            self._reruns += decision.charge is Budget.RERUNS
            self._internal += decision.charge is Budget.INTERNAL
            self._moved += decision.charge is Budget.FREE

    def _check_hands(self, before: State | None, entry: LedgerEntry, job: Job) -> None:
        """What its user does to a job beside its course."""
        self._labelled += isinstance(entry.decision, SetLabels)
        if job.labels_version != 1 + self._labelled:
            raise ViolationError(f"labels: version {job.labels_version} after {self._labelled} changes")
        was_there = before is not None and before.job.deleted_at is None
        if isinstance(entry.decision, DeleteJob) and not (was_there and job.state.is_terminal):
            raise ViolationError(f"a job was deleted twice, or alive: {job.state}, {job.deleted_at}")

    def _check_zones(self, entry: LedgerEntry, state: State) -> None:
        """Who is up is in one zone: a member's address holds its zone, and was told to all."""
        if isinstance(entry.event, VmReady) and isinstance(entry.decision, MarkReady):
            self._zones[entry.event.subject.replica_id] = entry.event.subject.vm.zone
        up = [each.replica_id for each in state.replicas if each.state is ReplicaState.RUNNING]
        is_split = len({self._zones[replica_id] for replica_id in up}) > 1 and not state.job.state.is_terminal
        self._split_since = (self._split_since or self.context.now) if is_split else None

    def _check_hosts(self, entry: LedgerEntry, job: Job) -> None:
        """A slice is up, and done, when each of its hosts has said so in this incarnation."""
        event, decision = entry.event, entry.decision
        if not isinstance(event, VmReady | ReplicaExited) or event.subject.host is None or isinstance(decision, Ignore):
            return
        said = self._said[type(event).__name__, event.subject.key]
        said.add(event.subject.host)
        is_whole = isinstance(decision, MarkReady | RecordCompletion | SucceedJob)
        hosts = job.plan.group(event.subject.replica_id.task_type).hosts
        if is_whole and len(said) < hosts:
            raise ViolationError(f"slices: {decision.kind} after {len(said)} of {hosts} hosts: {entry.key}")

    def _check_budgets(self, state: State) -> None:
        """I3."""
        job = state.job
        used = (job.budgets.reruns_used, job.budgets.internal_used, job.attempt)
        if used != (self._reruns, self._internal, 1 + self._reruns + self._internal + self._moved):
            raise ViolationError(f"I3: {used} is not what was judged: {self._reruns} reruns, {self._internal} internal")
        if self._reruns > RERUNS_MAX or self._internal > INTERNAL_MAX:
            raise ViolationError(f"I3: over the limit: {job.budgets}")
        for replica in state.replicas:
            tally = self._tallies[replica.key]
            if not 0 <= replica.restarts_used <= RESTARTS_MAX:
                raise ViolationError(f"I3: over the limit: {replica}")
            if _tally_of(replica) != tally:
                raise ViolationError(f"I3: {replica} is not what was judged: {tally}")


def _is_present(subject: IncarnationRef, replica: Replica, *, is_loss: bool) -> bool:
    """A loss is of a machine, whatever incarnation is on it; a word is of a incarnation."""
    if subject.vm_generation != replica.vm_generation:
        return False
    return is_loss or subject.incarnation == replica.incarnation


def _is_same_end(before: Job, after: Job) -> bool:
    """Labels and deletion are all that changes after it."""
    labels = replace(after, labels=before.labels, labels_version=before.labels_version)
    return replace(labels, deleted_at=before.deleted_at, version=before.version) == before


def _has_spoken(replica: Replica) -> bool:
    return replica.ever_ready or replica.state is ReplicaState.COMPLETED


def _tally_of(replica: Replica) -> Tally:
    named = {each.name: getattr(replica, each.name) for each in fields(Tally) if each.name != "incarnations"}
    return Tally(**named, incarnations=replica.incarnation)
