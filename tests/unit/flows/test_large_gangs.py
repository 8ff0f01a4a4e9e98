"""A verdict on a gang of which it does not read all ends.

The members of a gang run in rounds: all start together, and when one ends, all end. The verdict
about a round says which member's failure it was, and charges a restart to it. It reads at most
`ENDS_READ` of the ends that the members have reported. Here one member hangs and all others abort
(signal 6), because they hear nothing of it.
"""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, a_spec
from tests.support.operations import CountedWorld
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.rules.evidence import ENDS_READ

SIZE = 64
GANG = (CHIEF, *(ReplicaId(TaskType.WORKER, index) for index in range(SIZE - 1)))
NO_HEARTBEAT = {
    "type": "Aborted",
    "message": "UNAVAILABLE: … (stopped sending heartbeats)",
    "frame": "",
}
CLOSED = {"type": "RuntimeError", "message": "Connection closed by peer", "frame": ""}


@pytest.fixture
def counted() -> CountedWorld:
    counted = CountedWorld()
    counted.submit(a_spec(workerCount=SIZE - 1))
    for replica_id in GANG:
        counted.send("vm-ready", replica_id)
    counted.deliver()
    counted.world.wait(1000)  # so that the programs have run for a while
    return counted


@pytest.mark.parametrize("heartbeats", [1, SIZE])
def test_member_that_did_not_answer_is_the_only_one_charged(
    counted: CountedWorld, heartbeats: int
) -> None:
    """The others report it, or all but one only that a connection was closed as the first of them
    ended.
    """
    # Round 2 follows the first verdict, and round 3 the second one.
    for round_number, hung in ((2, GANG[0]), (3, GANG[40])):
        others = [replica_id for replica_id in GANG if replica_id != hung]
        before = {replica.replica_id: replica.restarts_used for replica in counted.world.replicas}
        read = counted.counts.reads_by_call["round_ends"]
        for number, replica_id in enumerate(others):
            error = NO_HEARTBEAT if number < heartbeats else CLOSED
            counted.send("replica-exit", replica_id, cause="process", signal=6, error=error)
        counted.deliver()
        assert counted.counts.reads_by_call["round_ends"] - read <= ENDS_READ
        assert (counted.world.job.round.number, counted.world.job.round.is_held) == (
            round_number,
            False,
        )
        after = {replica.replica_id: replica.restarts_used for replica in counted.world.replicas}
        assert after == before | {hung: 1}
        text = counted.world.ledger[-1].decision.text
        assert f"{hung.words} did not answer, and {others[0].words} failed: " in text
        counted.world.wait(1000)


def test_first_end_is_charged_if_two_members_did_not_answer(counted: CountedWorld) -> None:
    for replica_id in GANG[:-2]:
        counted.send("replica-exit", replica_id, cause="process", signal=6, error=NO_HEARTBEAT)
    counted.deliver()
    assert [replica.replica_id for replica in counted.world.replicas if replica.restarts_used] == [
        CHIEF
    ]
