"""Machine time of the job of a world."""

from __future__ import annotations

from tests.support.world import World
from trainmaster.core.reporting.goodput import Goodput, goodput_of
from trainmaster.core.reporting.lost_work import WrittenObjects
from trainmaster.core.reporting.phases import replica_spans


def world_goodput(world: World, written: WrittenObjects | None = None) -> Goodput:
    """Return where the machine time went until now.

    `written`: what the job's directory contains, if it was listed.
    """
    return goodput_of(world.job, replica_spans(world.history), world.now, written)
