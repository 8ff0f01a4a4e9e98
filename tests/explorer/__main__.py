"""Explore histories: `python -m tests.explorer --histories 20000`, or `make explore`.

The histories are spread over all profiles, and run in one process per processor. The table shows
what they cost programs, and how many facts contradict the decisions; the exit status is 0 if none
does. `--profile NAME --seeds FROM:TO --trace` shows what happened in one history.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.explorer.history import History
from tests.explorer.profiles import PROFILES

PER_TASK = 20
FACTS_CHARS_MAX = 1000


@dataclass(slots=True)
class Explored:
    """What some histories of one profile showed."""

    profile: str
    histories: int = 0
    charges: int = 0
    """Restarts, reruns and failures that somebody paid for."""
    notes: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[str, str]] = field(default_factory=list)
    """Invariant, and the seed with the facts."""
    traces: list[str] = field(default_factory=list)

    def add(self, other: Explored) -> None:
        self.histories += other.histories
        self.charges += other.charges
        self.notes.update(other.notes)
        self.violations += other.violations


@dataclass(frozen=True, slots=True)
class Task:
    """Histories of one profile for one process."""

    profile: str
    seeds: Sequence[int]
    until: float
    """When no more histories begin, in seconds since 1970."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.explorer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--profile", choices=PROFILES, action="append", help="default: all")
    parser.add_argument("--histories", type=int, default=20_000, help="number over all profiles")
    parser.add_argument("--seeds", metavar="FROM:TO", help="instead: these seeds of each profile")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="begin no more histories after this time",
    )
    parser.add_argument("--notes", action="store_true", help="print how programs and jobs ended")
    parser.add_argument("--trace", action="store_true", help="print what happened in each history")
    arguments = parser.parse_args()
    profiles = arguments.profile or list(PROFILES)
    first, last = 0, -(-arguments.histories // len(profiles))
    if arguments.seeds:
        first, last = map(int, arguments.seeds.split(":"))
    until = time.time() + arguments.seconds
    tasks = [
        Task(name, range(seed, min(seed + PER_TASK, last)), until)
        for seed in range(first, last, PER_TASK)
        for name in profiles
    ]
    began = time.monotonic()
    sums = {name: Explored(name) for name in profiles}
    for explored in _explore_all(tasks, min(arguments.processes, len(tasks))):
        sums[explored.profile].add(explored)
        for invariant, facts in explored.violations:
            print(f"VIOLATED {invariant}: {facts[:FACTS_CHARS_MAX]}", flush=True)
        if arguments.trace:
            print(*explored.traces, sep="\n")
    _print_table(list(sums.values()))
    if arguments.notes:
        for name, explored in sums.items():
            print(f"{name}: {dict(sorted(explored.notes.items()))}")
    print(f"{time.monotonic() - began:.0f} s")
    return int(any(explored.violations for explored in sums.values()))


def _print_table(rows: list[Explored]) -> None:
    total = Explored("all")
    for row in rows:
        total.add(row)
    print(f"{'profile':14} {'histories':>9} {'charges':>9} {'violations':>10}")
    for row in (*rows, total):
        counts = f"{row.histories:9} {row.charges:9} {len(row.violations):10}"
        print(f"{row.profile:14} {counts}")
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for invariant, _ in row.violations:
            found[invariant][row.profile] += 1
    for invariant, profiles in sorted(found.items()):
        print(f"{invariant}: {dict(profiles)}")


def _explore_all(tasks: list[Task], processes: int) -> Iterator[Explored]:
    if processes == 1:
        yield from map(_explore, tasks)
        return
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap_unordered(_explore, tasks)


def _explore(task: Task) -> Explored:
    logging.disable()
    explored = Explored(task.profile)
    for seed in task.seeds:
        if time.time() > task.until:
            break
        history = History(seed, PROFILES[task.profile])
        world = history.run()
        explored.histories += 1
        explored.charges += sum(len(job.examiner.charges) for job in history.jobs.values())
        explored.notes.update(world.notes)
        where = f"--profile {task.profile} --seeds {seed}:{seed + 1}"
        explored.violations += [
            (invariant, f"{where}: {facts}") for invariant, facts in world.violations
        ]
        explored.traces += world.trace
    return explored


if __name__ == "__main__":
    sys.exit(main())
