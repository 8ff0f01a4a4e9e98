"""Slices of several shapes as alternatives of one job, through the flows.

A slice is a TPU machine of one or several hosts. The hosts of the chief's slice are the processes
that train: a slice of another shape has another number of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.support.jobs import CHIEF, a_job, a_plan, at, ready
from tests.support.world import World
from tests.unit.flows.placement.placed_fleet import FULL, PlacedFleet
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import JobState, Placement, State
from trainmaster.core.model.members import recall
from trainmaster.core.model.purchase import Pricing
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.reporting.goodput import goodput_of
from trainmaster.core.reporting.phases import replica_spans
from trainmaster.core.rules.judge import judge
from trainmaster.cost.job_cost import job_cost
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.jobspec.accept import accept
from trainmaster.ports import NotCreated
from trainmaster.presentation.job_view import job_view

FOUR_HOSTS = {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "4x4"}
ONE_HOST = {"machineType": "ct6e-standard-8t"}
WEST, EAST = "us-west4-a", "us-east5-a"
LARGE = {"machineSpec": FOUR_HOSTS, "zones": [WEST], "spot": "all"}
HOUR_S = 3600
V5E_CHIP_USD, V6E_CHIP_USD = 1, 2
"""Prices of a chip for an hour, on Spot."""
PRICES = PriceList(
    "USD",
    at(0),
    {
        ("v5litepod", "us-west4", Pricing.SPOT): Decimal(V5E_CHIP_USD),
        ("v6e", "us-east5", Pricing.SPOT): Decimal(V6E_CHIP_USD),
    },
)
SMALL = {"machineSpec": ONE_HOST, "zones": [EAST], "spot": "all"}


def of_slices(
    *alternatives: Mapping[str, object], base: Mapping[str, str], **more: object
) -> dict[str, object]:
    """Return a job of one slice, of the machine `base`, or of these alternatives to it."""
    image = {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"}
    pools = [{"machineSpec": base, "replicaCount": 1, "containerSpec": image}]
    extension = {"region": "us-central1", "placement": {"ordered": list(alternatives)}, **more}
    return {
        "displayName": "digits_1",
        "jobSpec": {"workerPoolSpecs": pools},
        "trainmaster": extension,
    }


def report_ready(world: World, hosts: int) -> None:
    """Let the agents of all hosts of the chief's slice report that they are ready."""
    if hosts == 1:
        world.send("vm-ready", CHIEF)
    else:
        for host in range(hosts):
            world.send("vm-ready", CHIEF, host=host)
    world.deliver()


@pytest.mark.parametrize(
    "base", [FOUR_HOSTS, {"machineType": "ct5lp-hightpu-8t"}], ids=["several hosts", "one host"]
)
def test_job_goes_on_with_a_slice_of_another_shape_and_returns(base: Mapping[str, str]) -> None:
    fleet = PlacedFleet(failures={(WEST, True): FULL})
    world = World(fleet=fleet, silent={CHIEF})
    world.submit(of_slices(LARGE, SMALL, base=base))
    world.deliver()
    assert [vm.zone for vm in world.vms] == [EAST]
    config = fleet.configs[EAST]
    assert (config["hosts"], config["region"], config["environment"]["WORLD_SIZE"]) == (
        1,
        "us-east5",
        "1",
    )
    assert job_view(world.job, project="p")["trainmaster"]["candidate"] == f"Spot v6e-8 in {EAST}"
    # The outcomes of requests are kept for the placement of other jobs.
    outcomes = world.store.outcomes([(WEST, "Spot v5litepod-16"), (EAST, "Spot v6e-8")])
    assert [(outcome.zone, outcome.is_created) for outcome in outcomes] == [
        (WEST, False),
        (EAST, True),
    ]
    report_ready(world, 1)
    assert world.state == "RUNNING"
    fleet.failures = {(EAST, True): FULL}
    world.wait(6 * HOUR_S)
    world.send("maintenance", CHIEF, cause="preemption")
    world.deliver()
    assert [vm.zone for vm in world.vms] == [WEST]
    config = fleet.configs[WEST]
    assert (config["hosts"], config["environment"]["WORLD_SIZE"]) == (4, "4")
    report_ready(world, 3)
    assert world.replicas[0].state is ReplicaState.REPLACING, "the fourth host is missing"
    world.send("vm-ready", CHIEF, host=3)
    world.deliver()
    assert (world.state, world.job.attempt, world.replicas[0].state) == (
        "RUNNING",
        1,
        ReplicaState.RUNNING,
    )
    world.deliver()
    world.wait(HOUR_S)
    for host in range(4):
        assert world.state == "RUNNING"
        world.exit_program(CHIEF, 0, host=host)
    world.deliver()
    assert (world.state, world.vms) == ("SUCCEEDED", ())
    world.check()
    spans = replica_spans(world.history)
    cost = job_cost(world.job, spans, PRICES, world.now)
    host_hours = 6 * 1 + 1 * 4
    running_s = goodput_of(world.job, spans, world.now).running_s
    assert running_s == pytest.approx(host_hours * HOUR_S, rel=0.02)
    assert not isinstance(cost, Unknown)
    usd = 6 * 8 * V6E_CHIP_USD + 1 * 16 * V5E_CHIP_USD
    assert float(cost.total) == pytest.approx(usd, rel=0.02), "hours, chips, price"


