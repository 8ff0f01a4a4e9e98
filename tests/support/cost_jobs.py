"""Jobs with losses and checkpoints, for tests of cost and advice."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster_local.memory.objects import MemoryObjects

JOB_DIR = "gs://bucket/digits"
REPLICAS = (CHIEF, WORKER_0, WORKER_1)
SETUP_S = 60.0


def ready(world: World, replica_id: ReplicaId) -> None:
    """Report the replica as ready; its agent started `SETUP_S` before."""
    reported_at = world.now + timedelta(seconds=1)  # `send` takes a second
    started_at = reported_at - timedelta(seconds=SETUP_S)
    world.send("vm-ready", replica_id, agent_started_at=started_at.isoformat())


def start(world: World, *, spot: bool = False) -> None:
    """Submit a job of a chief and two workers, and let it run after 100 seconds."""
    world.submit({**a_spec(), "trainmaster": {"spot": "all"}} if spot else a_spec())
    world.deliver()
    world.wait(100)
    for replica_id in REPLICAS:
        ready(world, replica_id)
    world.deliver()


def preempt(world: World) -> None:
    """Lose worker 1; both peers fail with it; all of them run again about two minutes later."""
    world.silent.add(WORKER_1)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.exit_program(WORKER_0, 1)
    world.exit_program(CHIEF, 1)
    world.deliver()
    world.silent.remove(WORKER_1)
    world.wait(120)
    ready(world, WORKER_1)
    world.deliver()


def finish(world: World) -> None:
    for replica_id in (WORKER_0, WORKER_1, CHIEF):
        world.exit_program(replica_id, 0)
    world.deliver()
    assert world.state == "SUCCEEDED"


def save_checkpoint(objects: MemoryObjects, at: datetime, name: str) -> None:
    """Write a checkpoint of two objects, the second five seconds after the first."""
    for offset_s, part in ((0, "data"), (5, "index")):
        moment = at + timedelta(seconds=offset_s)
        objects.clock = lambda moment=moment: moment  # type: ignore[misc]
        objects.write(f"{JOB_DIR}/{name}.{part}", b"x", content_type="application/octet-stream")


def train(world: World, objects: MemoryObjects, *, hours: float, every_s: float, name: str) -> None:
    """Train for some time, with a checkpoint at each interval."""
    count = int(hours * 3600 // every_s)
    for number in range(count):
        world.wait(every_s)
        save_checkpoint(objects, world.now, f"{name}-{number}")
    world.wait(hours * 3600 - count * every_s)


def a_job_with_three_losses(objects: MemoryObjects, *, every_s: float = 600.0) -> World:
    """Return a job that trained for about twelve hours, and lost a VM three times."""
    world = World()
    start(world, spot=True)
    for number in range(3):
        train(world, objects, hours=3, every_s=every_s, name=f"ckpt-{number}")
        world.wait(200)
        preempt(world)
    train(world, objects, hours=3, every_s=every_s, name="ckpt-3")
    finish(world)
    return world
