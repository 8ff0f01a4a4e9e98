"""No replica has two VMs that run programs, whatever Google can reach, and however late an insert
(a request that creates VMs) is.

A job moves to its second zone if the first one has no capacity. VMs that it left in a zone that
cannot be reached may still run; they are deleted when the zone is reachable again. A VM is created
*held*: its agent starts no program before a directive orders it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, a_spec
from tests.support.world import World
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import DirectiveAction
from trainmaster.core.reconcile.steps import Create
from trainmaster.ports import CreateOutcome, NotCreated, Pending
from trainmaster_local.memory.fleet import MemoryFleet

A, B = "us-central1-a", "us-central1-b"
STOCKOUT = NotCreated(CapacityErrorKind.STOCKOUT, "STOCKOUT", "none")


@dataclass
class FrozenFleet(MemoryFleet):
    """The workers' inserts in the first zone are answered by `outcome`; the first one is frozen."""

    outcome: CreateOutcome = field(default_factory=Pending)
    is_cut_off: bool = False
    """Whether the zone can no longer be reached after the next insert there."""
    frozen: list[tuple[Job, Create, Mapping[str, str]]] = field(default_factory=list)

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        if create.zone != A or create.group.task_type is not TaskType.WORKER:
            return super().create(job, create, metadata)
        self.frozen.append((job, create, metadata))
        if self.is_cut_off:
            self.unreachable_zones = {A}
        return self.outcome

    def thaw(self) -> None:
        """Carry out the first insert, which a delivery has sent long ago."""
        super().create(*self.frozen[0])


def running(world: World, replica_id: ReplicaId) -> list[str]:
    """Return the zones of the replica's VMs that are directed to run, reachable or not."""
    return [
        vm.zone
        for _, vm in world.fleet._vms.values()
        if vm.replica_id == replica_id
        and vm.directive is not None
        and vm.directive.action is DirectiveAction.RUN
    ]


def pass_minutes(world: World, minutes: int) -> None:
    """Let a sweep (the scheduled pass over all jobs) run each minute; at no time two VMs run."""
    for _ in range(minutes):
        world.wait(60)
        world.sweep()
        world.deliver()
        for replica in world.replicas:
            assert len(running(world, replica.replica_id)) <= 1


# Jobs whose chief may run before its workers have VMs: fields of the training input, and those of
# the extension.
SPECS = {
    "independentReplicas": ({}, {"independentReplicas": True}),
    "parameter servers": (
        {"parameterServerCount": 1, "parameterServerType": "n1-standard-4"},
        {},
    ),
}


def started(fleet: FrozenFleet, name: str) -> World:
    """Return a job that is PREPARING: its chief runs, and its workers have no VMs."""
    training, options = SPECS[name]
    world = World(fleet=fleet)
    world.submit({**a_spec(**training), "trainmaster": {"zones": [A, B], **options}})
    world.provision()
    world.send("vm-ready", CHIEF)
    world.provision()
    assert (world.state, running(world, CHIEF)) == ("PREPARING", [A])
    return world


@pytest.mark.parametrize("name", SPECS)
def test_split_brain_unreachable_zone_keeps_a_job_whose_programs_run(name: str) -> None:
    world = started(FrozenFleet(), name)
    world.fleet.unreachable_zones = {A}
    pass_minutes(world, 30)
    assert world.job.zone == A, "programs may run there"
    assert "Google cannot reach us-central1-a" in world.ledger[-1].decision.text
    world.fleet.unreachable_zones = set()
    pass_minutes(world, 2)
    assert running(world, CHIEF) == [A]


@pytest.mark.parametrize("name", SPECS)
def test_split_brain_unreachable_zone_that_was_left_holds_the_replicas_that_ran_there(
    name: str,
) -> None:
    fleet = FrozenFleet()
    world = started(fleet, name)
    fleet.outcome, fleet.is_cut_off = STOCKOUT, True
    world.bus.drain()
    world.provision()
    assert world.job.zone == B
    pass_minutes(world, 1)
    world.send("vm-ready", CHIEF)
    pass_minutes(world, 30)
    assert running(world, CHIEF) == [A], "it may still train there"
    fleet.unreachable_zones = set()
    pass_minutes(world, 2)
    assert running(world, CHIEF) == [B]


@pytest.mark.parametrize("name", SPECS)
def test_zone_that_was_left_empty_holds_no_replica(name: str) -> None:
    fleet = FrozenFleet()
    world = started(fleet, name)
    fleet.outcome = STOCKOUT
    world.deliver()
    assert world.job.zone == B
    world.report_all_ready()
    pass_minutes(world, 2)
    assert (world.state, running(world, CHIEF)) == ("RUNNING", [B])
    fleet.unreachable_zones = {A}
    world.send("maintenance", CHIEF, cause="preemption")
    pass_minutes(world, 2)
    world.send("vm-ready", CHIEF)
    pass_minutes(world, 2)
    assert running(world, CHIEF) == [B], "no VM was left there"
    assert "No VM of the job is left in us-central1-a." in [
        entry.decision.text for entry in world.ledger
    ]
    world.check()


@pytest.mark.parametrize("options", [{}, {"independentReplicas": True}], ids=["gang", "alone"])
def test_zombie_insert_after_a_move_starts_no_program(options: dict[str, Any]) -> None:
    """A delivery is frozen within its insert until another one has moved the job."""
    fleet = FrozenFleet()
    world = World(fleet=fleet)
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B], **options}})
    world.provision()
    fleet.outcome = STOCKOUT
    world.deliver()
    assert world.job.zone == B
    world.report_all_ready()
    assert running(world, WORKER_0) == [B]
    fleet.thaw()
    assert running(world, WORKER_0) == [B], "a VM is created held"
    zombie = fleet._vms[world.vm(WORKER_0).name, A][1]
    world.send_about(zombie, "vm-ready")
    pass_minutes(world, 3)
    assert running(world, WORKER_0) == [B]
    assert A not in {vm.zone for vm in world.vms}
