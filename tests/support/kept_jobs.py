"""Jobs that keep their machines for the next job, for tests of flows and pages.

A job with `keepMachines` leaves its VMs when it ends: its *machine set*, which has the id of the
job that created them. The next job of the same user takes them; it is then the *holder*. The
*tenure* counts the holders of a set, from 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.model.machine_set import MachineSet

OWNER = "cli:1/anna"
"""Source of a job file that the user anna has submitted by the command line."""
KEPT_S = 900
"""How long the machines are kept."""


def a_keeping_spec(keep: str = f"{KEPT_S}s", **extension: Any) -> dict[str, object]:
    """Return a job file that keeps its machines for this long. `extension`: further fields of
    Trainmaster.
    """
    spec = a_spec()
    return {**spec, "trainmaster": {"keepMachines": keep, **extension}}


def deliver(world: World) -> None:
    """Deliver all messages. From then on, the world shows the VMs that the job has taken."""
    world.deliver()
    world.taken_set_id = world.job.set_id


def beat_all(world: World) -> None:
    """Let the agents of all VMs write a heartbeat: machines of silent agents are not taken."""
    for vm in world.vms:
        world.fleet.beat(vm.name)


def run_job(world: World, spec: dict[str, object] | None = None, source: str = OWNER) -> None:
    """Submit the job file, and let all programs run. `source`: who has submitted it, and how."""
    world.submit(spec or a_keeping_spec(), source=source)
    deliver(world)
    world.report_all_ready()


def succeed(world: World) -> None:
    """Let the job's primary end with exit status 0, and do what follows."""
    world.exit_program(world.job.plan.primary, 0)
    deliver(world)


def other(world: World, job_id: str) -> World:
    """Return the same world from the view of another job, which is to be submitted."""
    return replace(world, job_id=job_id, taken_set_id="", ends={}, silent=set())


def machine_set(world: World) -> MachineSet:
    """Return the machine set that the job holds, or held last."""
    loaded = world.store.load(world.job_id)
    assert loaded is not None
    assert loaded.state.machine_set is not None
    return loaded.state.machine_set


def a_keeping_job() -> World:
    """Return a job that has ended, and whose machines are kept."""
    world = World("first")
    run_job(world)
    succeed(world)
    beat_all(world)
    return world
