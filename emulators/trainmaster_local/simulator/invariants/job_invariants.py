"""Invariants of one job, checked after every commit of a simulated history.

    I1    a job ends, and does not change after its end, except for its labels and its deletion
    I2    an incarnation ends once
    I3    budgets equal what was charged (`simulator.invariants.budget_invariants`)
    I4    only events of the current incarnation and its VM change anything
          (`simulator.invariants.vm_invariants`)
    I5    a VM that the stored state desires is not deleted (`simulator.invariants.vm_invariants`)
    I6    no VM is left after the end
    I9    the ledger, folded (applied entry by entry), gives the stored state
    F1-5  rounds (`simulator.invariants.round_invariants`)

I7, I8 and I10 (any order of messages, functions that crash, capacity errors) are the faults of the
histories. The state is derived from the decisions in the ledger, independently of the code that
stores it.

An attempt is one run of the whole job, and an incarnation one execution of a replica's program. The
members of a synchronous job start and end together, in rounds; all other replicas are alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trainmaster.core.actions import (
    AcceptJob,
    DeleteJob,
    Ignore,
    RecordHostDone,
    SetLabels,
    SucceedJob,
)
from trainmaster.core.events import (
    IncarnationRef,
    ProvisioningStarted,
    ReplicaEvent,
    ReplicaExited,
    VmLost,
)
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.ledger import LedgerEntry, fold
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import current_incarnation, has_run, is_member
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm import LossCause
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.transitions.change import IllegalTransitionError
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.invariants.budget_invariants import BudgetCount
from trainmaster_local.simulator.invariants.cluster_invariants import ClusterInvariants
from trainmaster_local.simulator.invariants.round_invariants import RoundInvariants
from trainmaster_local.simulator.invariants.vm_invariants import VmInvariants
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.program_ends import ProgramEnds
from trainmaster_local.simulator.world.vm import SimVm, VmPool


@dataclass(slots=True)
class JobInvariants:
    """The invariants of one job."""

    context: Context
    store: MemoryStore
    pool: VmPool
    ends: ProgramEnds
    """Why the job's programs really ended."""
    job_id: str
    state: State | None = None
    """The fold of the ledger so far; None before the job was accepted."""
    ended_s: float | None = None
    """Virtual time of the job's end."""
    _entries_read: int = 0
    """Entries of the ledger that have been checked."""
    _budgets: BudgetCount = field(default_factory=BudgetCount)
    _rounds: RoundInvariants = field(init=False)
    cluster: ClusterInvariants = field(init=False)
    vms: VmInvariants = field(default_factory=VmInvariants)
    _ended_incarnations: set[tuple[str, int]] = field(default_factory=set)
    """Key of the replica and number of the incarnation (one execution of its program) that ended,
    of replicas that are not in a gang.
    """
    _label_changes: int = 0
    """Changes of labels in the ledger; each increments the version of the labels."""

    def __post_init__(self) -> None:
        self._rounds = RoundInvariants(self.ends)
        self.cluster = ClusterInvariants(self.context)

    @property
    def job(self) -> Job | None:
        """The job as the ledger leads to it; None before it was accepted."""
        return self.state.job if self.state else None

    @property
    def has_ended(self) -> bool:
        """Whether the ledger has led to the job's end."""
        return self.ended_s is not None

    def check_commit(self) -> None:
        """Check the new entries of the ledger one by one, and compare their fold with the stored
        state (I9).
        """
        ledger = self.store.ledger(self.job_id)
        if len(ledger) == self._entries_read:
            return
        for entry in ledger[self._entries_read :]:
            self._check_entry(entry)
        self._entries_read = len(ledger)
        loaded = self.store.load_attempt(self.job_id)
        if loaded is None or loaded.state != self.state:
            raise ViolationError(
                f"I9: stored {loaded and loaded.state}\nbut the ledger leads to {self.state}"
            )

    def check_deletion(self, vm: SimVm) -> None:
        """Check that this VM, which is about to be deleted, is not one that the stored state
        desires (I5).
        """
        self.vms.check_deletion(vm, self.state)

    def check_end(self) -> None:
        """Check that the job has ended without VMs, and the fold of its ledger (I1, I6, I9).

        Called when the faults are over and nothing happens any more.
        """
        if self.state is None or not self.has_ended:
            raise ViolationError(
                f"I1: the job has not ended{self._suspected_cause()}: {self.state}"
            )
        left = [vm.observed for vm in self.pool.present.values() if vm.job_id == self.job_id]
        if left:
            raise ViolationError(f"I6: VMs are left: {left}")
        if fold(self.store.ledger(self.job_id)) != self.state:
            raise ViolationError("I9: the fold of the whole ledger is not the stored state")

    def _suspected_cause(self) -> str:
        """Describe what keeps the job from ending, as far as the simulator can see it."""
        replicas = self.state.replicas if self.state else ()
        for replica in replicas:
            prefix = f"{replica.replica_id}-vm-{replica.vm_generation}-"
            losses = (
                entry for entry in self.store.ledger(self.job_id) if entry.key.startswith(prefix)
            )
            loss = next(losses, None)
            if loss is not None and isinstance(loss.decision.action, Ignore):
                vm = f"{replica.replica_id}, VM generation {replica.vm_generation}"
                return f": the loss of {vm} was ignored ({loss.decision.reason})"
        names = {vm.observed.name for vm in self.pool.present.values()}
        for replica in replicas:
            if self.job is None or replica.state is ReplicaState.COMPLETED:
                continue
            if vm_name(self.job.set_id, replica.replica_id) not in names:
                return (
                    f": VM generation {replica.vm_generation} of {replica.replica_id} is missing"
                    " and is not created"
                )
        return ""

    def _check_entry(self, entry: LedgerEntry) -> None:
        """Apply one more decision, and check what it did with each of the invariants."""
        before = self.state
        self.context.log("decided", entry.key, entry.decision.action.kind, entry.decision.reason)
        if before is not None:
            self._check_subject(before, entry)
        try:
            change = evolve(before, entry.decision, entry.at)
        except IllegalTransitionError as error:
            raise ViolationError(
                f"I9: {entry.key} does not apply to the state of the ledger: {error}"
            ) from error
        if isinstance(entry.decision.action, AcceptJob):
            self.state = State(entry.decision.action.job, change.replicas, whole=True)
        elif before is not None:
            self.state = apply(before, change)
        if isinstance(entry.event, ProvisioningStarted) and entry.event.taken:
            # The job goes on with machines that an earlier one kept.
            self.vms.take(entry.event.taken)
        if self.state is None:
            raise ViolationError(f"{entry.key} was decided without a job")
        had_ended = before is not None and before.job.state.is_terminal
        if before is not None and had_ended and not _is_same_end(before.job, self.state.job):
            raise ViolationError(f"I1: {entry.key} changed a job that had ended")
        self._budgets.add(entry.decision.action)
        self._budgets.check(self.state)
        self._rounds.apply(entry, self.state)
        self._check_user_action(before, entry, self.state.job)
        self.cluster.apply(entry, self.state)
        if self.state.job.state.is_terminal and self.ended_s is None:
            self.ended_s = self.context.now

    def _check_subject(self, before: State, entry: LedgerEntry) -> None:
        """Check that an event about another incarnation than the current one changes nothing (I4),
        and I2. An exit 0 of the primary also counts until the next attempt has run.
        """
        event = entry.event
        decision = entry.decision
        if not isinstance(event, ReplicaEvent) or isinstance(decision.action, Ignore):
            return
        subject = event.subject
        if before.job.state.is_terminal:
            # Decided before the end was stored; the replicas of an ended job may still change.
            return
        replica = next(
            (member for member in before.replicas if member.replica_id == subject.replica_id), None
        )
        is_late_success = (
            isinstance(decision.action, SucceedJob)
            and replica is not None
            and subject.attempt == replica.attempt - 1
            and not has_run(before.job, replica)
        )
        is_of_attempt = replica is not None and subject.attempt == replica.attempt
        # A VM outlives attempts, so its loss counts whatever attempt it names.
        may_be_older = isinstance(event, VmLost) or is_late_success
        if replica is None or not (is_of_attempt or may_be_older):
            raise ViolationError(
                f"I4: {entry.key} is of an older attempt, and led to {decision.action.kind}"
            )
        if isinstance(decision.action, SucceedJob):
            return  # an exit 0 of the primary counts in any round, and until a rerun has begun
        if not _is_current(before.job, subject, replica, is_loss=isinstance(event, VmLost)):
            raise ViolationError(
                f"I4: {entry.key} is not of the current incarnation of {replica}:"
                f" {decision.action.kind}"
            )
        if isinstance(event, VmLost) and event.cause is LossCause.AGENT_SILENT:
            self.vms.check_silence(entry, subject, self.pool, self.context.now)
        is_slice = before.job.plan.group(subject.replica_id.task_type).tpu is not None
        self.vms.check_accepted(entry, subject, is_slice=is_slice)
        # `RoundInvariants` counts the ends of members; an end of one host is not that of a replica.
        is_alone = not is_member(before.job.plan, replica.replica_id)
        ends_replica = isinstance(event, ReplicaExited | VmLost) and not isinstance(
            decision.action, RecordHostDone
        )
        if is_alone and ends_replica:
            incarnation = (replica.key, replica.incarnation)
            if incarnation in self._ended_incarnations:
                raise ViolationError(f"I2: incarnation {incarnation} ended twice")
            self._ended_incarnations.add(incarnation)

    def _check_user_action(self, before: State | None, entry: LedgerEntry, job: Job) -> None:
        """Check that each change of labels has a version of its own, and that only an ended job is
        deleted, once.
        """
        self._label_changes += isinstance(entry.decision.action, SetLabels)
        if job.labels_version != 1 + self._label_changes:
            raise ViolationError(
                f"labels: version {job.labels_version} after {self._label_changes} changes"
            )
        existed = before is not None and before.job.deleted_at is None
        if isinstance(entry.decision.action, DeleteJob) and not (existed and job.state.is_terminal):
            raise ViolationError(
                f"deletion: of a live or deleted job: {job.state}, deleted at {job.deleted_at}"
            )


def _is_current(job: Job, subject: IncarnationRef, replica: Replica, *, is_loss: bool) -> bool:
    """Return whether an event is about the replica's current VM and, unless it is a loss, its
    current incarnation: the one that it reported last, or the one that is ordered.
    """
    if subject.vm_generation != replica.vm_generation:
        return False
    return is_loss or subject.incarnation in (
        replica.incarnation,
        current_incarnation(job, replica),
    )


def _is_same_end(before: Job, after: Job) -> bool:
    """Return whether nothing but labels and deletion has changed."""
    labels = replace(after, labels=before.labels, labels_version=before.labels_version)
    return replace(labels, deleted_at=before.deleted_at, version=before.version) == before
