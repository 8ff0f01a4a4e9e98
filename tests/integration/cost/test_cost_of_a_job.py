"""Firestore operations and invocations of one job from its submission to its end: a + b * N for N
replicas.
"""

from __future__ import annotations

import pytest

from bench.agents import agents
from bench.cloud import Emulators
from bench.gang_job import Gang
from bench.meter import Meter, attach


@pytest.mark.parametrize("size", [3, 8, 20])
def test_cost_of_a_job_is_exactly_linear_in_its_replicas(
    size: int, firestore_emulator: str
) -> None:
    """As docs/benchmarks.md states it.

    Deletes are those of leases. One thread: in a fixed order.
    """
    meter = Meter()
    with Emulators(firestore_emulator).project() as project, agents(project.name) as senders:
        attach(project.client, meter)
        gang = Gang(
            project.store, project.observer, meter, senders, size, threads=1, sleep=lambda _: None
        )
        gang.start()
        gang.end()
    assert (meter.reads, meter.writes, meter.deletes) == (34 + 14 * size, 14 + 6 * size, 4)
    assert gang.functions.invocations.total() == 4 + 3 * size
