"""F2 of `examiner.py`: whether the verdict about each stopped round agrees with the facts.

A stopped round has one verdict. A charged member's program failed by itself, and no machine of the
round had failed before. A failure without such a fault is paid for. The sentence of the verdict
names a machine or program that really failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.explorer.causes import DONE, OWN, PEER, REBOOT, STALLED
from tests.explorer.charges import Charge, named
from tests.explorer.programs import Key, Program
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import State

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.job_machines import JobMachines
    from tests.explorer.jobs import ExploredJob

FIRST: Final = (1, 1)
HELD_S: Final = 600.0
"""Longest time that a stopped round waits for its verdict."""
HARD: Final = frozenset({"unfit", "lost", "hang", "gone", "unkillable", "interrupted"})
"""Faults after which a machine no longer takes part."""
EVIDENCE_LOST: Final = "the evidence was lost"


@dataclass(slots=True)
class Round:
    """The facts of one round: what ran in it, on which machines."""

    key: Key
    began_s: float = 0.0
    vms: set[str] = field(default_factory=set)
    """Instance ids of its members' machines when it began."""
    is_judged: bool = False


class Rounds:
    """The current round of a synchronous job, and the check of its verdict."""

    def __init__(self, job: ExploredJob, machines: JobMachines) -> None:
        self._job = job
        self._world = job.world
        self._machines = machines
        self.current = Round(FIRST)

    def note_machine(self, vm: ExploredVm) -> None:
        """The job has a further VM. Members of the first round come one by one."""
        if self.current.key == FIRST:
            self.current.vms.add(vm.instance_id)

    def note_start(self, program: Program) -> None:
        if self.current.key == program.key:
            self.current.vms.add(program.agent.vm.instance_id)

    def on_commit(
        self, before: State, after: State, entry: LedgerEntry, charges: list[Charge]
    ) -> None:
        """A round that has ended gets one verdict, with the commit that ends the hold, the attempt
        or the job.
        """
        job = after.job
        round_ = self.current
        if charges and round_.is_judged:
            self._world.violate("F2 second verdict", round_.key, *charges)
        for charge in charges:
            self._examine_charge(charge, self._machines.unfound(job.placement.floor))
        key = (job.attempt, job.round.number)
        has_begun = not job.round.is_held and key != round_.key
        if has_begun and not charges and not round_.is_judged:
            self._examine_free(entry.decision.text)
        round_.is_judged |= (
            bool(charges) or job.attempt > before.job.attempt or job.state.is_terminal
        )
        if has_begun:
            self._world.notes["rounds that grow"] += bool(
                set(before.job.round.without) - set(job.round.without)
            )
            self.current = Round(key, self._world.now_s, self._machines_of_members(after))

    def _machines_of_members(self, state: State) -> set[str]:
        current = {
            (replica.replica_id, replica.vm_generation)
            for replica in state.replicas
            if replica.replica_id not in state.job.round.without
        }
        known = self._machines.by_generation
        return {known[which][-1].instance_id for which in current if which in known}

    def _examine_free(self, text: str) -> None:
        """Nobody pays only if a machine failed, or a program hung.

        The sentence names one of these.
        """
        ends = self._ended_programs()
        faults = [(at_s, vm) for at_s, vm, _ in self._faults(ends)]
        own = [
            program
            for program in ends
            if program.cause == OWN and not program.is_hidden and not program.was_asked
        ]
        stalled = [
            program for program in ends if program.cause == STALLED and not program.was_asked
        ]
        if (own or stalled) and not faults:
            self._world.violate("F2 unpaid", self.current.key, *self._facts(ends))
        culprit = named(text.partition(" goes on without ")[0])
        guilty = {vm.replica_id for _, vm in faults}
        guilty |= {program.replica_id for program in ends if program.was_asked}
        guilty |= {
            vm.replica_id for vm in self._machines.given_up if vm.instance_id in self.current.vms
        }
        # A member may begin a round without a VM, if its loss was judged as the round began.
        guilty |= {
            vm.replica_id
            for at_s, vm, _ in self._job.faults
            if at_s > self.current.began_s - HELD_S
        }
        if culprit and culprit not in guilty:
            self._world.violate("false why", text, *self._facts(ends))

    def _examine_charge(self, charge: Charge, unfound: set[str]) -> None:
        """The charged member failed by itself, and no machine of its round had failed before the
        first program did.
        """
        ends = self._ended_programs()
        if is_stall_paid(charge, ends):
            return
        failed_itself = any(
            program.replica_id == charge.replica_id and (program.cause == OWN or program.is_frozen)
            for program in self._programs()
        )
        if not failed_itself:
            if excuse := self._excuse(ends, unfound):
                self._world.notes[excuse] += 1
            else:
                self._world.violate("F2 innocent charged", charge, *self._facts(ends))
        elif machines := self._machines_failed_first(ends):
            # The job may have moved to another zone before the machine's end was found.
            if machines <= unfound:
                self._world.notes[EVIDENCE_LOST] += 1
            else:
                self._world.violate(
                    "F2 charged although a machine had failed before", charge, *self._facts(ends)
                )
        elif charge.named and charge.named != charge.replica_id:
            self._world.violate("false why", charge)

    def _machines_failed_first(self, ends: list[Program]) -> set[str]:
        """Return the instance ids of machines that had failed before the first program did.

        The machine of a program that had completed is none of them.
        """
        first_s = min((program.ended_s or 0 for program in ends if program.cause == OWN), default=0)
        done = {program.agent.vm: program.ended_s or 0 for program in ends if program.cause == DONE}
        began = {program.agent.vm: program.started_s for program in self._programs()}
        return {
            vm.instance_id
            for at_s, vm, kind in self._faults(ends)
            if kind in HARD
            and self._took_part(vm, began)
            and at_s < min(first_s, done.get(vm, first_s))
            if kind != "unkillable" or at_s > began.get(vm, 0)  # a reboot repaired it
        }

    def _excuse(self, ends: list[Program], unfound: set[str]) -> str | None:
        """Return why the service could not know whose failure it was; None: it could."""
        roots = [program.root for program in ends if program.root]
        if any(
            (root.is_hidden and not root.is_frozen) or root.agent.vm.instance_id in unfound
            for root in roots
        ):
            return EVIDENCE_LOST
        if any(root.is_frozen for root in roots) and self._is_hung_unknown(ends):
            return "the hung member was one of several without an end"
        if self._world.profile.bad_clock and not any(map(is_evident, ends)):
            return "a wrong clock decided"
        return None

    def _is_hung_unknown(self, ends: list[Program]) -> bool:
        """Whether not only the member that hung reported no end of its own: a directive stopped
        others.
        """
        reported = {
            program.replica_id
            for program in ends
            if program.cause == PEER and not program.is_hidden
        }
        return len({program.replica_id for program in self._programs()} - reported) != 1

    def _took_part(self, vm: ExploredVm, began: Mapping[ExploredVm, float]) -> bool:
        """Whether the machine took part, as far as the service can know: in the first round,
        members come one by one, and one that vanishes before its report has never been there.
        """
        return self.current.key != FIRST or (
            vm in began and vm.instance_id in self._machines.reported
        )

    def _facts(self, ends: list[Program]) -> list[str]:
        """Return what happened in the round, for a message."""
        faults = [f"{vm}:{kind}:{at_s:.1f}" for at_s, vm, kind in self._faults(ends)]
        causes = [
            f"{program}:{program.cause}:{program.facts}:{program.ended_s:.1f}" for program in ends
        ]
        return [f"round {self.current.key}", *causes, *faults]

    def _programs(self) -> list[Program]:
        return [
            program
            for program in self._job.programs.all
            if program.key == self.current.key and self._job.is_member(program.replica_id)
        ]

    def _ended_programs(self) -> list[Program]:
        return [program for program in self._programs() if program.ended_s is not None]

    def _faults(self, ends: list[Program]) -> list[tuple[float, ExploredVm, str]]:
        """When machines of the round failed under it, or were announced to."""
        faults = [
            (at_s, vm, kind)
            for at_s, vm, kind in self._job.faults
            if vm.instance_id in self.current.vms
            and self._job.is_member(vm.replica_id)
            and kind != "setup"
            if kind in HARD or at_s >= self.current.began_s or vm.failed_s is not None
        ]
        return faults + [
            (program.ended_s or 0, program.agent.vm, "interrupted")
            for program in ends
            if program.cause == REBOOT
        ]


def is_stall_paid(charge: Charge, ends: list[Program]) -> bool:
    """Whether the charge is for a stall of the member, which its agent ended; of any member, if the
    job pays with a rerun.
    """
    stalled = [program.replica_id for program in ends if program.cause == STALLED]
    return charge.replica_id in stalled or (charge.kind == "rerun" and bool(stalled))


def is_evident(program: Program) -> bool:
    """Whether the program failed by itself, and its agent sees that: a traceback of its own, or a
    signal.
    """
    facts = program.facts or {}
    return program.cause == OWN and ("error" in facts or facts.get("signal", 6) != 6)
