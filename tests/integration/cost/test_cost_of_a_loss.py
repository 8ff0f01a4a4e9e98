"""Cost of the loss of one VM in a synchronous job of N replicas, until every replica runs again: a
+ b * N. Such a job is a gang: its replicas restart together.

The flows run side by side in threads, as in several function instances, on the adapter in memory
and on Firestore's emulator. All peers of the lost replica fail, are held, and start again when its
replacement is ready.
"""

from __future__ import annotations

import time

import pytest

from bench.agents import agents
from bench.cloud import Emulators
from bench.counting import Counts, counting_store
from bench.gang_job import Gang
from bench.meter import Meter, attach
from trainmaster_local.memory.store import MemoryStore

HEAVY = pytest.mark.heavy(
    fact="the cost of a loss is linear in the size of the gang",
    quick="the same tests with small gangs",
)


class MemoryMeter(Meter):
    """Counts the documents that a store in memory returns."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()

    def reset(self) -> None:
        super().reset()
        self.counts.reads_by_call.clear()


READS_PER_REPLICA_MAX = 20
"""In memory. docs/decisions/0031-linear-cost.md states the bounds."""
READS_PER_REPLICA_MAX_ON_FIRESTORE = 22
"""Each provisioning round reads the attempt, and a busy emulator needs more rounds: 13 to 16 reads
were seen.
"""


def lose_one(gang: Gang, size: int, meter: Meter) -> None:
    """Run the job, lose one VM, and check the bounds of its cost."""
    gang.start()
    cost = gang.cost_of(gang.lose_one)
    if isinstance(meter, MemoryMeter):
        reads, slope = meter.counts.reads, READS_PER_REPLICA_MAX
    else:
        reads, slope = cost.reads, READS_PER_REPLICA_MAX_ON_FIRESTORE
    print(reads, cost)
    assert 0 < reads <= 200 + slope * size, cost
    assert cost.listings <= 12, cost
    assert cost.inserts <= 10, cost


@pytest.mark.parametrize("size", [10, 100, pytest.param(300, marks=HEAVY)])
def test_reads_after_a_loss_are_linear_in_the_number_of_replicas(size: int) -> None:
    meter = MemoryMeter()
    store = MemoryStore()
    counted = counting_store(store, meter.counts)
    with agents("my-project") as senders:
        gang = Gang(
            counted, store, meter, senders, size, sleep=lambda seconds: time.sleep(0.2 * seconds)
        )
        lose_one(gang, size, meter)


@pytest.mark.parametrize("size", [10, *(pytest.param(size, marks=HEAVY) for size in (100, 1000))])
def test_reads_after_a_loss_are_linear_on_firestore(size: int, firestore_emulator: str) -> None:
    with Emulators(firestore_emulator).project() as project, agents(project.name) as senders:
        meter = Meter()
        attach(project.client, meter)
        lose_one(Gang(project.store, project.observer, meter, senders, size), size, meter)
