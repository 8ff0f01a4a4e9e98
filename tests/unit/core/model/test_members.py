"""Members of synchronous jobs, as users see them.

The members of such a job start together, in a round. When one of them ends, the next round is held:
the others are stopped, and wait until all are ready for it. `World` runs the control plane in one
process; the agents of `world.silent` do not report that their programs were stopped.
"""

from __future__ import annotations

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.console.pages.job_rows import situation
from trainmaster.console.pages.replica_rows import replica_rows
from trainmaster.core.model.job import State
from trainmaster.presentation.job_view import job_view


def states(world: World) -> list[str]:
    rows = replica_rows(State(world.job, world.replicas), 10)
    view = job_view(world.job, world.replicas)["trainmaster"]["replicas"]
    assert {row.state.upper() for row in rows} == {replica["state"] for replica in view}
    return [replica["state"] for replica in view]


def test_members_of_a_held_round_are_stopping_until_they_report_and_then_held() -> None:
    world = World()
    world.start_running()
    assert states(world) == ["RUNNING", "RUNNING", "RUNNING"]
    world.silent |= {CHIEF, WORKER_0, WORKER_1}
    world.exit_program(WORKER_0)
    world.deliver()
    assert states(world) == ["STOPPING", "STOPPING", "STOPPING"], (
        "nobody has reported that its program ended"
    )
    assert situation(world.job, None) == "round 2 waits for its members"
    world.send("vm-ready", WORKER_0)
    assert states(world) == ["STOPPING", "HELD", "STOPPING"]
    world.send("vm-ready", CHIEF)
    world.send("maintenance", WORKER_1, cause="preemption")
    assert states(world) == ["HELD", "HELD", "REPLACING"]
    world.deliver()
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert states(world) == ["RUNNING", "RUNNING", "RUNNING"]
