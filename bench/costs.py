"""The cost of the control plane's work for one job of N replicas, phase by phase and event by
event: the operations that Firestore charges, and the invocations of functions.

A *verdict* decides which member's failure ended a round, a common start of all members.

The formulas are exact, if the members of the gang send their messages together.
tests/integration/cost/test_costs.py runs the flows and compares; docs/benchmarks.md and
docs/scale.md are made of this table. Several function instances at work at once may need a few
reads more: each further delivery of `provision` reads the whole attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.core.rules.evidence import ENDS_READ
from trainmaster.cost.operations import (
    COMPUTE_USD,
    DELETE_USD,
    INVOCATION_USD,
    READ_USD,
    WRITE_USD,
)


@dataclass(frozen=True, slots=True)
class Formula:
    """A count for a gang of N: `fixed + per_member * N`, and the ends that a verdict reads."""

    fixed: int
    per_member: int = 0
    has_verdict: bool = False
    """Whether a verdict reads how the members ended, of a large gang only the first ones."""

    def at(self, size: int) -> int:
        """Return the count for a gang of `size` members."""
        ends = min(size, ENDS_READ) if self.has_verdict else 0
        return self.fixed + self.per_member * size + ends

    def __str__(self) -> str:
        terms = [str(self.fixed)] if self.fixed or not self.per_member else []
        if self.per_member:
            terms.append(f"{self.per_member} N" if self.per_member > 1 else "N")
        if self.has_verdict:
            terms.append(f"min(N, {ENDS_READ})")
        return " + ".join(terms)

    def __add__(self, other: Formula) -> Formula:
        if self.has_verdict or other.has_verdict:
            raise ValueError("the sum of a formula with a verdict is not a formula")
        return Formula(self.fixed + other.fixed, self.per_member + other.per_member)


@dataclass(frozen=True, slots=True)
class Floor:
    """Reads and writes per replica that a phase needs, if every replica has a document, every
    recorded event a ledger entry, and functions remember nothing.
    """

    decisions: int = 0
    """Decisions about the whole attempt. Each reads all replicas."""
    reports: int = 0
    """That a replica is ready: reads the job and the replica, and counts the replicas that are;
    writes the replica and an entry.
    """
    releases: int = 0
    """Exits that release a VM: read the job and the replica, whether the request to `provision` is
    done, and the entry that is confirmed; write the replica and the entry, and confirm it.
    """
    unrecorded: int = 0
    """Exits that change nothing: read the job and the replica."""
    replicas: int = 0
    """Documents of replicas that are created or closed."""

    @property
    def reads(self) -> int:
        return self.decisions + 3 * self.reports + 4 * self.releases + 2 * self.unrecorded

    @property
    def writes(self) -> int:
        return 2 * self.reports + 3 * self.releases + self.replicas

    def __str__(self) -> str:
        return f"{self.reads}, {self.writes}"


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """The cost of one phase of a job, for a gang of N > 1."""

    words: str
    """The phase in words, from its first event to its end."""
    reads: Formula
    writes: Formula
    deletes: Formula
    """Deletions of leases, by which only one delivery of `provision` works on a job."""
    invocations: Formula
    floor: Floor | None = None
    """None for a sum of phases, which has no floor."""

    def dollars(self, size: int) -> float:
        """USD at list prices, without free tiers."""
        firestore = (
            self.reads.at(size) * READ_USD
            + self.writes.at(size) * WRITE_USD
            + self.deletes.at(size) * DELETE_USD
        )
        return firestore + self.invocations.at(size) * (INVOCATION_USD + COMPUTE_USD)


PHASES: Final = {
    "submission": PhaseCost(
        "a submission, until all VMs are requested",
        reads=Formula(19, 1),
        writes=Formula(7, 1),
        deletes=Formula(1),
        invocations=Formula(2),
        floor=Floor(decisions=1, replicas=1),
    ),
    "start": PhaseCost(
        "N reports of agents, until the job is RUNNING",
        reads=Formula(9, 4),
        writes=Formula(4, 2),
        deletes=Formula(1),
        invocations=Formula(2, 1),
        floor=Floor(decisions=1, reports=1),
    ),
    "restart": PhaseCost(
        "one program fails, until all N run again in their VMs",
        reads=Formula(23, 5),
        writes=Formula(9, 2),
        deletes=Formula(2),
        invocations=Formula(4, 1),
        floor=Floor(decisions=2, reports=1),
    ),
    "loss": PhaseCost(
        "a VM is preempted and N - 1 programs fail, until all N run again",
        reads=Formula(19, 7, has_verdict=True),
        writes=Formula(9, 2),
        deletes=Formula(2),
        invocations=Formula(3, 2),
        floor=Floor(decisions=2, reports=1, unrecorded=1),
    ),
    "rerun": PhaseCost(
        "one program fails in a job with `restartJobOnWorkerRestart`, until the next attempt runs",
        reads=Formula(34, 9),
        writes=Formula(12, 6),
        deletes=Formula(3),
        invocations=Formula(6, 2),
        floor=Floor(decisions=3, reports=1, replicas=2),
    ),
    "end": PhaseCost(
        "N exits with status 0, the chief's last, until no VM is left",
        reads=Formula(10, 5),
        writes=Formula(3, 3),
        deletes=Formula(2),
        invocations=Formula(0, 2),
        floor=Floor(decisions=1, releases=1),
    ),
}
"""Phase → its cost."""

KEPT: Final = {
    "end": PhaseCost(
        "N exits with status 0, the chief's last, until all N VMs idle",
        reads=Formula(17, 8),
        writes=Formula(3, 3),
        deletes=Formula(2),
        invocations=Formula(0, 2),
    ),
    "minute": PhaseCost(
        "a sweep finds that they are kept for longer",
        reads=Formula(8),
        writes=Formula(1),
        deletes=Formula(1),
        invocations=Formula(1),
    ),
    "release": PhaseCost(
        "a user releases them, until no VM is left",
        reads=Formula(13),
        writes=Formula(5),
        deletes=Formula(1),
        invocations=Formula(1),
    ),
}
"""Phase of a job with `keepMachines` → its cost.

