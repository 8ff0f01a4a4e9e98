"""What must be true of a job, in facts: why each program really ended, and which machine existed
when.

F1  No program of a round starts beside a program of another round.
F2  A stopped round has one verdict. A charged member's program failed by itself, and no machine of
    the round had failed before. A failure without such a fault is paid for (`rounds.py`).
F3  While capacity exists, every stop leads to the next round, a rerun or the end: every job ends.
F4  No job is FAILED without a failed program or set-up.
F5  SUCCEEDED exactly if the primary exited 0.
F6  The VMs of a job with `maxCost` cost no more, at list prices (`job_ends.py` for F3 to F6).
F7  A job begins to run when each required replica has reported from a VM where the gang is now, or
    has completed.

Besides: a sentence of `why` names a machine or program that really failed, budgets (`charges.py`),
leaks, and the ledger's replay.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tests.explorer.causes import OWN, PEER
from tests.explorer.charges import Charge, Charges
from tests.explorer.job_ends import JobEnds
from tests.explorer.job_machines import JobMachines
from tests.explorer.programs import Program
from tests.explorer.rounds import Rounds, is_stall_paid
from trainmaster.core.actions import DeleteJob, Ignore
from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.gang import required_replicas
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.members import channel_members
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import VmStatus

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.jobs import ExploredJob
    from trainmaster_local.memory.store import MemoryStore

NOTICE_S: Final = 25.0
"""From the notice that a VM goes, until it is given up: the shortest such time."""
NOTICED_S: Final = 5.0
"""Longest time from the notice that a VM goes until its agent knows."""
ASKED_AGAIN_S: Final = 660.0
"""How long a program that saves may have been asked for an earlier notice."""

ANNOUNCED: Final = frozenset({"preemption", "maintenance"})
"""Faults that are announced before."""
WITHDRAWN: Final = "withdrawn"
"""An announcement that is taken back. Peers of its machine do not learn that."""


class Examiner:
    """Sees each start, stop, VM and commit of one job as it happens, and its end."""

    def __init__(self, job: ExploredJob, store: MemoryStore) -> None:
        self._job = job
        self._world = job.world
        self._store = store
        self.state: State | None = None
        self.ended_s: float | None = None
        self._machines = JobMachines()
        self._rounds = Rounds(job, self._machines)
        self._charges = Charges(job)
        self._ends = JobEnds(job, store, self._machines, self._charges)

    @property
    def charges(self) -> list[Charge]:
        return self._charges.all

    def on_start(self, program: Program) -> None:
        """F1: nothing of another round, and no second program of the same member, runs
        beside it.
        """
        self._rounds.note_start(program)
        self._examine_member_set(program)
        if any(
            other is not program and (other.agent, other.key) == (program.agent, program.key)
            for other in self._job.programs.all
        ):
            self._world.violate("F1 started twice on one machine", program, program.agent.vm)
        for other in self._job.programs.all:
            if (
                other.is_alive
                and self._job.is_member(program.replica_id)
                and self._job.is_member(other.replica_id)
            ):
                if other.key != program.key:
                    self._world.violate("F1 started beside another round", program, other)
                elif (
                    other.machine == program.machine
                    and other.agent.vm.zone == program.agent.vm.zone
                ):
                    self._world.violate("F1 runs twice", program, other.agent.vm, program.agent.vm)

    def on_stop(self, program: Program, action: str) -> None:
        """A directive ends no program that saves, unless it stops the job, or a VM is given up."""
        now_s = self._world.now_s
        given_up_s = min(
            (
                at_s + NOTICE_S
                for at_s, _, kind in self._job.faults
                if kind in (*ANNOUNCED, WITHDRAWN)
                and at_s > max(program.started_s - NOTICED_S, now_s - ASKED_AGAIN_S)
                and at_s + NOTICE_S > program.asked_s
            ),
            default=math.inf,
        )
        if now_s < min(program.saves_until_s, given_up_s) and action != "stop":
            self._world.violate("killed while it saves", program)

    def _examine_member_set(self, program: Program) -> None:
        """All members of a round have one member set, with the primary and at least
        `minReplicas`.
        """
        others = [
            other
            for other in self._job.programs.all
            if other.key == program.key and other.without != program.without
        ]
        members = channel_members(self._job.plan)
        elastic = self._job.plan.restarts.elastic
        present = [member for rank, member in enumerate(members) if rank not in program.without]
        if others or (program.without and program.replica_id not in present):
            self._world.violate("several member sets", program, program.without, *others)
        if program.without and (
            elastic is None
            or self._job.primary not in present
            or len(present) < elastic.min_replicas
        ):
            self._world.violate("a round is too small", program, program.without)
        self._world.notes["programs of short rounds"] += bool(program.without)

    def on_create(self, vm: ExploredVm) -> None:
        """No two VMs of one replica and generation are there at a time."""
        *others, _ = self._machines.add(vm)
        if any(not other.is_gone for other in others):
            self._world.violate("two VMs of one generation", vm, *others)
        self._rounds.note_machine(vm)

    def on_take(self, vm: ExploredVm) -> None:
        """The job has taken a VM that another job had."""
        self._world.notes["machines taken"] += 1
        self._machines.add(vm)
        self._rounds.note_machine(vm)

    def on_delete(self, vm: ExploredVm) -> None:
        """No healthy VM of a live replica's current generation is deleted."""
        state = self.state
        self._machines.given_up.append(vm)
        if state is None or state.job.state.is_terminal or vm.status is not VmStatus.RUNNING:
            return
        if any(failed is vm for _, failed, _ in self._job.faults):
            return
        for replica in state.replicas:
            is_current = (
                replica.replica_id == vm.replica_id and replica.vm_generation == vm.generation
            )
            if (
                is_current
                and replica.state is not ReplicaState.COMPLETED
                and replica.instance_id in (None, vm.instance_id)
            ):
                self._world.violate(
                    "healthy VM deleted", vm, replica.state, vm.zone, state.job.zone
                )

    def forget(self) -> None:
        """Go on from the stored state, after the database was restored."""
        loaded = self._store.load_attempt(self._job.job_id)
        self.state = loaded.state if loaded else None
        self.ended_s = None
        if self.state and self.state.job.state.is_terminal:
            self.ended_s = self._world.now_s

    def on_commit(self, entry: LedgerEntry) -> None:
        """Load what the commit has stored, and compare the entry's decision with the facts."""
        loaded = self._store.load_attempt(entry.job_id)
        assert loaded
        before = self.state
        self.state = loaded.state
        if before is None:
            self._job.accept(loaded.state.job.plan)
            return
        self._machines.on_commit(loaded.state, entry)
        self._world.log("commit", entry.key, entry.decision.reason.value, "-", entry.decision.text)
        if isinstance(entry.decision.action, DeleteJob) and not before.job.state.is_terminal:
            self._world.violate("deleted before its end", before.job.state)
        if loaded.state.job.attempt > before.job.attempt and self._is_about_single(entry):
            self._rounds.current.is_judged = True  # the round ends with its attempt
        if isinstance(entry.event, ReplicaExited) and entry.event.cause is ExitCause.UNFIT:
            self._examine_unfit(entry.event)
        if before.job.state is JobState.PREPARING and loaded.state.job.state is JobState.RUNNING:
            self._examine_start(loaded.state)
        charges = self._charges.add(before, loaded.state, entry)
        if self._job.is_synchronous and not self._is_about_single(entry):
            self._rounds.on_commit(before, loaded.state, entry, charges)
        elif isinstance(entry.event, ReplicaExited) and not isinstance(
            entry.decision.action, Ignore
        ):
            self._examine_single_exit(entry.event, charges)
        if loaded.state.job.state.is_terminal and self.ended_s is None:
            self.ended_s = self._world.now_s
            self._ends.examine_success(loaded.state.job)

    def _examine_start(self, state: State) -> None:
        """F7: each required replica has reported from where the gang is now, or has completed."""
        floor = state.job.placement.floor
        completed = ReplicaState.COMPLETED
        up = {
            which
            for (which, generation), vms in self._machines.by_generation.items()
            for vm in vms
            if generation >= floor and vm.instance_id in self._machines.reported
        }
        up |= {replica.replica_id for replica in state.replicas if replica.state is completed}
        missing = [str(which) for which in required_replicas(state.job.plan) if which not in up]
        self._world.notes["starts after a move"] += floor > 0
        if missing and state.job.tuning is None:
            self._world.violate("F7 runs too early", *missing)

    def _is_about_single(self, entry: LedgerEntry) -> bool:
        """Whether the event is about a replica that is judged alone, such as an evaluator."""
        return isinstance(entry.event, ReplicaExited) and not self._job.is_member(
            entry.event.subject.replica_id
        )

    def _examine_unfit(self, event: ReplicaExited) -> None:
        """A machine that failed the preflight has a fault. Its replacement is charged to nobody."""
        unfit = {vm.instance_id for _, vm, kind in self._job.faults if kind == "unfit"}
        if event.subject.vm.instance_id not in unfit:
            self._world.violate("a fit machine is called unfit", event.subject)

    def _examine_single_exit(self, event: ReplicaExited, charges: list[Charge]) -> None:
        """A replica that is judged alone pays for each failure of its program, whoever caused it,
        and no other end.
        """
        subject = event.subject
        ends = [
            program
            for program in self._job.programs.all
            if (program.replica_id, program.key)
            == (subject.replica_id, (subject.attempt, subject.incarnation))
            and program.agent.vm.instance_id == subject.vm.instance_id
        ]
        causes = {program.cause for program in ends}
        if (
            charges
            and not causes & {OWN, PEER}
            and not any(is_stall_paid(charge, ends) for charge in charges)
        ):
            self._world.violate("innocent charged alone", *charges, *causes)
        assert self.state
        replica = self.state.find(subject.attempt, subject.replica_id)
        goes_on_without = replica is not None and replica.state is ReplicaState.COMPLETED
        is_paid = bool(charges) or goes_on_without or self.state.job.state.is_terminal
        if (
            causes & {OWN, PEER}
            and event.cause == "process"
            and not event.succeeded
            and not is_paid
        ):
            self._world.violate("unpaid alone", subject.replica_id, subject.incarnation, *causes)

    def examine_end(self) -> None:
        """Check what must be true when all faults have ended long ago."""
        if self.state is None:
            self._world.violate("never accepted")
        else:
            self._ends.examine_end(self.state, self.ended_s)