def test_used_up_quota_covers_slices_of_its_generation_and_no_others() -> None:
    quota = NotCreated(
        CapacityErrorKind.QUOTA, "RESOURCE_EXHAUSTED", "Quota limit 'TPUS' has been exceeded."
    )
    fleet = PlacedFleet(failures={("us-central1", True): quota})
    world = World(fleet=fleet)
    small = {
        "machineSpec": {"machineType": "ct5lp-hightpu-8t"},
        "zones": ["us-central1-a"],
        "spot": "all",
    }
    other = {"machineSpec": ONE_HOST, "zones": ["us-central1-b"], "spot": "all"}
    world.submit(of_slices({"spot": "all"}, small, other, base=FOUR_HOSTS))
    world.deliver()
    requested = [create.group.tpu.type for _, create in fleet.requested if create.group.tpu]
    assert requested == ["v5litepod-16", "v6e-8"]
    world.check()


def test_alternative_is_in_the_zones_that_offer_its_slice() -> None:
    """The job's region is that of all alternatives that name no other; its zones are those of its
    own machine.
    """
    plan = accept(
        of_slices({}, {"machineSpec": ONE_HOST}, base=FOUR_HOSTS), default_job_id=None
    ).plan
    found = [(zone, plan.at(number).groups[0].tpu) for number, zone in enumerate(plan.where.zones)]
    assert found == [
        ("us-central1-a", Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", 4)),
        ("us-central1-b", Tpu("v6e-8", "v2-alpha-tpuv6e", 1)),
    ]
    everywhere = of_slices({"machineSpec": ONE_HOST, "regions": "any"}, base=FOUR_HOSTS)
    plan = accept(
        everywhere, default_job_id=None, regions=["us-west1", "us-east1", "us-east5"]
    ).plan
    assert plan.where.zones == ("us-east1-d", "us-east5-a", "us-east5-b")


def test_own_software_stays_on_slices_of_its_generation() -> None:
    small = {"machineSpec": {"machineType": "ct5lp-hightpu-8t"}}
    plan = accept(
        of_slices(small, base=FOUR_HOSTS, image="v2-alpha-tpuv5-lite-1"), default_job_id=None
    ).plan
    assert plan.at(0).groups[0].tpu == Tpu("v5litepod-8", "v2-alpha-tpuv5-lite-1", 1)


@pytest.mark.parametrize("is_member", [True, False])
def test_hosts_of_a_slice_that_was_left_do_not_count_for_the_next_one(*, is_member: bool) -> None:
    """Two hosts were ready when the gang moved to another slice: the other two of that one do not
    make it ready.
    """
    group = TaskGroup(
        TaskType.CHIEF, 1, machine_type="", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
    )
    job = a_job(
        JobState.PREPARING,
        a_plan(groups=(group,), independent=not is_member),
        # The move to the second zone: VMs before the third generation do not count.
        placement=Placement(zone_index=1, round=2, floor=3),
    )
    state = recall(State(job, (Replica(1, CHIEF, hosts_ready=(0, 1)),), whole=True))
    for host in (2, 3):
        event = ready(CHIEF, vm_generation=3)
        event = replace(event, subject=replace(event.subject, host=host))
        state = apply(state, evolve(state, judge(state, event, at(60)), at(60)))
    assert (state.replicas[0].state, state.replicas[0].hosts_ready) == (
        ReplicaState.WAITING,
        (2, 3),
    )
