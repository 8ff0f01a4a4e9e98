"""Events that a whole job of N replicas sends at once, handled by 16 threads, until the job is
settled again.

    start    N ready reports, until the job is RUNNING
    rerun    the chief crashes, and the whole job runs its next attempt
    restart  the program of one replica fails; all stop, and run again in their VMs
    loss     one VM is preempted and its N - 1 peers fail; all run again when the next VM is ready
    end      all exit with status 0, the chief last, until the job SUCCEEDED and no VM is left

The pauses of `provision` between two rounds are part of the times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.agents import agents
from bench.cloud import Emulators
from bench.figures import Figure, Figures
from bench.gang_job import Cost, Gang
from bench.meter import Meter, attach


def measure(emulators: Emulators, sizes: Sequence[int]) -> Iterator[Figures]:
    """Yield the figures of each phase as soon as they are known: the largest size takes minutes."""
    for size in sizes:
        with emulators.project() as project, agents(project.name) as senders:
            meter = Meter()
            attach(project.client, meter)
            gang = Gang(project.store, project.observer, meter, senders, size)
            # In this order: a crash soon after a failure or a loss is taken for its consequence.
            phases = {
                "start": gang.start,
                "rerun": gang.rerun,
                "restart": gang.restart_one,
                "loss": gang.lose_one,
                "end": gang.end,
            }
            for name, phase in phases.items():
                if size > 1 or name != "loss":  # a single replica has no peers
                    yield _figures(name, size, gang.cost_of(phase))


def _figures(phase: str, size: int, cost: Cost) -> Figures:
    names = {
        "time": Figure(cost.seconds, "s"),
        "reads per replica": Figure(cost.reads / size, "reads"),
        "writes per replica": Figure(cost.writes / size, "writes"),
        "listings": Figure(cost.listings, "listings"),
        "inserts": Figure(cost.inserts, "inserts"),
        "invocations per replica": Figure(cost.invocations / size, "invocations"),
        "failed deliveries": Figure(cost.failures, "deliveries"),
    }
    return {f"{phase}: {name} N={size}": figure for name, figure in names.items()}
