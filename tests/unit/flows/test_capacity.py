"""Provisioning: zones, Spot VMs, stockouts, and replacement of lost VMs, through the flows.

An insert requests all VMs of one role in one zone. A job whose insert fails moves to another zone
with all its VMs; the generations of those VMs are greater than any that it has used.

A directive is an order to the agent of a VM: to run the program, to hold, or to stop. An attempt is
one execution of the whole job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_spec
from tests.support.world import World
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CapacityErrorKind, JobSubmitted
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.timeouts import USEFUL_LIFE_MIN
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit.record import record
from trainmaster.ports import CreateOutcome, NotCreated, Pending
from trainmaster_local.memory.fleet import MemoryFleet

A, B, C, F = (f"us-central1-{letter}" for letter in "abcf")
FULL = NotCreated(CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", "full")


@dataclass
class RecordingFleet(MemoryFleet):
    """A fleet that records its calls, and whose outcomes tests can choose."""

    requested: list[Create] = field(default_factory=list)
    outcomes: dict[tuple[TaskType, str], CreateOutcome] = field(default_factory=dict)
    """Outcomes of the inserts of one role in one zone. Other inserts succeed."""
    release_results: list[bool] = field(default_factory=list)
    """Results of the next calls of `release`."""
    release_calls: int = 0

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        self.requested.append(create)
        if outcome := self.outcomes.get((create.group.task_type, create.zone)):
            return outcome
        return super().create(job, create, metadata)

    def release(self, job: Job) -> bool:
        assert not self.list_vms(job.job_id), "release comes after the deletion of all VMs"
        self.release_calls += 1
        return self.release_results.pop(0) if self.release_results else True

    def spot_requests(self, replica_id: ReplicaId) -> list[bool]:
        """Return for each requested VM of the replica whether it was a Spot VM."""
        return [
            create.price.is_preemptible
            for create in self.requested
            if replica_id in create.replica_ids
        ]


@pytest.fixture
def fleet() -> RecordingFleet:
    return RecordingFleet()


@pytest.fixture
def world(fleet: RecordingFleet) -> World:
    return World(fleet=fleet)


def submit(world: World, plan: Plan) -> None:
    job = a_job(JobState.QUEUED, plan)
    record(JobSubmitted(job, world.now), world.deps)
    world.deliver()


def spot_plan(
    workers: int = 2, losses_max: int | None = None, exit_policy: ExitPolicy | None = None
) -> Plan:
    """Return a plan whose workers have Spot VMs, until a worker has lost `losses_max` of them."""
    plan = a_plan(workers=workers, exit_policy=exit_policy or ExitPolicy())
    chief, group = plan.groups
    return replace(plan, groups=(chief, replace(group, purchase=Purchase(Spot(losses_max)))))


def preempt(world: World, replica_id: ReplicaId) -> None:
    """Preempt a VM that has lived too long for an early loss."""
    world.wait(USEFUL_LIFE_MIN.total_seconds())
    world.send("maintenance", replica_id, cause="preemption")
    world.deliver()
    world.send("vm-ready", replica_id)


def test_replica_gets_an_on_demand_vm_after_losing_its_spot_vms(
    world: World, fleet: RecordingFleet
) -> None:
    submit(world, spot_plan(losses_max=2))
    world.report_all_ready()
    for _ in range(3):
        preempt(world, WORKER_0)
    assert fleet.spot_requests(WORKER_0) == [True, True, False, False]
    assert fleet.spot_requests(WORKER_1) == [True]
    assert fleet.spot_requests(CHIEF) == [False]
    assert world.replica(WORKER_0).replaced == 3
    assert world.state == "RUNNING"
    world.check()


def test_rerun_keeps_on_demand_vms(world: World, fleet: RecordingFleet) -> None:
    rerun = ExitPolicy(rules=(ExitRule(first=134, last=134, action=ExitAction.RERUN),))
    submit(world, spot_plan(losses_max=1, exit_policy=rerun))
    world.report_all_ready()
    preempt(world, WORKER_0)
    world.kill(WORKER_0, signal=6)
    world.deliver()
    assert world.job.attempt == 2
    world.report_all_ready()
    preempt(world, WORKER_0)
    assert fleet.spot_requests(WORKER_0) == [True, False, False]
    world.check()


def submit_second(world: World) -> None:
    world.job_id = "digits_2"
    world.submit(source="gs://b/jobs/digits.yaml#2")
    world.deliver()


def test_next_job_requests_zones_first_that_are_known_to_have_capacity(
    world: World, fleet: RecordingFleet
) -> None:
    fleet.stockout_zones = {A, B}
    world.submit()
    world.deliver()
    assert world.job.zone == C
    submit_second(world)
    assert [create.zone for create in fleet.requested if "digits-2" in create.names[0]] == [C, C]
    (text,) = [
        entry.decision.text for entry in world.ledger if entry.decision.reason is Reason.PREPARING
    ]
    assert (
        text
        == f"The job's VMs are being created. Zones in this order: {C} (chance 100%), {F} (chance"
        " 50%)."
    ), "those that failed a moment ago are left out of the pass"
    world.check()


def test_stockout_is_remembered_for_hours_and_then_forgotten(
    world: World, fleet: RecordingFleet
) -> None:
    fleet.stockout_zones = {A}
    world.submit()
    world.deliver()
    fleet.stockout_zones = set()
    for hours, zones in ((1, (B, C, F, A)), (24, (A, B, C, F))):
        world.wait(hours * 3600)
        world.job_id = f"digits_h{hours}"
        world.submit(source=f"gs://b/jobs/digits.yaml#{hours}")
        world.deliver()
        order = (world.job.placement.zone_index, *(world.job.placement.remaining or ()))
        assert tuple(world.job.plan.where.zones[number] for number in order) == zones


def test_zones_that_the_user_listed_are_tried_in_this_order_except_those_without_capacity(
    world: World, fleet: RecordingFleet
) -> None:
    fleet.stockout_zones = {A, B}
    world.submit()
    world.deliver()
    world.wait(3600)
    world.job_id = "digits_2"
    world.submit(
        {**a_spec(), "trainmaster": {"zones": [A, F, C]}}, source="gs://b/jobs/digits.yaml#2"
    )
    world.deliver()
    assert world.job.zone == F
    assert world.job.placement.remaining == (2, 0)


def test_job_waits_while_all_its_zones_have_just_failed_for_another_job(
    world: World, fleet: RecordingFleet
) -> None:
    fleet.stockout_zones = {A, B, C, F}
    world.submit()
    world.deliver()
    fleet.requested.clear()
    submit_second(world)
    assert fleet.requested == []
    world.wait(60)
    world.provision()
    assert {create.zone for create in fleet.requested} == {A, B, C, F}
    world.check()


def test_each_pass_requests_each_zone_once_and_begins_with_the_oldest_failure(
    world: World, fleet: RecordingFleet
) -> None:
    fleet.stockout_zones = {A, B, C, F}
    world.submit()
    world.deliver()
    for _ in range(3):
        requested = [
            create.zone for create in fleet.requested if create.group.task_type is TaskType.CHIEF
        ]
        assert requested == [A, B, C, F]
        fleet.requested.clear()
        world.wait(60)
        world.provision()
        world.deliver()
    assert len(world.job.placement.left or ()) == 3
    world.check()


def test_outcome_that_cannot_be_noted_delays_nothing(
    world: World, fleet: RecordingFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise TemporaryError("too many writes")

    monkeypatch.setattr(world.store, "note_outcome", fail)
    fleet.stockout_zones = {A}
    world.submit()
    world.deliver()
    assert {vm.zone for vm in world.vms} == {B}


def test_stockout_decision_names_request_zone_and_googles_error(
    world: World, fleet: RecordingFleet
) -> None:
    fleet.stockout_zones = {A}
    world.submit()
    world.deliver()
    (text,) = [
        entry.decision.text for entry in world.ledger if entry.decision.reason is Reason.STOCKOUT
    ]
    assert (
        text
        == f"No capacity for 1 x n1-standard-4 (chief) in {A} (ZONE_RESOURCE_POOL_EXHAUSTED: {A}"
        f" does not have enough resources available): trying {B} next."
    )


@pytest.mark.parametrize("is_independent", [False, True])
def test_gang_that_loses_all_its_vms_runs_in_the_next_zone_without_a_wait(
    world: World, fleet: RecordingFleet, *, is_independent: bool
) -> None:
    world.is_independent = is_independent
    world.start_running()
    world.wait(USEFUL_LIFE_MIN.total_seconds())
    fleet.stockout_zones = {A}
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        world.send("maintenance", replica_id, cause="preemption")
    lost_at = world.now
    world.deliver()
    assert {vm.zone for vm in world.vms} == {B}
    assert (world.now - lost_at).total_seconds() < 60, "no pause of a sweep"
    world.report_all_ready()
    world.deliver()
    assert (world.state, world.job.attempt, world.job.budgets.reruns_used) == ("RUNNING", 1, 0)
    world.check()


def test_zone_is_left_only_when_no_insert_there_may_still_create_vms(
    world: World, fleet: RecordingFleet
) -> None:
    """Otherwise a replica would have two VMs for a time: one of the slow insert, and one in the
    next zone.
    """
    fleet.outcomes = {(TaskType.CHIEF, A): Pending(), (TaskType.WORKER, A): FULL}
    world.submit()
    world.deliver()
    assert {create.zone for create in fleet.requested} == {A}
    assert Reason.STOCKOUT not in [entry.decision.reason for entry in world.ledger]
    fleet.outcomes = {(TaskType.WORKER, A): FULL}
    world.provision()
    world.deliver()
    assert {(vm.replica_id, vm.zone) for vm in world.vms} == {
        (replica_id, B) for replica_id in (CHIEF, WORKER_0, WORKER_1)
    }
    world.check()


def test_vms_are_found_and_deleted_in_every_zone_that_the_job_has_left(
    world: World, fleet: RecordingFleet
) -> None:
    """Late inserts may have created VMs in any of them.

    Only those zones are listed if Google lists no others.
    """
    fleet.stockout_zones = {A, B}
    world.submit()
    world.deliver()
    assert world.job.zones_used == (C, B, A)
    fleet.stockout_zones = set()
    for create in [create for create in fleet.requested if create.zone in (A, B)]:
        late = replace(create, round=create.round + 100)  # not one that the fleet has answered
        directive = {"trainmaster-directive": json.dumps(create.directive.to_metadata())}
        MemoryFleet.create(fleet, world.job, late, directive)
        assert create.zone in {vm.zone for vm in world.vms}
    world.provision()
    assert {vm.zone for vm in world.vms} == {C}
    world.check()


def test_only_lost_vms_are_replaced_in_the_zone_of_the_gang(
    world: World, fleet: RecordingFleet
) -> None:
    submit(world, spot_plan(3))
    world.report_all_ready()
    kept = {vm.name: vm.instance_id for vm in world.vms}
    lost = [ReplicaId(TaskType.WORKER, index) for index in (0, 2)]
    fleet.requested.clear()
    for replica_id in lost:
        world.send("maintenance", replica_id, cause="preemption")
    world.deliver()
    assert [
        (create.replica_ids, create.zone, create.price.is_preemptible) for create in fleet.requested
    ] == [(tuple(lost), A, True)]
    assert sum(kept.get(vm.name) == vm.instance_id for vm in world.vms) == 2
    for replica_id in lost:
        world.send("vm-ready", replica_id)
    assert {replica.state for replica in world.replicas} == {ReplicaState.RUNNING}
    assert world.job.attempt == 1
    world.check()


def test_other_resources_are_released_after_the_vms_and_until_they_are_gone(
    world: World, fleet: RecordingFleet
) -> None:
    world.start_running()
    assert fleet.release_calls == 0, "not while the job runs"
    fleet.release_results = [False, True]
    world.exit_program(CHIEF, 0)
    world.provision()
    assert world.store.pending_keys("digits_1"), "the sweep tries again"
    world.provision()
    assert fleet.release_calls == 2
    assert world.store.pending_keys("digits_1") == ()


def leave_zone_a(world: World, fleet: RecordingFleet, spec: dict[str, object]) -> None:
    """Submit a job whose workers get no VMs in its first zone.

    Each role has its own insert: the other replicas are ready when that of the workers fails.
    """
    fleet.outcomes = {(TaskType.WORKER, A): Pending()}
    world.submit(spec)
    world.provision()
    for vm in world.vms:
        world.send("vm-ready", vm.replica_id)
    fleet.outcomes = {(TaskType.WORKER, A): FULL}
    world.deliver()
    assert {vm.zone for vm in world.vms} == {B}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(a_spec(), id="synchronous"),
        pytest.param({**a_spec(), "trainmaster": {"independentReplicas": True}}, id="independent"),
        pytest.param(
            a_spec(parameterServerCount=1, parameterServerType="n1-standard-4"), id="server"
        ),
        pytest.param(a_spec(evaluatorCount=1, evaluatorType="n1-standard-4"), id="evaluator"),
        pytest.param({**a_spec(), "trainmaster": {"restartJobOnWorkerRestart": True}}, id="rerun"),
    ],
)
def test_job_runs_when_every_replica_has_been_ready_in_the_zone_that_it_moved_to(
    world: World, fleet: RecordingFleet, spec: dict[str, object]
) -> None:
    leave_zone_a(world, fleet, spec)
    chief = world.replica(CHIEF)
    assert (chief.vm_generation > 1, chief.restarts_used) == (True, 0)
    *others, last = [replica.replica_id for replica in reversed(world.replicas)]
    assert last == CHIEF
    for replica_id in others:
        world.send("vm-ready", replica_id)
        world.provision()
    assert world.state == "PREPARING", "the chief's VM has not reported"
    world.send("vm-ready", last)
    world.deliver()
    assert (world.state, world.job.attempt) == ("RUNNING", 1)
    world.check()


def test_replica_that_completed_in_the_zone_before_counts_as_ready(
    world: World, fleet: RecordingFleet
) -> None:
    """The sweep starts the job: the count has only replicas with VMs of the zone."""
    server = ReplicaId(TaskType.PS, 0)
    spec = a_spec(parameterServerCount=1, parameterServerType="n1-standard-4")
    fleet.outcomes = {(TaskType.WORKER, A): Pending()}
    world.submit(spec)
    world.provision()
    world.exit_program(server, 0)
    fleet.outcomes = {(TaskType.WORKER, A): FULL}
    world.deliver()
    assert world.replica(server).state is ReplicaState.COMPLETED
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        world.send("vm-ready", replica_id)
    world.sweep()
    world.deliver()
    assert world.state == "RUNNING"


def test_members_ready_for_a_held_round_in_the_zone_before_do_not_count(
    world: World, fleet: RecordingFleet
) -> None:
    """Each report would request a reconciliation, which reads all replicas."""
    world.submit()
    world.deliver()
    for replica_id in (CHIEF, WORKER_0):
        world.send("vm-ready", replica_id)
    fleet.outcomes = {(TaskType.WORKER, A): Pending()}
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held) == (1, True)
    fleet.outcomes = {(TaskType.WORKER, A): FULL}
    world.provision()
    world.deliver()
    assert {vm.zone for vm in world.vms} == {B}
    world.silent |= {CHIEF, WORKER_0}
    world.send("vm-ready", WORKER_1)
    assert not world.bus.size
    world.report_all_ready()
    assert world.state == "RUNNING"
    world.check()
