"""The computed operations of the control plane, against those that the flows really need."""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, a_spec
from tests.support.operations import CountedWorld
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.cost.operations import Operations, operations

TOLERANCE = 0.2


def replicas(size: int) -> tuple[ReplicaId, ...]:
    return (CHIEF, *(ReplicaId(TaskType.WORKER, index) for index in range(size - 1)))


def started(size: int, **extension: object) -> CountedWorld:
    counted = CountedWorld()
    counted.submit({**a_spec(workerCount=size - 1), "trainmaster": extension})
    for replica_id in replicas(size):
        counted.send("vm-ready", replica_id)
    counted.deliver()
    return counted


def lose_a_vm(counted: CountedWorld, size: int) -> None:
    """A preemption: all peers fail with it and start again after it."""
    counted.world.wait(1000)
    *peers, lost = replicas(size)
    counted.send("maintenance", lost, cause="preemption")
    for replica_id in peers:
        counted.send("replica-exit", replica_id, cause="process", exit_status=1)
    counted.deliver()
    counted.send("vm-ready", lost)
    counted.deliver()
    for replica_id in peers:
        counted.send("vm-ready", replica_id)
    counted.deliver()


def end(counted: CountedWorld, size: int) -> None:
    counted.world.wait(1000)
    for replica_id in replicas(size)[1:]:
        counted.send("replica-exit", replica_id, cause="process", exit_status=0)
    counted.deliver()
    counted.send("replica-exit", CHIEF, cause="process", exit_status=0)
    counted.deliver()


def computed(counted: CountedWorld) -> Operations:
    """Return the computed operations, without those of sweeps, which these jobs do not have."""
    loaded = counted.store.load(counted.world.job_id)
    assert loaded is not None
    job = loaded.state.job
    assert job.started_at is not None
    return operations(job, counted.store.ledger(job.job_id), job.started_at)


def assert_agree(counted: CountedWorld) -> None:
    ended = counted.store.load(counted.world.job_id)
    assert ended is not None
    minutes = 0.0
    if ended.state.job.ended_at and ended.state.job.started_at:
        minutes = (ended.state.job.ended_at - ended.state.job.started_at).total_seconds() / 60
    estimate = computed(counted)
    assert estimate.reads - round(6 * minutes) == pytest.approx(counted.counts.reads, rel=TOLERANCE)
    assert estimate.writes == pytest.approx(counted.store.writes, rel=TOLERANCE)
    assert estimate.invocations == pytest.approx(counted.invocations, rel=TOLERANCE)
    assert estimate.deletes == pytest.approx(counted.store.deletes, abs=2)


@pytest.mark.parametrize("size", [3, 8, 20, 60])
def test_operations_of_a_job_without_faults_agree_with_those_counted(size: int) -> None:
    counted = started(size)
    end(counted, size)
    assert counted.world.has_ended
    assert_agree(counted)


@pytest.mark.parametrize("size", [3, 8, 20, 60])
def test_operations_of_a_job_with_two_losses_agree_with_those_counted(size: int) -> None:
    counted = started(size)
    lose_a_vm(counted, size)
    lose_a_vm(counted, size)
    end(counted, size)
    assert_agree(counted)


def test_operations_of_a_rerun_agree_with_those_counted() -> None:
    counted = started(20, restartJobOnWorkerRestart=True)
    counted.world.wait(1000)
    counted.send("replica-exit", replicas(20)[3], cause="process", exit_status=1)
    counted.deliver()
    for replica_id in replicas(20):
        counted.send("vm-ready", replica_id)
    counted.deliver()
    assert_agree(counted)


def test_operations_of_a_job_of_20_replicas_cost_less_than_a_cent() -> None:
    counted = started(20)
    end(counted, 20)
    estimate = computed(counted)
    assert 0 < estimate.dollars < 0.01
    assert "invocations" in estimate.words
