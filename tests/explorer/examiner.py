"""What must be true of a job, in facts: why each program really ended, and which machine existed
when.

F1  No program of a round starts beside a program of another round.
F2  A stopped round has one verdict. A charged member's program failed by itself, and no machine of
    the round had failed before. A failure without such a fault is paid for.
F3  While capacity exists, every stop leads to the next round, a rerun or the end: every job ends.
F4  No job is FAILED without a failed program or set-up.
F5  SUCCEEDED exactly if the primary exited 0.
F6  The VMs of a job with `maxCost` cost no more, at list prices.
F7  A job begins to run when each required replica has reported from a VM where the gang is now, or
    has completed.

Besides: a sentence of `why` names a machine or program that really failed, budgets, leaks, and the
ledger's replay.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.explorer.causes import DONE, OWN, PEER, REBOOT, SAVED, STALLED
from tests.explorer.programs import Key, Program
from trainmaster.core.actions import Action, DeleteJob, Ignore, RestartReplica
from trainmaster.core.events import ExitCause, ReplicaExited, VmLost
from trainmaster.core.ledger import LedgerEntry, fold
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.gang import required_replicas
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.members import channel_members
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import VmStatus

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.jobs import ExploredJob
    from trainmaster_local.memory.store import MemoryStore

RESTARTS_MAX: Final = 5
RERUNS_MAX: Final = 3
HELD_S: Final = 600.0
NOTICE_S: Final = 25.0
"""From the notice that a VM goes, until it is given up: the shortest such time."""
NOTICED_S: Final = 5.0
"""Longest time from the notice that a VM goes until its agent knows."""
ASKED_AGAIN_S: Final = 660.0
"""How long a program that saves may have been asked for an earlier notice."""
FIRST: Final = (1, 1)
REPORT_S: Final = 60.0
"""How long the report of a program's start may take."""
NAMED: Final = re.compile(r"\b(chief|master|worker|ps|evaluator) (\d+)")

ANNOUNCED: Final = frozenset({"preemption", "maintenance"})
"""Faults that are announced before."""
WITHDRAWN: Final = "withdrawn"
"""An announcement that is taken back. Peers of its machine do not learn that."""
HARD: Final = frozenset({"unfit", "lost", "hang", "gone", "unkillable", "interrupted"})
"""Faults after which a machine no longer takes part."""


@dataclass(slots=True)
class Round:
    """The facts of one round: what ran in it, on which machines."""

    key: Key
    began_s: float = 0.0
    vms: set[str] = field(default_factory=set)
    """Instance ids of its members' machines when it began."""
    is_judged: bool = False


@dataclass(frozen=True, slots=True)
class Charge:
    kind: str
    """restart, rerun or fail."""
    replica_id: ReplicaId | None
    named: ReplicaId | None = None
    """Whom the sentence names."""


