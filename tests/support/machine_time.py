"""Machine time of the job of a world."""

from __future__ import annotations

from shared.core.reporting.goodput import Goodput, goodput_of
from shared.core.reporting.lost_work import WrittenObjects
from shared.core.reporting.phases import replica_spans
from tests.support.world import World


def world_goodput(world: World, written: WrittenObjects | None = None) -> Goodput:
    """Return where the machine time went until now. `written`: what the job's directory contains, if it was listed."""
    return goodput_of(world.job, replica_spans(world.history), world.now, written)