Before its end, each event reads one document more, that of the machine set. The loss of the VM of a
replica that is judged alone also writes the job.
"""

KEPT_SETS: Final = 100
"""Sets of kept machines of which the table shows the cost of a day."""
DAY_MIN: Final = 24 * 60

ABOVE_FLOOR: Final = {
    "rerun": "Each member reports twice: that it has stopped, and that it is ready for the next"
    " attempt. The floor needs agents that begin an attempt without the second report.",
}
"""Phase whose cost per replica is more than a fifth above its floor → why."""


@dataclass(frozen=True, slots=True)
class Part:
    """The reads and writes of each replica in one step of a phase, and their reason."""

    words: str
    reads: int
    writes: int
    why: str
    is_above_floor: bool = False


RERUN: Final = (
    Part(
        "`provision` reads the attempt, and lets all members hold",
        reads=1,
        writes=0,
        why="which VMs exist, and what each of them does, is compared with all replicas",
    ),
    Part(
        "each agent reports that nothing older runs",
        reads=3,
        writes=2,
        why="a program that is left would write the checkpoints of the next attempt; the report is"
        " in the replica's document, because functions remember nothing",
        is_above_floor=True,
    ),
    Part(
        "`provision` reads the attempt for the verdict",
        reads=1,
        writes=0,
        why="who is charged, and who is ready",
    ),
    Part(
        "the verdict closes the replicas, and creates those of the next attempt",
        reads=0,
        writes=2,
        why="late events are about a replica of their own attempt; closed ones are deleted later",
    ),
    Part(
        "each agent reports that it is ready for the next attempt",
        reads=3,
        writes=2,
        why="a VM may have been lost since; the directive of the next attempt has arrived",
    ),
    Part(
        "`provision` reads the next attempt, and lets the round begin",
        reads=1,
        writes=0,
        why="all members must be ready for the same round",
    ),
)
"""The steps of a rerun. A read of a report is one of the job, the replica, and the count of those
that are ready; its writes are the replica and the ledger entry.
"""
WITHOUT_FAULTS: Final = ("submission", "start", "end")
"""The phases of a job in which nothing fails."""


def job_without_faults() -> PhaseCost:
    """Return the cost of a whole job of N > 1 replicas in which nothing fails."""
    first, *others = (PHASES[name] for name in WITHOUT_FAULTS)
    total = first
    for phase in others:
        total = PhaseCost(
            "a job in which nothing fails",
            total.reads + phase.reads,
            total.writes + phase.writes,
            total.deletes + phase.deletes,
            total.invocations + phase.invocations,
        )
    return total


SWEEP_READS: Final = {
    "each sweep": 4,
    "each sweep, if there are limits": 3,
    "a running job": 4,
    "a job that waits for its admission": 0,
}
"""Reads of a sweep and of its requests in a minute without a change.

