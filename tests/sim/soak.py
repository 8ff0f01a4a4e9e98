"""Run many histories under all fault profiles: `python -m tests.sim.soak --seeds N --jobs J`.

Prints the seeds that failed. Worker processes take small batches, so that one slow history delays
only its batch.
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

from trainmaster_local.simulator.history import run_seed
from trainmaster_local.simulator.scenarios.fault_profiles import PROFILES
from trainmaster_local.simulator.scenarios.scenario import HistoryError

BATCH_SIZE: Final = 50
"""Histories that a process takes at a time."""
FAILURES_SHOWN_MAX: Final = 20
"""Failures that are printed at the end."""
PROGRESS_INTERVAL_S: Final = 5.0


@dataclass(slots=True)
class Tally:
    """Totals of many histories."""

    histories: int = 0
    steps: int = 0
    """Lines of the histories' traces."""
    states: Counter[str] = field(default_factory=Counter)
    """Number of jobs, by their final state."""
    failures: list[tuple[str, int, str]] = field(default_factory=list)
    """Profile, seed and error of each history that failed."""

    def add(self, other: Tally) -> None:
        """Add the totals of another batch."""
        self.histories += other.histories
        self.steps += other.steps
        self.states.update(other.states)
        self.failures.extend(other.failures)


def run_batch(seeds: Sequence[int], names: Sequence[str]) -> Tally:
    """Run one history for each seed.

    The profiles take turns: seed N uses profile N modulo their number.
    """
    logging.disable()
    tally = Tally()
    for seed in seeds:
        profile = PROFILES[names[seed % len(names)]]
        tally.histories += 1
        try:
            outcome = run_seed(seed, profile)
        except HistoryError as error:
            tally.failures.append(
                (profile.name, seed, f"{type(error.cause).__name__}: {error.cause}"[:300])
            )
        else:
            tally.steps += outcome.steps
            tally.states.update(outcome.states)
    return tally


def soak(first: int, seeds: int, jobs: int, names: Sequence[str]) -> Iterator[Tally]:
    """Run `seeds` histories, starting at seed `first`, in `jobs` processes.

    Yield the totals after every batch.
    """
    total = Tally()
    starts = range(first, first + seeds, BATCH_SIZE)
    batches = [range(start, min(start + BATCH_SIZE, first + seeds)) for start in starts]
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for tally in pool.map(run_batch, batches, [names] * len(batches)):
            total.add(tally)
            yield total


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--profile", action="append", choices=sorted(PROFILES), help="repeatable; default: all"
    )
    options = parser.parse_args()
    started = time.monotonic()
    reported = started
    total = Tally()
    for total in soak(
        options.first, options.seeds, options.jobs, options.profile or list(PROFILES)
    ):
        if time.monotonic() - reported >= PROGRESS_INTERVAL_S:
            reported = time.monotonic()
            rate = total.histories / (reported - started)
            sys.stderr.write(
                f"{total.histories} of {options.seeds}, {rate:.0f}/s, {len(total.failures)}"
                " failed\n"
            )
    elapsed_s = time.monotonic() - started
    for name, seed, error in total.failures[:FAILURES_SHOWN_MAX]:
        sys.stdout.write(
            f"python -m trainmaster_local.simulator --profile {name} --seed {seed}   # {error}\n"
        )
    states = ", ".join(f"{count} {state}" for state, count in total.states.most_common())
    sys.stdout.write(
        f"{total.histories} histories, {total.steps} steps in {elapsed_s:.0f} s"
        f" ({total.histories / elapsed_s:.0f}/s): {states}; {len(total.failures)} failed\n"
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
