"""`python -m simulator.soak --seeds N --jobs J`: many histories, every profile in turn, and the seeds that failed.

Each worker takes the next seeds when it is done with its own: one slow history holds up nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from simulator.scenarios.fault_profiles import PROFILES
from simulator.scenarios.generator import case
from simulator.scenarios.scenario import HistoryError

BATCH: Final = 50
SHOWN_MAX: Final = 20
PROGRESS_S: Final = 5.0


@dataclass(slots=True)
class Tally:
    """`states`: how the jobs ended. `failures`: profile, seed and the first line of what was wrong."""

    histories: int = 0
    steps: int = 0
    states: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.steps += other.steps
        self.states.update(other.states)
        self.failures.extend(other.failures)


def batch(seeds: Sequence[int], names: Sequence[str]) -> Tally:
    """Each seed under one of the profiles, by turns."""
    logging.disable()
    tally = Tally()
    for seed in seeds:
        profile = PROFILES[names[seed % len(names)]]
        tally.histories += 1
        try:
            outcome = case(seed, profile)
        except HistoryError as error:
            tally.failures.append((profile.name, seed, f"{type(error.cause).__name__}: {error.cause}"[:300]))
        else:
            tally.steps += outcome.steps
            tally.states.update(outcome.states)
    return tally


def soak(first: int, seeds: int, jobs: int, names: Sequence[str]) -> Iterator[Tally]:
    """The tally so far, after every batch."""
    total = Tally()
    starts = range(first, first + seeds, BATCH)
    batches = [range(start, min(start + BATCH, first + seeds)) for start in starts]
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for tally in pool.map(batch, batches, [names] * len(batches)):
            total.add(tally)
            yield total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--profile", action="append", choices=sorted(PROFILES), help="all of them without this")
    asked = parser.parse_args()
    began = time.monotonic()
    shown = began
    total = Tally()
    for total in soak(asked.first, asked.seeds, asked.jobs, asked.profile or list(PROFILES)):
        if time.monotonic() - shown >= PROGRESS_S:
            shown = time.monotonic()
            rate = total.histories / (shown - began)
            sys.stderr.write(f"{total.histories} of {asked.seeds}, {rate:.0f}/s, {len(total.failures)} failed\n")
    took_s = time.monotonic() - began
    for name, seed, what in total.failures[:SHOWN_MAX]:
        sys.stdout.write(f"python -m simulator --profile {name} --seed {seed}   # {what}\n")
    ends = ", ".join(f"{count} {state}" for state, count in total.states.most_common())
    sys.stdout.write(
        f"{total.histories} histories, {total.steps} steps in {took_s:.0f} s ({total.histories / took_s:.0f}/s): "
        f"{ends}; {len(total.failures)} failed\n"
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