class Examiner:
    def __init__(self, job: ExploredJob, store: MemoryStore) -> None:
        self._job = job
        self._world = job.world
        self._store = store
        self.state: State | None = None
        self.ended_s: float | None = None
        self.round = Round(FIRST)
        self._given_up: list[ExploredVm] = []
        """VMs that the service has deleted."""
        self._reported: set[str] = set()
        """Instance ids of VMs whose agents' reports were recorded."""
        self._lost: set[str] = set()
        """Instance ids of VMs whose loss was recorded."""
        self._vms: dict[tuple[ReplicaId, int], list[ExploredVm]] = {}
        self.charges: list[Charge] = []
        self._restarts: Counter[tuple[int, ReplicaId]] = Counter()
        self._reruns = 0

    # What happens.

    def on_start(self, program: Program) -> None:
        """F1: nothing of another round, and no second program of the same member, runs
        beside it.
        """
        if self.round.key == program.key:
            self.round.vms.add(program.agent.vm.instance_id)
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
        same = self._vms.setdefault((vm.replica_id, vm.generation), [])
        if any(not other.is_gone for other in same):
            self._world.violate("two VMs of one generation", vm, *same)
        same.append(vm)
        if self.round.key == FIRST:
            self.round.vms.add(vm.instance_id)

    def on_take(self, vm: ExploredVm) -> None:
        """The job has taken a VM that another job had."""
        self._world.notes["machines taken"] += 1
        self._vms.setdefault((vm.replica_id, vm.generation), []).append(vm)
        if self.round.key == FIRST:
            self.round.vms.add(vm.instance_id)

    def on_delete(self, vm: ExploredVm) -> None:
        """No healthy VM of a live replica's current generation is deleted."""
        state = self.state
        self._given_up.append(vm)
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
        loaded = self._store.load_attempt(entry.job_id)
        assert loaded
        before = self.state
        self.state = loaded.state
        if before is None:
            self._job.accept(loaded.state.job.plan)
            return
        self._reported |= {
            replica.instance_id for replica in loaded.state.replicas if replica.instance_id
        }
        if isinstance(entry.event, VmLost) and not isinstance(entry.decision.action, Ignore):
            self._lost.add(entry.event.subject.vm.instance_id)
        self._world.log("commit", entry.key, entry.decision.reason.value, "-", entry.decision.text)
        if isinstance(entry.decision.action, DeleteJob) and not before.job.state.is_terminal:
            self._world.violate("deleted before its end", before.job.state)
        if loaded.state.job.attempt > before.job.attempt and self._is_about_single(entry):
            self.round.is_judged = True  # the round ends with its attempt
        if isinstance(entry.event, ReplicaExited) and entry.event.cause is ExitCause.UNFIT:
            self._examine_unfit(entry.event)
        if before.job.state is JobState.PREPARING and loaded.state.job.state is JobState.RUNNING:
            self._examine_start(loaded.state)
        charges = list(self._charges(before, loaded.state, entry))
        self._count(charges, entry.decision.action)
        if self._job.is_synchronous and not self._is_about_single(entry):
            self._examine_round(before, entry, charges)
        elif isinstance(entry.event, ReplicaExited) and not isinstance(
            entry.decision.action, Ignore
        ):
            self._examine_exit(entry.event, charges)
        if loaded.state.job.state.is_terminal and self.ended_s is None:
            self.ended_s = self._world.now_s
            self._examine_success()

    def _examine_start(self, state: State) -> None:
        floor = state.job.placement.floor
        completed = ReplicaState.COMPLETED
        up = {
            which
            for (which, generation), vms in self._vms.items()
            for vm in vms
            if generation >= floor and vm.instance_id in self._reported
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

    # Charges.

    def _charges(self, before: State, after: State, entry: LedgerEntry) -> Iterable[Charge]:
        # A restart may excuse earlier ones, so that fewer are charged after it than before.
        known = {replica.key: replica.restarts for replica in before.replicas}
        for replica in after.replicas:
            if set(replica.restarts) - set(known.get(replica.key, ())):
                yield Charge("restart", replica.replica_id, named(entry.decision.text))
        if after.job.budgets.reruns_used > before.job.budgets.reruns_used:
            yield Charge("rerun", named(entry.decision.text))
        has_failed = (
            after.job.state is JobState.FAILED
            and not before.job.state.is_terminal
            and not after.job.tuning
        )
        culprit = named(after.job.error_message or "")
        if has_failed and culprit and not self._is_failed_setup(entry):
            yield Charge("fail", culprit)

    def _is_failed_setup(self, entry: LedgerEntry) -> bool:
        """Whether a set-up failed, which is no failure of a program: with `disableRetries` the
        first one ends the job, else the third.
        """
        if not isinstance(entry.event, ReplicaExited) or entry.event.cause is not ExitCause.SETUP:
            return False
        return any(kind == "setup" for _, _, kind in self._job.faults)

    def _count(self, charges: list[Charge], action: Action) -> None:
        assert self.state
        self.charges += charges
        if isinstance(action, RestartReplica):
            replica = next(found for found in self.state.replicas if found.key == action.replica)
            self._restarts[replica.attempt, replica.replica_id] -= len(action.excused)
        for charge in charges:
            if charge.kind == "restart" and charge.replica_id:
                self._restarts[self.state.job.attempt, charge.replica_id] += 1
                if self._restarts[self.state.job.attempt, charge.replica_id] > RESTARTS_MAX:
                    self._world.violate("more than five restarts of", charge.replica_id)
            self._reruns += charge.kind == "rerun"
        if self._reruns > RERUNS_MAX:
            self._world.violate("more than three reruns")
        if len(charges) > 1:
            self._world.violate("F2 several charges", *charges)

    def _examine_round(self, before: State, entry: LedgerEntry, charges: list[Charge]) -> None:
        """F2: a round that has ended gets one verdict, with the commit that ends the hold, the
        attempt or the job.
        """
        assert self.state
        job = self.state.job
        round_ = self.round
        if charges and round_.is_judged:
            self._world.violate("F2 second verdict", round_.key, *charges)
        for charge in charges:
            self._examine_charge(charge)
        key = (job.attempt, job.round.number)
        has_begun = not job.round.is_held and key != round_.key
        if has_begun and not charges and not round_.is_judged:
            self._examine_free(entry.decision.text)
        round_.is_judged |= (
            bool(charges) or job.attempt > before.job.attempt or job.state.is_terminal
        )
        if has_begun:
            members = (
                replica
                for replica in self.state.replicas
                if replica.replica_id not in job.round.without
            )
            current = {(replica.replica_id, replica.vm_generation) for replica in members}
            self._world.notes["rounds that grow"] += bool(
                set(before.job.round.without) - set(job.round.without)
            )
            vms = {self._vms[which][-1].instance_id for which in current if which in self._vms}
            self.round = Round(key, self._world.now_s, vms)

    def _examine_free(self, text: str) -> None:
        """F2: nobody pays only if a machine failed, or a program hung.

        The sentence names one of these.
        """
        ends = [program for program in self._programs_of_round() if program.ended_s is not None]
        faults = [(at_s, vm) for at_s, vm, _ in self._faults_of_round(ends)]
        own = [
            program
            for program in ends
            if program.cause == OWN and not program.is_hidden and not program.was_asked
        ]
        stalled = [
            program for program in ends if program.cause == STALLED and not program.was_asked
        ]
        if (own or stalled) and not faults:
            self._world.violate("F2 unpaid", self.round.key, *self._facts(ends))
        culprit = named(text.partition(" goes on without ")[0])
        guilty = {vm.replica_id for _, vm in faults}
        guilty |= {program.replica_id for program in ends if program.was_asked}
        guilty |= {vm.replica_id for vm in self._given_up if vm.instance_id in self.round.vms}
        # A member may begin a round without a VM, if its loss was judged as the round began.
        guilty |= {
            vm.replica_id for at_s, vm, _ in self._job.faults if at_s > self.round.began_s - HELD_S
        }
        if culprit and culprit not in guilty:
            self._world.violate("false why", text, *self._facts(ends))

    def _examine_charge(self, charge: Charge) -> None:
        """F2: the charged member failed by itself, and no machine of its round had failed before
        the first program did.

        The machine of a program that had completed is none of them.
        """
        ends = [program for program in self._programs_of_round() if program.ended_s is not None]
        programs = self._programs_of_round()
        own = [
            program
            for program in programs
            if program.replica_id == charge.replica_id
            and (program.cause == OWN or program.is_frozen)
        ]
        first_s = min((program.ended_s or 0 for program in ends if program.cause == OWN), default=0)
        done = {program.agent.vm: program.ended_s or 0 for program in ends if program.cause == DONE}
        faults = self._faults_of_round(ends)
        began = {program.agent.vm: program.started_s for program in self._programs_of_round()}
        machine = {
            vm.instance_id
            for at_s, vm, kind in faults
            if kind in HARD
            and self._is_known(vm, began)
            and own
            and at_s < min(first_s, done.get(vm, first_s))
            if kind != "unkillable" or at_s > began.get(vm, 0)  # a reboot repaired it
        }
        if self._is_stalled(charge, ends):
            return
        unfound = self._unfound()
        if (
            machine and machine <= unfound
        ):  # the job moved to another zone before the machine's end was found
            self._world.notes["the evidence was lost"] += 1
        elif machine:
            self._world.violate(
                "F2 charged although a machine had failed before", charge, *self._facts(ends)
            )
        elif not own and any(
            program.root
            and (
                (program.root.is_hidden and not program.root.is_frozen)
                or program.root.agent.vm.instance_id in unfound
            )
            for program in ends
        ):
            self._world.notes["the evidence was lost"] += 1
        elif (
            not own
            and any(program.root and program.root.is_frozen for program in ends)
            and self._is_hung_unknown(ends)
        ):
            self._world.notes["the hung member was one of several without an end"] += 1
        elif (
            not own
            and self._world.profile.bad_clock
            and not any(is_evident(program) for program in ends)
        ):
            self._world.notes["a wrong clock decided"] += 1
        elif not own:
            self._world.violate("F2 innocent charged", charge, *self._facts(ends))
        elif charge.named and charge.named != charge.replica_id:
            self._world.violate("false why", charge)

    def _is_hung_unknown(self, ends: list[Program]) -> bool:
        """Whether not only the member that hung reported no end of its own: a directive stopped
        others.
        """
        reported = {
            program.replica_id
            for program in ends
            if program.cause == PEER and not program.is_hidden
        }
        return len({program.replica_id for program in self._programs_of_round()} - reported) != 1

    def _unfound(self) -> set[str]:
        """Instance ids of VMs that the service gave up, or left behind in another zone, without a
        recorded loss.
        """
        assert self.state
        floor = self.state.job.placement.floor
        left = {
            vm.instance_id for same in self._vms.values() for vm in same if vm.generation < floor
        }
        return (left | {vm.instance_id for vm in self._given_up}) - self._lost

    def _is_known(self, vm: ExploredVm, began: Mapping[ExploredVm, float]) -> bool:
        """Whether the machine took part, as far as the service can know: in the first round,
        members come one by one, and one that vanishes before its report has never been there.
        """
        return self.round.key != FIRST or (vm in began and vm.instance_id in self._reported)

    def _facts(self, ends: list[Program]) -> list[str]:
        """Return what happened in the round, for a message."""
        faults = [f"{vm}:{kind}:{at_s:.1f}" for at_s, vm, kind in self._faults_of_round(ends)]
        causes = [
            f"{program}:{program.cause}:{program.facts}:{program.ended_s:.1f}" for program in ends
        ]
        return [f"round {self.round.key}", *causes, *faults]

    def _is_stalled(self, charge: Charge, ends: list[Program]) -> bool:
        """Whether the charge is for a stall of the member, which its agent ended; of any member, if
        the job pays with a rerun.
        """
        stalled = [program.replica_id for program in ends if program.cause == STALLED]
        return charge.replica_id in stalled or (charge.kind == "rerun" and bool(stalled))

    def _programs_of_round(self) -> list[Program]:
        programs = self._job.programs.all
        return [
            program
            for program in programs
            if program.key == self.round.key and self._job.is_member(program.replica_id)
        ]

    def _faults_of_round(self, ends: list[Program]) -> list[tuple[float, ExploredVm, str]]:
        """When machines of the round failed under it, or were announced to."""
        faults = [
            (at_s, vm, kind)
            for at_s, vm, kind in self._job.faults
            if vm.instance_id in self.round.vms
            and self._job.is_member(vm.replica_id)
            and kind != "setup"
            if kind in HARD or at_s >= self.round.began_s or vm.failed_s is not None
        ]
        return faults + [
            (program.ended_s or 0, program.agent.vm, "interrupted")
            for program in ends
            if program.cause == REBOOT
        ]

    # Replicas that are judged alone.

    def _examine_exit(self, event: ReplicaExited, charges: list[Charge]) -> None:
        """A replica that is judged alone pays for each failure of its program, whoever caused it,
        and no other end.
        """
        subject = event.subject
        assertable = [charge for charge in charges if charge.kind != "fail" or charge.replica_id]
        ends = [
            program
            for program in self._job.programs.all
            if (program.replica_id, program.key)
            == (subject.replica_id, (subject.attempt, subject.incarnation))
            and program.agent.vm.instance_id == subject.vm.instance_id
        ]
        causes = {program.cause for program in ends}
        if (
            assertable
            and not causes & {OWN, PEER}
            and not any(self._is_stalled(charge, ends) for charge in assertable)
        ):
            self._world.violate("innocent charged alone", *assertable, *causes)
        assert self.state
        replica = self.state.find(subject.attempt, subject.replica_id)
        is_given_up = (
            replica is not None and replica.state is ReplicaState.COMPLETED
        )  # the job goes on without it
        is_paid = bool(charges) or is_given_up or self.state.job.state.is_terminal
        if (
            causes & {OWN, PEER}
            and event.cause == "process"
            and not event.succeeded
            and not is_paid
        ):
            self._world.violate("unpaid alone", subject.replica_id, subject.incarnation, *causes)

    # The end.

    def _examine_success(self) -> None:
        """F5: the primary, on all its hosts, exited 0 by itself in the last attempt, or in the one
        before if it had hardly run since: no report of its start may have arrived.
        """
        assert self.state
        job = self.state.job
        if job.state is not JobState.SUCCEEDED or job.tuning is not None:
            return
        hosts = self._job.plan.group(self._job.primary.task_type).hosts
        done = Counter(program.key for program in self._done_primaries())
        finished = {attempt for (attempt, _), count in done.items() if count >= hosts}
        has_run_since = any(
            program.replica_id == self._job.primary
            and program.key[0] == job.attempt
            and self._world.now_s - program.started_s > REPORT_S
            for program in self._job.programs.all
        )
        by_the_one_before = job.attempt - 1 in finished and not has_run_since
        if job.attempt not in finished and not by_the_one_before:
            self._world.violate("F5 SUCCEEDED without exit 0 of the primary", dict(done))

    def _done_primaries(self) -> list[Program]:
        programs = self._job.programs.all
        return [
            program
            for program in programs
            if program.replica_id == self._job.primary and program.cause == DONE
        ]

    def examine_end(self) -> None:
        """Check what must be true when all faults have ended long ago."""
        world = self._world
        state = self.state
        if state is None:
            return world.violate("never accepted")
        job = state.job
        if not job.state.is_terminal:
            states = [
                f"{replica.replica_id}:{replica.state}:{replica.incarnation}"
                for replica in state.replicas
            ]
            return world.violate("F3 not ended", job.state, job.attempt, *states)
        if any(vm.job is self._job for vm in self._vms_present()):
            world.violate("leak", *(vm for vm in self._vms_present() if vm.job is self._job))
        folded = fold(self._store.ledger(job.job_id))
        assert folded
        if folded.job != job or {replica.key: replica for replica in folded.replicas} != {
            replica.key: replica for replica in state.replicas
        }:
            world.violate("replay differs")
        if job.budgets.reruns_used != self._reruns:
            world.violate("reruns", job.budgets.reruns_used, self._reruns)
        if job.state is JobState.FAILED:
            self._examine_failure()
        if job.plan.limits.cap:
            self._examine_cost(job.plan.limits.cap, job.state)
        world.notes[job.state.value] += 1
        world.notes.update(f"end {program.cause}" for program in self._job.programs.all)
        return None

    def _examine_cost(self, cap: Cap, state: JobState) -> None:
        """F6: note also how much a cancelled job has left, as time of all its machines."""
        left = float(cap.limit.amount) - self._job.cost
        if left < 0:
            self._world.violate("F6 above its maxCost", self._job.cost, cap)
        if state is JobState.CANCELLED:
            left_s = left / float(cap.per_hour) * 3600
            percent_s = float(cap.limit.amount / cap.per_hour) * 36
            limit = next(
                limit_s
                for limit_s in (120, 180, 240, 300, 600, 1e9)
                if left_s <= max(limit_s, percent_s)
            )
            self._world.notes[f"CANCELLED with at most {limit:g} s left"] += 1
            self._world.notes["CANCELLED after a save"] += any(
                program.cause == SAVED for program in self._job.programs.all
            )

    def _vms_present(self) -> list[ExploredVm]:
        return [vm for vms in self._vms.values() for vm in vms if not vm.is_gone]

    def _examine_failure(self) -> None:
        """F4, and F5's other half: a failed job had a reason, and its primary had not exited 0 in
        this attempt.
        """
        assert self.state
        assert self.ended_s is not None
        job = self.state.job
        profile = self._world.profile
        had_failure = any(
            program.cause in (OWN, PEER, STALLED, REBOOT) for program in self._job.programs.all
        )
        had_failure |= any(kind == "setup" for _, _, kind in self._job.faults)
        if not had_failure and not profile.internal and not profile.slow_setup and not job.tuning:
            self._world.violate("F4 FAILED without a failure", job.error_message)
        hosts = self._job.plan.group(self._job.primary.task_type).hosts
        for program in self._done_primaries():
            is_known = (
                program.agent.vm.failed_s is None and (program.ended_s or 0) < self.ended_s - 700
            )
            if is_known and program.key[0] == job.attempt and hosts == 1:
                self._world.violate("F5 the primary had exited 0", program, job.error_message)


def is_evident(program: Program) -> bool:
    """Whether the program failed by itself, and its agent sees that: a traceback of its own, or a
    signal.
    """
    facts = program.facts or {}
    return program.cause == OWN and ("error" in facts or facts.get("signal", 6) != 6)


def named(text: str) -> ReplicaId | None:
    """Return the first replica that the text names."""
    match = NAMED.search(text)
    return ReplicaId.parse(f"{match[1]}-{match[2]}") if match else None
