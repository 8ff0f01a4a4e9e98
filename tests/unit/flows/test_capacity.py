"""Where machines are requested, how they are bought, and what is left of a gang when one is lost: through the flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from shared.core.decisions import Reason
from shared.core.events import CapacityErrorKind, JobSubmitted
from shared.core.model.job import Job, JobState
from shared.core.model.plan import Plan
from shared.core.model.replica import ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.reconcile.steps import Create
from shared.core.reconcile.zone_order import STOCKOUT_REMEMBERED
from shared.errors import TemporaryError
from shared.flows.record import record
from shared.memory.fleet import MemoryFleet
from shared.ports import CreateOutcome, NotCreated, Pending
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan
from tests.support.world import World

A, B, C, F = (f"us-central1-{letter}" for letter in "abcf")


@dataclass
class Ordering(MemoryFleet):
    """Remembers what was asked for, and how often what was made for a job was to be given back. `answers` are to
    inserts of one role in one zone."""

    asked: list[Create] = field(default_factory=list)
    answers: dict[tuple[TaskType, str], CreateOutcome] = field(default_factory=dict)
    releases: list[bool] = field(default_factory=list)
    released: int = 0

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        self.asked.append(create)
        if answer := self.answers.get((create.group.task_type, create.zone)):
            return answer
        return super().create(job, create, metadata)

    def release(self, job: Job) -> bool:
        assert not self.list_vms(job.job_id), "its VMs are gone first"
        self.released += 1
        return self.releases.pop(0) if self.releases else True

    def bought(self, replica_id: ReplicaId) -> list[bool]:
        return [create.spot for create in self.asked if replica_id in create.replica_ids]


@pytest.fixture
def fleet() -> Ordering:
    return Ordering()


@pytest.fixture
def world(fleet: Ordering) -> World:
    return World(fleet=fleet)


def submit(world: World, plan: Plan) -> None:
    job = a_job(JobState.QUEUED, plan)
    record(job.job_id, JobSubmitted(job, world.now), world.deps)
    world.deliver()


def on_spot(workers: int = 2, **changes: object) -> Plan:
    plan = a_plan(workers, **changes)
    groups = tuple(replace(group, spot=group.task_type is TaskType.WORKER) for group in plan.groups)
    return replace(plan, groups=groups)


def preempt(world: World, replica_id: ReplicaId) -> None:
    world.tell("maintenance", replica_id, cause="preemption")
    world.deliver()
    world.tell("vm-ready", replica_id)


def test_after_its_spot_vms_a_seat_gets_one_on_demand_and_its_peers_stay_as_they_are(
    world: World, fleet: Ordering
) -> None:
    submit(world, on_spot(on_demand_after=2))
    world.everyone_ready()
    for _ in range(3):
        preempt(world, WORKER_0)
    assert fleet.bought(WORKER_0) == [True, True, False, False]
    assert fleet.bought(WORKER_1) == [True]
    assert fleet.bought(CHIEF) == [False]
    assert world.replica(WORKER_0).replaced == 3
    assert world.state == "RUNNING"
    world.check()


def test_a_rerun_does_not_send_a_seat_back_to_spot(world: World, fleet: Ordering) -> None:
    submit(world, on_spot(on_demand_after=1))
    world.everyone_ready()
    preempt(world, WORKER_0)
    world.kill(WORKER_0, signal=6)
    world.deliver()
    assert world.job.attempt == 2
    world.everyone_ready()
    preempt(world, WORKER_0)
    assert fleet.bought(WORKER_0) == [True, False, False]
    world.check()


def test_what_one_job_found_full_the_next_one_tries_last(world: World, fleet: Ordering) -> None:
    fleet.stockout_zones = {A, B}
    world.submit()
    world.deliver()
    assert world.job.zone == C
    world.job_id = "digits_2"
    world.submit(source="gs://b/jobs/digits.yaml#2")
    assert world.job.plan.zones == (C, F, A, B)
    assert f"Tried last: {A}, {B}" in world.ledger[0].decision.text
    world.deliver()
    assert [create.zone for create in fleet.asked if "digits-2" in create.names[0]] == [C, C]
    world.check()


def test_half_an_hour_later_it_is_forgotten(world: World, fleet: Ordering) -> None:
    fleet.stockout_zones = {A}
    world.submit()
    world.deliver()
    world.wait(STOCKOUT_REMEMBERED.total_seconds() + 1)
    world.job_id = "digits_2"
    world.submit(source="gs://b/jobs/digits.yaml#2")
    assert world.job.plan.zones == (A, B, C, F)
    assert "Tried last" not in world.ledger[0].decision.text


def test_the_same_submission_later_changes_no_order(world: World, fleet: Ordering) -> None:
    fleet.stockout_zones = {A}
    world.submit()
    before = world.job.plan.zones
    world.deliver()
    world.submit()
    assert world.job.plan.zones == before
    world.check()


def test_a_stockout_says_what_was_asked_for_where_and_what_google_said(world: World, fleet: Ordering) -> None:
    fleet.stockout_zones = {A}
    world.submit()
    world.deliver()
    (text,) = [each.decision.text for each in world.ledger if each.decision.reason is Reason.STOCKOUT]
    assert text == (
        f"No room for 1 x n1-standard-4 (chief) in {A} (ZONE_RESOURCE_POOL_EXHAUSTED: {A} does not have enough "
        f"resources available); trying {B} next."
    )


def test_only_the_lost_part_of_a_gang_is_made_again_in_its_zone(world: World, fleet: Ordering) -> None:
    submit(world, on_spot(3))
    world.everyone_ready()
    kept = {vm.name: vm.instance_id for vm in world.vms}
    gone = [ReplicaId(TaskType.WORKER, index) for index in (0, 2)]
    fleet.asked.clear()
    for replica_id in gone:
        world.tell("maintenance", replica_id, cause="preemption")
    world.deliver()
    assert [(create.replica_ids, create.zone, create.spot) for create in fleet.asked] == [(tuple(gone), A, True)]
    assert sum(kept.get(vm.name) == vm.instance_id for vm in world.vms) == 2
    for replica_id in gone:
        world.tell("vm-ready", replica_id)
    assert {replica.state for replica in world.replicas} == {ReplicaState.RUNNING}
    assert world.job.attempt == 1
    world.check()


def test_what_was_made_beside_the_vms_is_given_back_after_them_and_asked_for_until_it_is(
    world: World, fleet: Ordering
) -> None:
    world.running()
    assert fleet.released == 0, "not while the job incarnations"
    fleet.releases = [False, True]
    world.fail(CHIEF, 0)
    with pytest.raises(TemporaryError):
        world.provision()
    assert world.store.pending_keys("digits_1"), "the sweep asks again"
    world.provision()
    assert fleet.released == 2
    assert world.store.pending_keys("digits_1") == ()


def test_who_is_up_where_its_peers_find_no_room_follows_them_to_another_zone(world: World, fleet: Ordering) -> None:
    """Roles are made by inserts of their own: the chief is up, and then there is no room for the workers."""
    fleet.answers = {(TaskType.WORKER, A): Pending()}
    world.submit()
    with pytest.raises(TemporaryError):
        world.provision()
    world.tell("vm-ready", CHIEF)
    fleet.answers = {
        (TaskType.WORKER, A): NotCreated(CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", "full")
    }
    world.deliver()
    assert {(vm.replica_id, vm.zone) for vm in world.vms} == {
        (replica_id, B) for replica_id in (CHIEF, WORKER_0, WORKER_1)
    }
    assert (world.replica(CHIEF).vm_generation, world.replica(CHIEF).restarts_used) == (2, 0)
    (text,) = [each.decision.text for each in world.ledger if each.decision.reason is Reason.WRONG_ZONE]
    assert f"is in {A}, and its peers are requested in {B}: chief 0 starts on another VM" in text
    world.everyone_ready()
    assert (world.state, world.job.attempt) == ("RUNNING", 1)
    world.check()
