"""The computed operations of the control plane, against those that the flows really need."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.support.jobs import CHIEF, a_spec
from tests.support.operations import CountedWorld
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.rules.evidence import ENDS_READ
from trainmaster.cost.operations import Operations, operations

TOLERANCE = 0.2
READS_OF_A_SWEEP = 6
"""Reads of a running job by the sweep of each minute, which these tests leave out."""


def replicas(size: int) -> tuple[ReplicaId, ...]:
    return (CHIEF, *(ReplicaId(TaskType.WORKER, index) for index in range(size - 1)))


def started(size: int, **extension: object) -> CountedWorld:
    counted = CountedWorld()
    counted.submit({**a_spec(workerCount=size - 1), "trainmaster": extension})
    for replica_id in replicas(size):
        counted.send("vm-ready", replica_id)
    counted.deliver()
    return counted


def lose_a_vm(counted: CountedWorld, size: int, *, boots_s: float = 0.0) -> None:
    """A preemption: all peers fail with it and are held until its replacement reports, `boots_s`
    later.
    """
    counted.world.wait(1000)
    *peers, lost = replicas(size)
    if boots_s:
        counted.world.silent.add(lost)
    counted.send("maintenance", lost, cause="preemption")
    for replica_id in peers:
        counted.send("replica-exit", replica_id, cause="process", exit_status=1)
    counted.deliver()
    if boots_s:
        counted.world.silent.remove(lost)
        counted.world.wait(boots_s)
        counted.send("vm-ready", lost)
        counted.deliver()
    assert not counted.world.job.round.is_held


def fail(counted: CountedWorld, failed: tuple[ReplicaId, ...]) -> None:
    """Programs fail: the first one stops the round, and the exits of the others are only read."""
    counted.world.wait(1000)
    for replica_id in failed:
        counted.send("replica-exit", replica_id, cause="process", exit_status=1)
    counted.deliver()
    assert not counted.world.job.round.is_held


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
    assert estimate.reads - round(READS_OF_A_SWEEP * minutes) == pytest.approx(
        counted.counts.reads, rel=TOLERANCE
    )
    assert estimate.writes == pytest.approx(counted.counts.writes, rel=TOLERANCE)
    assert estimate.invocations == pytest.approx(counted.invocations, rel=TOLERANCE)
    assert estimate.deletes == pytest.approx(counted.counts.deletes, abs=2)


@pytest.mark.parametrize("size", [3, 8, 20, 60])
def test_operations_of_a_job_without_faults_agree_with_those_counted(size: int) -> None:
    counted = started(size)
    end(counted, size)
    assert counted.world.has_ended
    assert_agree(counted)


@pytest.mark.parametrize("boots_s", [0, 90])
@pytest.mark.parametrize("size", [3, 8, 20])
def test_operations_of_a_job_with_two_losses_agree_with_those_counted(
    size: int, boots_s: float
) -> None:
    counted = started(size)
    lose_a_vm(counted, size, boots_s=boots_s)
    lose_a_vm(counted, size, boots_s=boots_s)
    end(counted, size)
    assert counted.world.job.round.number == 3, "one, and one after each fault"
    assert_agree(counted)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("size", [3, 8, 20])
def test_operations_of_a_job_with_failures_agree_with_those_counted(size: int, count: int) -> None:
    counted = started(size)
    fail(counted, replicas(size)[:count])
    fail(counted, replicas(size)[-count:])
    assert counted.world.job.round.number == 3, "one, and one after each fault"
    assert_agree(counted)


def test_operations_of_a_rerun_agree_with_those_counted() -> None:
    counted = started(20, restartJobOnWorkerRestart=True)
    fail(counted, replicas(20)[3:4])
    assert counted.world.job.attempt == 2
    assert_agree(counted)


@pytest.mark.parametrize("size", [10, 20])
def test_one_more_failure_costs_what_is_counted_for_it(size: int) -> None:
    counted = started(size)
    estimate, reads, writes = computed(counted), counted.counts.reads, counted.counts.writes
    fail(counted, replicas(size))
    more = computed(counted)
    assert more.reads - estimate.reads == pytest.approx(counted.counts.reads - reads, rel=TOLERANCE)
    assert more.writes - estimate.writes == pytest.approx(
        counted.counts.writes - writes, rel=TOLERANCE
    )
    assert more.invocations - estimate.invocations == 2 * size + 3, "exits, reports, and requests"


def report_late(counted: CountedWorld, size: int, gap_s: float = 5.0) -> None:
    """A program fails, and the set-up of each member takes long."""
    late = replicas(size)
    counted.world.silent.update(late)
    counted.world.wait(1000)
    counted.send("replica-exit", CHIEF, cause="process", exit_status=1)
    counted.deliver()
    for replica_id in late:
        counted.world.wait(gap_s)
        counted.send("vm-ready", replica_id)
        counted.deliver()
    counted.world.silent.clear()
    assert not counted.world.job.round.is_held


def test_each_exit_is_read_once_while_its_vm_is_deleted() -> None:
    """A deletion takes many rounds of a delivery. Each round only counts what is pending."""
    counted = started(20)
    counted.world.fleet.is_slow = True
    counted.counts.reads_by_call.clear()
    counted.counts.calls.clear()
    for replica_id in replicas(20)[1:]:
        counted.send("replica-exit", replica_id, cause="process", exit_status=0)
    counted.deliver()
    assert counted.counts.calls["count_pending"] > 10, "rounds"
    assert counted.counts.reads_by_call["pending_entries"] == 0, "read when nothing is left to do"
    counted.world.fleet.settle()
    counted.world.sweep()
    counted.deliver()
    assert counted.counts.reads_by_call["pending_entries"] == len(replicas(20)) - 1


@pytest.mark.parametrize("gap_s", [5, 70])
def test_operations_of_late_reports_agree_with_those_counted(gap_s: float) -> None:
    counted = started(20)
    report_late(counted, 20, gap_s)
    assert_agree(counted)


class PerMember(NamedTuple):
    """A number of operations that grows with the members of the gang."""

    constant: int
    of_each: int

    def of(self, size: int) -> int:
        return self.constant + self.of_each * size


@pytest.mark.parametrize(
    ("happen", "reads", "writes"),
    [
        pytest.param(lose_a_vm, PerMember(20, 7), PerMember(10, 2), id="loss"),
        pytest.param(
            lambda counted, size: lose_a_vm(counted, size, boots_s=90),
            PerMember(20, 7),
            PerMember(10, 2),
            id="slow replacement",
        ),
        pytest.param(
            lambda counted, size: fail(counted, replicas(size)[:1]),
            PerMember(22, 5),
            PerMember(9, 2),
            id="failure",
        ),
        pytest.param(
            lambda counted, size: fail(counted, replicas(size)),
            PerMember(20, 7),
            PerMember(9, 2),
            id="all fail",
        ),
        pytest.param(report_late, PerMember(21, 5), PerMember(9, 2), id="late reports"),
        pytest.param(end, PerMember(10, 5), PerMember(3, 3), id="end"),
    ],
)
@pytest.mark.parametrize("size", [5, 40])
def test_gang_costs_exactly_this_much_per_member(
    happen: Callable[[CountedWorld, int], None],
    reads: PerMember,
    writes: PerMember,
    size: int,
) -> None:
    """A constant, and per member: two reads of an exit; two of a report, and a count; two of the
    whole attempt.

    A verdict reads the ends of its round, too, up to 20.
    """
    counted = started(size)
    reads_before, writes_before = counted.counts.reads, counted.counts.writes
    ends_before = counted.counts.reads_by_call["round_ends"]
    happen(counted, size)
    ends = counted.counts.reads_by_call["round_ends"] - ends_before
    assert ends <= ENDS_READ
    assert counted.counts.reads - reads_before - ends == reads.of(size), (
        counted.counts.reads_by_call
    )
    assert counted.counts.writes - writes_before == writes.of(size)


@pytest.mark.parametrize(
    "size",
    [
        10,
        200,
        pytest.param(
            1000,
            marks=pytest.mark.heavy(
                fact="a failed request writes the same whatever the size of the gang",
                quick="the same test with 10 and 200 replicas",
            ),
        ),
    ],
)
def test_failed_request_writes_the_same_whatever_the_size_of_the_gang(size: int) -> None:
    zones = [f"us-central1-{letter}" for letter in "abcf"]
    at_once, elsewhere = CountedWorld(), CountedWorld()
    elsewhere.world.fleet.stockout_zones = set(zones[:3])
    for counted, tried in ((at_once, zones[3:]), (elsewhere, zones)):
        counted.submit({**a_spec(workerCount=size - 1), "trainmaster": {"zones": tried}})
        assert {vm.zone for vm in counted.world.vms} == {zones[3]}
        assert len(counted.world.vms) == size
    job_entry_and_confirmation, outcomes_of_both_roles = 3, 2
    of_each_failure = job_entry_and_confirmation + outcomes_of_both_roles
    assert elsewhere.counts.writes - at_once.counts.writes == 3 * of_each_failure


def test_operations_of_a_job_of_20_replicas_cost_less_than_a_cent() -> None:
    counted = started(20)
    end(counted, 20)
    estimate = computed(counted)
    assert 0 < estimate.dollars < 0.01
    assert "invocations" in estimate.words
