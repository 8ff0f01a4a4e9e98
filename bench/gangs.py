"""Events that a whole job of N replicas sends at once, handled by 16 threads, until the job is settled again.

    start    N ready reports, until the job is RUNNING
    rerun    the chief crashes, and the whole job runs its next attempt
    restart  the program of one replica fails; all stop, and run again in their VMs
    loss     one VM is preempted and its N - 1 peers fail; all run again when the next VM is ready
    end      N exits with status 0, until the job SUCCEEDED and no VM is left

The floor is N times the floor of one event (`bench.bare_calls`), by as many threads. The pauses of `provision` between
two rounds are part of the times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench import memory
from bench.agents import agents
from bench.bare_calls import BareEvents, latest_keys
from bench.cloud import Emulators, Project
from bench.control_plane import THREADS
from bench.figures import Figure, Figures
from bench.gang_job import JOB, Cost, Gang
from bench.meter import Meter, attach

LOSS_SECONDS_MAX: Final = 60.0
"""Limit of a loss at N = 1,000."""
LOSS_READS_MAX: Final = 25
"""Limit per replica."""
LISTINGS_MAX: Final = 12
INSERTS_MAX: Final = 10
LIMITED_SIZE_MIN: Final = 100
"""Smallest size with limits: the constant part of a smaller job's cost would exceed those per replica."""
PHASES: Final = ("start", "rerun", "restart", "loss", "end")
"""In this order: a crash soon after a failure or a loss is taken for its consequence and causes no rerun."""


def measure(emulators: Emulators, sizes: Sequence[int], phases: Sequence[str] = PHASES) -> Iterator[Figures]:
    """Yield the figures of each phase as soon as they are known: the largest size takes minutes."""
    for size in sizes:
        with emulators.project() as project, agents(project.name) as senders:
            meter = Meter()
            attach(project.client, meter)
            gang = Gang(project.store, project.observer, meter, senders, size)
            yield memory.measure(emulators, project, f"memory: one job N={size}", memory.ATTEMPT, JOB)
            floor_s = _floor_seconds(project, size)
            run = {
                "start": gang.start,
                "rerun": gang.rerun,
                "restart": gang.restart_one,
                "loss": gang.lose_one,
                "end": gang.end,
            }
            for phase in phases:
                if size > 1 or phase != "loss":  # a single replica has no peers
                    yield _figures(phase, size, run[phase](), floor_s)


def _figures(phase: str, size: int, cost: Cost, floor_s: float) -> Figures:
    is_loss = phase == "loss"
    names: dict[str, tuple[float, str, float | None]] = {
        "reads per replica": (cost.reads / size, "reads", LOSS_READS_MAX if is_loss else None),
        "writes per replica": (cost.writes / size, "writes", None),
        "listings": (cost.listings, "listings", LISTINGS_MAX if is_loss else None),
        "inserts": (cost.inserts, "inserts", INSERTS_MAX if is_loss else None),
        "invocations per replica": (cost.invocations / size, "invocations", None),
        "failed deliveries": (cost.failures, "deliveries", None),
    }
    seconds_max = LOSS_SECONDS_MAX if is_loss else None
    figures = {f"{phase}: time N={size}": Figure(cost.seconds, "s", floor_s, value_max=seconds_max)}
    for name, (value, unit, limit) in names.items():
        value_max = limit if size >= LIMITED_SIZE_MIN else None
        figures[f"{phase}: {name} N={size}"] = Figure(value, unit, value_max=value_max)
    return figures


def _floor_seconds(project: Project, size: int) -> float:
    """Return how long as many threads need for `size` bare events, each on documents of its own."""
    keys = latest_keys(project.store, JOB)
    threads = min(size, THREADS)
    events = [BareEvents(project.client, JOB, *keys, f"gang-{number}") for number in range(threads)]
    numbers = [len(range(number, size, threads)) for number in range(threads)]

    def run(item: tuple[BareEvents, int]) -> None:
        event, count = item
        for _ in range(count):
            event.run()

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, zip(events, numbers, strict=True)))
    return time.perf_counter() - began
