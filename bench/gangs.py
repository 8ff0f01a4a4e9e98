"""Events that a whole job of N replicas sends at once, handled by 16 threads, until the job is
settled again.

    start    N ready reports, until the job is RUNNING
    restart  the program of one replica fails; all stop, and run again in their VMs
    loss     one VM is preempted and its N - 1 peers fail; all run again when the next VM is ready
    end      all exit with status 0, the chief last, until the job SUCCEEDED and no VM is left
    rerun    a program fails in a job that is rerun then, until its next attempt runs

`python -m bench` calls `measure`. `provision` is the function that creates and deletes VMs. Its
pauses between two comparisons of desired and observed VMs are part of the times. The operations of
each phase are those of `bench.costs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from bench.agents import agents
from bench.cloud import Emulators
from bench.figures import Figure, Figures
from bench.gang_job import Cost, Gang, RerunGang
from bench.meter import Meter, attach

GangT = TypeVar("GangT", bound=Gang)


def measure(emulators: Emulators, sizes: Sequence[int]) -> Iterator[Figures]:
    """Yield the figures of each phase as soon as they are known: the largest size takes minutes."""
    for size in sizes:
        with _gang(emulators, Gang, size) as gang:
            # The failure comes before the loss: the rules take a failure soon after a loss for a
            # consequence of the loss.
            yield _figures("start", size, gang.cost_of(gang.start))
            yield _figures("restart", size, gang.cost_of(gang.restart_one))
            if size > 1:  # a single replica has no peers
                yield _figures("loss", size, gang.cost_of(gang.lose_one))
            yield _figures("end", size, gang.cost_of(gang.end))
        with _gang(emulators, RerunGang, size) as rerun_gang:
            rerun_gang.start()
            yield _figures("rerun", size, rerun_gang.cost_of(rerun_gang.rerun))


@contextmanager
def _gang(emulators: Emulators, kind: type[GangT], size: int) -> Iterator[GangT]:
    """Yield a submitted job in a project of its own."""
    with emulators.project() as project, agents(project.name) as senders:
        meter = Meter()
        attach(project.client, meter)
        yield kind(project.store, project.observer, meter, senders, size)


def _figures(phase: str, size: int, cost: Cost) -> Figures:
    names = {
        "time": Figure(cost.seconds, "s"),
        "listings": Figure(cost.listings, "listings"),
        "inserts": Figure(cost.inserts, "inserts"),
        "failed deliveries": Figure(cost.failures, "deliveries"),
    }
    return {f"{phase}: {name} N={size}": figure for name, figure in names.items()}
