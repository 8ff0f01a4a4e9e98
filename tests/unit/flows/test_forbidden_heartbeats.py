"""Where an organisation policy forbids guest attributes, the heartbeats that agents write there
cannot be read. Whether a VM hangs then follows from the points that its agent writes to Cloud
Monitoring: later than from heartbeats, and never for all VMs at once.

The generation of a VM tells it from earlier VMs of the same replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.metrics import FakeMetrics
from tests.support.world import World
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.timeouts import AGENT_TIMEOUT, STARTUP_TIMEOUT_S
from trainmaster.ports.metrics import Metric

REPLICAS = (CHIEF, WORKER_0, WORKER_1)


@dataclass
class Company:
    """A job whose guest attributes cannot be read, and the points that its agents write."""

    world: World
    metrics: FakeMetrics
    hung: set[ReplicaId] = field(default_factory=set)
    """Replicas whose agents write no points."""

    def wait(self, minutes: int) -> None:
        """Let minutes pass. Agents write, and the sweep reconciles the job, each minute."""
        for _ in range(minutes):
            self.world.wait(60)
            self._write_points()
            self.world.provision()
            self.world.deliver()

    def _write_points(self) -> None:
        for replica_id in REPLICAS:
            if replica_id in self.hung:
                continue
            generation = self.world.replica(replica_id).vm_generation
            self.add_point(replica_id, generation, self.world.now)

    def add_point(self, replica_id: ReplicaId, generation: int, at: datetime) -> None:
        self.metrics.add(Metric.ALIVE, str(replica_id), at, [1.0], generation=generation)

    def generations(self) -> list[int]:
        """Return how many VMs each replica has had."""
        return [self.world.replica(replica_id).vm_generation for replica_id in REPLICAS]

    @property
    def reasons(self) -> list[Reason]:
        return [entry.decision.reason for entry in self.world.ledger]


@pytest.fixture
def company() -> Company:
    """Return a job that has run for five minutes."""
    metrics = FakeMetrics()
    world = World(metrics=metrics)
    world.start_running()
    world.deliver()
    company = Company(world, metrics)
    company.wait(5)
    return company


def test_vm_that_hangs_is_replaced_when_its_series_has_ended_for_long(company: Company) -> None:
    company.hung.add(WORKER_1)
    company.world.silent.add(WORKER_1)
    timeout = AGENT_TIMEOUT // timedelta(minutes=1)
    company.wait(timeout - 1)
    assert company.generations() == [1, 1, 1]
    company.wait(2)
    assert company.generations() == [1, 1, 2]


def test_no_vm_is_lost_while_no_series_at_all_arrives(company: Company) -> None:
    """Cloud Monitoring may be down."""
    company.hung |= set(REPLICAS)
    company.wait(60)
    assert company.generations() == [1, 1, 1]


def test_older_point_of_another_program_ends_nothing(company: Company) -> None:
    """Programs of the project may write series with the labels of any VM."""
    forged = company.world.now
    for _ in range(30):
        company.metrics.add(Metric.ALIVE, str(WORKER_1), forged, [1.0], gpu="forged")
        company.wait(1)
    assert company.generations() == [1, 1, 1]


def test_set_up_that_takes_long_is_not_ended_while_its_agent_writes_points() -> None:
    metrics = FakeMetrics()
    world = World(is_independent=True, metrics=metrics)
    world.submit()
    world.deliver()
    company = Company(world, metrics)
    for replica_id in (CHIEF, WORKER_0):
        world.send("vm-ready", replica_id)
    minutes = int(STARTUP_TIMEOUT_S // 60)
    company.wait(minutes + 10)
    assert Reason.STARTUP_TIMEOUT not in company.reasons
    company.hung.add(WORKER_1)
    company.wait(minutes)
    assert Reason.STARTUP_TIMEOUT in company.reasons
