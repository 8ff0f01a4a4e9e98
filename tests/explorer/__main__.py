"""Explore histories: `python -m tests.explorer [--profile NAME] [--seeds FROM:TO] [--trace]`, or
`make explore`.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.explorer.history import History
from tests.explorer.profiles import PROFILES

PER_TASK = 20


@dataclass(frozen=True, slots=True)
class Explored:
    """What some histories of one profile showed."""

    profile: str
    count: int
    notes: Counter[str]
    violations: list[tuple[str, str]]
    """Invariant, and the seed with the facts."""
    traces: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.explorer", description=__doc__)
    parser.add_argument("--profile", choices=PROFILES, action="append")
    parser.add_argument("--seeds", default="0:1200")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="begin no more histories after this time",
    )
    parser.add_argument("--trace", action="store_true", help="print what happened in each history")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(":"))
    tasks = [
        (name, range(seed, min(seed + PER_TASK, last)), time.time() + arguments.seconds)
        for seed in range(first, last, PER_TASK)
        for name in arguments.profile or PROFILES
    ]
    began = time.monotonic()
    counts = Counter[str]()
    notes = defaultdict[str, Counter[str]](Counter)
    violations: defaultdict[str, list[str]] = defaultdict(list)
    for explored in _explore_all(tasks, arguments.processes):
        counts[explored.profile] += explored.count
        notes[explored.profile].update(explored.notes)
        for invariant, facts in explored.violations:
            violations[invariant].append(facts)
            print(f"VIOLATED {invariant}: {facts[:1000]}", flush=True)
        if arguments.trace:
            print(*explored.traces, sep="\n")
    for name, count in counts.items():
        print(f"{name}: {count} histories, {dict(sorted(notes[name].items()))}")
    found = {invariant: len(facts) for invariant, facts in violations.items()}
    print(f"{counts.total()} histories in {time.monotonic() - began:.0f} s, violations: {found}")
    return int(bool(violations))


def _explore_all(tasks: list[tuple[str, range, float]], processes: int) -> Iterator[Explored]:
    if processes == 1:
        yield from map(_explore, tasks)
        return
    with multiprocessing.Pool(processes) as pool:
        yield from pool.imap_unordered(_explore, tasks)


def _explore(task: tuple[str, range, float]) -> Explored:
    name, seeds, until = task
    logging.disable()
    explored = Explored(name, 0, Counter(), [], [])
    for count, seed in enumerate(seeds):
        if time.time() > until:
            return Explored(name, count, explored.notes, explored.violations, explored.traces)
        world = History(seed, PROFILES[name]).run()
        explored.notes.update(world.notes)
        for invariant, facts in world.violations:
            explored.violations.append(
                (invariant, f"--profile {name} --seeds {seed}:{seed + 1}: {facts}")
            )
        explored.traces.extend(world.trace)
    return Explored(name, len(seeds), explored.notes, explored.violations, explored.traces)


if __name__ == "__main__":
    sys.exit(main())
