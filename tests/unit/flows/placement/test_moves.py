"""A job that runs on one of its alternatives and loses VMs: what stays, what moves, and what is
deleted in the places that it has left.

An alternative is a list of zones with a machine and its pricing. `PlacedFleet.failures` are the
answers to requests, by zone or region and by whether they are for Spot VMs.

A directive is an order to the agent of a VM: to run the program, to hold, or to stop.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from tests.unit.flows.placement.placed_fleet import (
    BIG,
    EAST,
    FULL,
    A,
    B,
    PlacedFleet,
    submit,
)
from trainmaster.core.reporting.phases import PAID, replica_spans
from trainmaster.core.timeouts import PARTIAL_GANG_WAIT_MAX_S, USEFUL_LIFE_MIN
from trainmaster.flows import user_requests
from trainmaster_local.memory.fleet import MemoryFleet


def lose_all(world: World) -> None:
    """Preempt all VMs of the job, after each was there long enough to have been useful."""
    world.wait(USEFUL_LIFE_MIN.total_seconds())
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        world.send("maintenance", replica_id, cause="preemption")
    world.deliver()


def test_job_runs_in_the_second_region_and_moves_back_after_a_loss(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {("us-central1", True): FULL}
    submit(world, {"regions": ["us-central1", "us-east1"], "spot": "all", "env": {"BATCH": "16"}})
    assert {vm.zone for vm in world.vms} == {EAST[0]}
    assert fleet.order()[-1] == (EAST[0], "n1-standard-4", True)
    config = fleet.configs[EAST[0]]
    assert (config["region"], config["zone"], config["log"]["region"]) == (
        "us-east1",
        EAST[0],
        "us-east1",
    )
    assert config["environment"]["CLOUD_ML_REGION"] == "us-east1"
    assert config["variables"]["BATCH"] == "16"
    assert EAST[0] in json.dumps(config["tf_config"])
    world.report_all_ready()
    assert (world.state, world.job.plan.where.region) == ("RUNNING", "us-central1")
    assert "BATCH" not in str(world.job.plan.program), "the stored plan does not change"
    fleet.failures = {("us-east1", True): FULL}
    world.wait(6 * 3600)
    lose_all(world)
    assert {vm.zone.rpartition("-")[0] for vm in world.vms} == {"us-central1"}
    world.report_all_ready()
    assert (world.state, world.job.attempt, world.job.budgets.reruns_used) == ("RUNNING", 1, 0)
    assert fleet.configs[world.job.zone]["region"] == "us-central1"
    world.exit_program(CHIEF, 0)
    world.deliver()
    assert (world.state, world.vms) == ("SUCCEEDED", ())
    world.check()


def test_vms_stay_where_only_the_pricing_of_the_others_changes(
    world: World, fleet: PlacedFleet
) -> None:
    submit(world, {"zones": [A, B], "spot": "all"}, {"zones": [A], "spot": "none"})
    world.report_all_ready()
    kept = world.vm(CHIEF).instance_id
    fleet.failures = {(A, True): FULL}
    fleet.requested.clear()
    world.wait(USEFUL_LIFE_MIN.total_seconds())
    world.send("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    assert [
        (create.zone, create.price.is_preemptible, create.replica_ids)
        for _, create in fleet.requested
    ] == [
        (A, True, (WORKER_0,)),
        (A, False, (WORKER_0,)),
    ]
    world.send("vm-ready", WORKER_0)
    world.deliver()
    assert (world.vm(CHIEF).instance_id, world.job.attempt, world.state) == (kept, 1, "RUNNING")
    spans = replica_spans(world.history)
    pricing = {(span.replica_id, span.price.is_preemptible) for span in spans if span.phase in PAID}
    assert pricing == {(CHIEF, True), (WORKER_0, True), (WORKER_0, False), (WORKER_1, True)}
    world.check()


def test_gang_that_keeps_missing_a_vm_moves_to_another_alternative_after_a_while(
    world: World, fleet: PlacedFleet
) -> None:
    submit(world, {"zones": [A], "spot": "all"}, {"zones": [A], "machineSpec": BIG})
    world.report_all_ready()
    fleet.failures = {(A, True): FULL}
    world.wait(USEFUL_LIFE_MIN.total_seconds())
    world.send("maintenance", WORKER_0, cause="preemption")
    lost_at = world.now
    while world.job.attempt == 1:
        world.deliver()
        world.wait(60)
        world.provision()
        assert (world.now - lost_at).total_seconds() < 2 * PARTIAL_GANG_WAIT_MAX_S
    world.deliver()
    latest = {vm.name: vm for vm in sorted(world.vms, key=lambda vm: vm.vm_generation)}
    assert len(latest) == len(world.vms) == 3, "no VM of the first machine is left"
    machines = {c.group.machine_type for _, c in fleet.requested[-2:]}
    assert (world.job.zone, machines) == (A, {"n1-standard-8"})
    world.check()


def test_cancelled_job_leaves_no_vm_in_any_place_that_it_has_left(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {(A, True): FULL}
    submit(world, {"zones": [A], "spot": "all"}, {"zones": [EAST[0]]}, {"zones": [B]})
    late = next(create for _, create in fleet.requested if create.zone == A)
    directive = {"trainmaster-directive": json.dumps(late.directive.to_metadata())}
    new_request = replace(late, round=99)  # not the one that the fleet has answered
    MemoryFleet.create(fleet, world.job, new_request, directive)
    assert {vm.zone for vm in world.vms} == {A, EAST[0]}
    assert world.job.zones_used == (EAST[0], A), "B was never visited"
    user_requests.cancel_job(world.job_id, "test", world.deps)
    world.deliver()
    assert (world.state, world.vms) == ("CANCELLED", ())
    world.check()


def test_optional_replicas_stay_with_the_required_ones_that_found_an_alternative(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures, fleet.capacity = {(A, True): FULL}, {EAST[0]: 3}
    roles = {"workerCount": 3, "parameterServerCount": 1, "parameterServerType": "n1-standard-4"}
    listed = {"placement": {"ordered": [{"zones": [A], "spot": "all"}, {"zones": [EAST[0]]}]}}
    world.submit({**a_spec(**roles), "trainmaster": {**listed, "gang": False}})
    world.deliver()
    assert {str(vm.replica_id): vm.zone for vm in world.vms} == dict.fromkeys(
        ("chief-0", "ps-0", "worker-0"), EAST[0]
    )
    for vm in world.vms:
        world.send("vm-ready", vm.replica_id)
    fleet.failures = {}
    world.wait(3600)
    world.provision()
    world.deliver()
    assert (world.state, world.job.zone, {vm.zone for vm in world.vms}) == (
        "RUNNING",
        EAST[0],
        {EAST[0]},
    )
    world.check()


def test_zone_that_cannot_be_listed_delays_only_jobs_that_have_been_there(
    world: World, fleet: PlacedFleet
) -> None:
    submit(world, {"zones": [EAST[0]]}, {"zones": [A], "spot": "all"})
    world.report_all_ready()
    kept = world.vm(WORKER_0).instance_id
    world.wait(USEFUL_LIFE_MIN.total_seconds())
    world.send("maintenance", WORKER_0, cause="preemption")
    fleet.unreachable_zones = {A}
    world.deliver()
    fleet.unreachable_zones = set()
    assert world.vm(WORKER_0).instance_id != kept
    world.check()