Every tenth minute, a running job is read with all replicas; every hour, a pass reads all live jobs.
"""
JOBS: Final = 10_000
REPLICAS: Final = 10
"""The installation of docs/scale.md."""
REQUESTS: Final = {
    "submission by a message, with the quota of messages": 4,
    "exit": 2,
    "duplicate of an exit": 3,
    "report that a replica is ready": 3,
    "last report, which requests the start": 3,
    "request to provision that is done already": 1,
}
"""Event → requests to Firestore of the function that judges it, whatever the size of the gang, one
after the other. What follows from it is the work of `provision`.

A submission counts the jobs of the last minute, looks for another owner of its VMs' names, looks
for an earlier delivery, and commits.
"""


def tables() -> str:
    """Return the tables of docs/benchmarks.md in Markdown."""
    phases = {**PHASES, "whole job": job_without_faults()}
    columns = "phase | reads | writes | floor per replica: reads, writes | deletes | invocations"
    lines = [f"| {columns} | USD for N = 10 |", "| --- | --- | --- | --- | --- | --- | --- |"]
    lines.extend(
        f"| {name}: {cost.words} | {cost.reads} | {cost.writes} | {cost.floor or ''} "
        f"| {cost.deletes} | {cost.invocations} | {cost.dollars(size=10):.6f} |"
        for name, cost in phases.items()
    )
    lines.extend(["", *(f"{name}: {reason}" for name, reason in ABOVE_FLOOR.items())])
    lines.extend(["", "| rerun, for each replica | reads | writes | why |"])
    lines.append("| --- | --- | --- | --- |")
    lines.extend(
        f"| {part.words}{' (above the floor)' if part.is_above_floor else ''} | {part.reads} "
        f"| {part.writes} | {part.why} |"
        for part in RERUN
    )
    lines.extend(
        [
            "",
            "| job with `keepMachines` | reads | writes | deletes | invocations | USD for N = 10 |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
    )
    lines.extend(
        f"| {name}: {cost.words} | {cost.reads} | {cost.writes} | {cost.deletes} "
        f"| {cost.invocations} | {cost.dollars(size=10):.6f} |"
        for name, cost in KEPT.items()
    )
    a_day = KEPT_SETS * DAY_MIN * KEPT["minute"].dollars(REPLICAS)
    lines.append(
        f"\nWhile {KEPT_SETS} jobs keep machines, a day costs {a_day:.2f} USD, whatever the number"
        " of machines; each minute has one listing per job."
    )
    lines.extend(["", "| event | requests to Firestore |", "| --- | --- |"])
    lines.extend(f"| {event} | {count} |" for event, count in REQUESTS.items())
    lines.extend(["", "| in a minute without a change | reads |", "| --- | --- |"])
    lines.extend(f"| {part} | {count} |" for part, count in SWEEP_READS.items())
    return "\n".join(lines)


def scale_table() -> str:
    """Return the table of docs/scale.md in Markdown: `JOBS` jobs in which nothing fails."""
    job = job_without_faults()
    lines = [f"| | per job | per replica | {JOBS:,} jobs of {REPLICAS} replicas |"]
    lines.append("| --- | --- | --- | --- |")
    for name, formula in (
        ("Firestore reads", job.reads),
        ("Firestore writes", job.writes),
        ("invocations", job.invocations),
    ):
        total = JOBS * formula.at(REPLICAS)
        lines.append(f"| {name} | {formula.fixed} | {formula.per_member} | {total:,} |")
    dollars = JOBS * job.dollars(REPLICAS)
    per_replica = job.dollars(REPLICAS + 1) - job.dollars(REPLICAS)
    per_job = job.dollars(REPLICAS) - REPLICAS * per_replica
    lines.append(f"| USD at list prices | {per_job:.6f} | {per_replica:.6f} | {dollars:.2f} |")
    return "\n".join(lines)
