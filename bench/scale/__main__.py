"""Run one scenario, and print what it needed, how late it was, and which limits it reached.

jobs     all jobs are submitted in one minute; each program runs for ten minutes
ends     all jobs run, and their programs end in the same second
tuning   each job is a tuning job: a hundred trials of one VM and a minute, ten at a time
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from bench.scale.jobs import Installation

REGIONS: Final = (
    "us-central1",
    "us-east1",
    "us-east4",
    "us-west1",
    "us-west2",
    "europe-west1",
    "europe-west2",
    "europe-west4",
    "asia-east1",
    "asia-southeast1",
)
# All times are virtual.
RUN_S: Final = 600.0
"""Time for which each program runs in the scenario `jobs`."""
ENDS_AT_S: Final = 1200.0
"""Time at which all programs end in the scenario `ends`."""
SUBMITTED_WITHIN_S: Final = 60.0
"""Time in which all jobs are submitted, at equal distances."""
LONGEST_S: Final = 48 * 3600.0
"""Time after which a scenario that does not end is given up."""
CHECK_S: Final = 30.0
"""Time between two checks of a condition."""
TRIALS: Final = {
    "hyperparameters": {
        "goal": "MAXIMIZE",
        "params": [
            {"parameterName": "rate", "type": "DOUBLE", "minValue": 0.0001, "maxValue": 0.1},
            {"parameterName": "layers", "type": "INTEGER", "minValue": 1, "maxValue": 300},
        ],
        "maxTrials": 100,
        "maxParallelTrials": 10,
        "hyperparameterMetricTag": "accuracy",
        "algorithm": "RANDOM_SEARCH",
    }
}
TRIAL_S: Final = 60.0
"""Time for which each trial runs."""


def run(scenario: str, jobs: int, replicas: int, regions: int) -> Iterator[str]:
    """Yield the figures of a scenario, each a line."""
    is_tuning = scenario == "tuning"
    installation = Installation(
        list(REGIONS[:regions]),
        TRIAL_S if is_tuning else RUN_S,
        ends_at_s=ENDS_AT_S if scenario == "ends" else None,
    )
    world = installation.world
    fields = TRIALS if is_tuning else {}
    for number in range(jobs):
        submit = partial(installation.submit, number, replicas, **fields)
        world.after(SUBMITTED_WITHIN_S * number / jobs, submit)
    wait_until(installation, lambda: len(installation.started_s) == jobs or is_tuning)
    if not is_tuning:
        yield from percentiles("first program started after, min", installation.started_s.values())
    if scenario == "ends":
        world.run(until_s=ENDS_AT_S - 1.0)
        installation.reset()
    wait_until(installation, lambda: installation.ended() == jobs)
    began_s = ENDS_AT_S if scenario == "ends" else 0.0
    yield f"last VM gone after, min: {(world.now_s - began_s) / 60:.1f}"
    yield from figures(installation)


def wait_until(installation: Installation, is_reached: Callable[[], bool]) -> None:
    """Let time pass until the condition holds. It is checked twice a minute."""
    world = installation.world
    while not is_reached():
        if world.now_s > LONGEST_S:
            raise RuntimeError("the scenario does not end")
        world.run(until_s=world.now_s + CHECK_S)


def percentiles(name: str, seconds: Iterable[float]) -> Iterator[str]:
    """Yield a line with median, 95th percentile and maximum of these times, in minutes."""
    minutes = sorted(value / 60 for value in seconds)
    # Steps of 5 %, from 5 % to 95 %; a single value is all of them.
    twentieths = statistics.quantiles(minutes, n=20) if len(minutes) > 1 else minutes * 19
    median, percentile_95 = twentieths[9], twentieths[18]
    yield f"{name}: median {median:.1f}, 95 % {percentile_95:.1f}, last {minutes[-1]:.1f}"


def figures(installation: Installation) -> Iterator[str]:
    """Yield what was counted since the last reset, each a line."""
    firestore, compute = installation.firestore, installation.compute
    counts = firestore.counts
    yield f"Firestore: {counts.reads:,} reads, {counts.writes:,} writes, {counts.deletes:,} deletes"
    yield "most read by: " + ", ".join(
        f"{name} {reads:,}" for name, reads in counts.reads_by_call.most_common(6)
    )
    for name, (amount, at_s) in firestore.per_second.largest.items():
        yield f"most {name} in a second: {amount:,.0f} (minute {at_s / 60:.0f})"
    hottest = sorted(
        firestore.per_minute.largest.items(), key=lambda item: item[1][0], reverse=True
    )
    for name, (amount, at_s) in hottest[:3]:
        yield f"most writes in a minute: {name} {amount:.0f} (minute {at_s / 60:.0f})"
    yield f"conflicts: {firestore.conflicts:,}"
    yield f"Compute Engine: {dict(compute.calls)}, most VMs {compute.vms_max:,}"
    yield f"refused by quota: {dict(compute.refused)}; given up: {dict(compute.failed)}"
    for quota in ("changes", "reads", "excluded"):
        largest = max(
            (
                value
                for name, value in compute.per_minute.largest.items()
                if name.startswith(f"{quota} in ")
            ),
            default=(0.0, 0.0),
        )
        yield f"most {quota} in a minute, one region: {largest[0]:,.0f}"
    for topic, load in installation.functions.loads.items():
        yield (
            f"{topic}: {load.deliveries:,} deliveries, {load.failures:,} failed, {load.dead:,} "
            f"dead, waiting at most {installation.functions.slots[topic].waiting_max:,} messages "
            f"and {load.late_max_s:.0f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", choices=("jobs", "ends", "tuning"))
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--regions", type=int, default=len(REGIONS))
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    random.seed(1)
    began = time.process_time()
    for line in run(**vars(arguments)):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"(this process: {time.process_time() - began:.0f} CPU s, {mib:.0f} MiB)\n")


if __name__ == "__main__":
    main()
