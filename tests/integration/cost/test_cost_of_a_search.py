"""Cost of a search for capacity on Firestore's emulator, with the flows in threads: a failed
request costs the same for ten replicas and for a thousand, and the move of a running gang a + b *
N. A gang is a job whose replicas start and restart together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from bench import gang_job
from bench.agents import agents
from bench.cloud import Emulators
from bench.gang_job import CountedFleet, Gang
from bench.meter import Meter, attach

A, B, C = (f"us-central1-{letter}" for letter in "abc")
SIZES = (
    10,
    *(
        pytest.param(
            size,
            marks=pytest.mark.heavy(
                fact="the cost of a search for capacity is linear in the size of the gang",
                quick="the same tests with ten replicas",
            ),
        )
        for size in (200, 1000)
    ),
)
WRITES_OF_A_FAILED_REQUEST_MAX = 6
"""What it found, the job's next zone, the ledger entry and its confirmation, and the leases."""
WRITES_PER_REPLICA_MAX = 6
"""A loss, another attempt, a new VM and the report of its agent: each with its ledger entry."""
READS_PER_REPLICA_MAX = 25


class MovingGang(Gang):
    def lose_all_in_a_stockout(self) -> None:
        """Let the zone take all VMs, and have none."""
        self._fleet.stockout_zones = {vm.zone for vm in self._vms}
        losses = [
            self.functions.maintenance(self._message(vm, cause="preemption")) for vm in self._vms
        ]
        for vm in self._vms:
            self._fleet.vanish(vm.name)
        self.functions.run(losses)
        self._check_running()

    @property
    def zones(self) -> set[str]:
        return {vm.zone for vm in self._vms}


@contextmanager
def submitted(
    size: int, full: set[str], firestore: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[MovingGang, Meter]]:
    """Yield a job whose VMs are requested, in zones of which some are full, and the meter of all
    that this cost.
    """
    monkeypatch.setattr(gang_job, "CountedFleet", partial(CountedFleet, stockout_zones=full))
    with Emulators(firestore).project() as project, agents(project.name) as senders:
        meter = Meter()
        attach(project.client, meter)
        yield MovingGang(project.store, project.observer, meter, senders, size), meter


@pytest.mark.parametrize("size", SIZES)
def test_failed_request_costs_the_same_for_any_number_of_replicas(
    size: int, firestore_emulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with submitted(size, set(), firestore_emulator, monkeypatch) as (_, meter):
        without = meter.writes
    with submitted(size, {A, B}, firestore_emulator, monkeypatch) as (gang, meter):
        assert gang.zones == {C}
        writes = (meter.writes - without) / len({A, B})  # one failed request in each full zone
    print(size, writes)
    assert 0 < writes <= WRITES_OF_A_FAILED_REQUEST_MAX


@pytest.mark.parametrize("size", SIZES)
def test_move_of_a_running_gang_is_linear_in_the_number_of_replicas(
    size: int, firestore_emulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with submitted(size, set(), firestore_emulator, monkeypatch) as (gang, _):
        gang.start()
        cost = gang.cost_of(gang.lose_all_in_a_stockout)
        assert gang.zones == {B}
    print(size, cost)
    assert cost.writes <= 100 + WRITES_PER_REPLICA_MAX * size, cost
    assert cost.reads <= 300 + READS_PER_REPLICA_MAX * size, cost
    assert cost.inserts <= 12, cost
