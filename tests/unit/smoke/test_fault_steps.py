"""What the steps with faults wait for.

The smoke test kills a program and waits for its restart. The members of a job begin together, in a
*round*. After a failure the next round is *held* until all of them are ready.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from smoke import fault_steps
from tests.support.jobs import START, a_job, a_replica, a_state
from trainmaster.core.model.round import Round


def test_killed_worker_has_restarted_when_its_round_runs() -> None:
    """It reports that it is ready while the round is held.

    The verdict charges the restart at the end of the hold.
    """
    killed = fault_steps.KILLED
    states = [
        a_state(a_replica(killed), job=a_job(round=Round(1))),
        a_state(a_replica(killed, incarnation=2), job=a_job(round=Round(2, is_held=True))),
        a_state(a_replica(killed, incarnation=2, restarts=(START,)), job=a_job(round=Round(2))),
    ]

    def until(condition: Any, *_: Any) -> None:
        while not condition():
            states.pop(0)

    world: Any = SimpleNamespace(
        jobs={fault_steps.PROBE: "digits_1"},
        vm_generations={killed: 1},
        state=lambda _: states[0],
        until=until,
    )
    world.replica = lambda _, replica_id: next(
        item for item in states[0].replicas if item.replica_id == replica_id
    )
    fault_steps.await_restart_after_kill(world)
    assert len(states) == 1
