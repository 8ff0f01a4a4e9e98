"""Jobs with alternatives of region, machine and pricing (`trainmaster.placement`), through the
flows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from tests.unit.cost.price_lists import price_list
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.intake.bucket_places import BucketPlace
from trainmaster.core.model.job import Job
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.reporting.phases import PAID, replica_spans
from trainmaster.core.timeouts import PARTIAL_GANG_WAIT_MAX_S, REFUSED_MAX, USEFUL_LIFE_MIN
from trainmaster.cost.job_cost import hourly_cost, job_cost, ranked_by_price, transfer_price
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError
from trainmaster.flows import user_requests
from trainmaster.jobspec.accept import accept
from trainmaster.ports import CreateOutcome, NotCreated, Pending
from trainmaster.presentation.job_view import job_view
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.objects import MemoryObjects

A, B, C, F = (f"us-central1-{letter}" for letter in "abcf")
EAST = tuple(f"us-east1-{letter}" for letter in "bcd")
CENTRAL = (A, B, C, F)
BIG = {"machineType": "n1-standard-8"}
FULL = NotCreated(CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", "full")


@dataclass
class PlacedFleet(MemoryFleet):
    """A fleet that records its requests with the jobs that they are for, and fails those that tests
    choose.
    """

    requested: list[tuple[Job, Create]] = field(default_factory=list)
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The configuration of the VMs of the latest request in each zone."""
    failures: dict[tuple[str, bool], CreateOutcome] = field(default_factory=dict)
    """Zone or region, and whether Spot → outcome."""
    open_operations: set[str] = field(default_factory=set)
    """Zones with a pending operation."""

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        assert self.open_operations <= {create.zone}, "an operation is open elsewhere"
        self.requested.append((job, create))
        self.configs[create.zone] = json.loads(metadata["trainmaster-vm-config"])
        for place in (create.zone, create.zone.rpartition("-")[0]):
            if outcome := self.failures.get((place, create.price.is_preemptible)):
                self.open_operations = {create.zone} if isinstance(outcome, Pending) else set()
                return outcome
        outcome = super().create(job, create, metadata)
        self.open_operations = set()
        return outcome

    def order(self) -> list[tuple[str, str, bool]]:
        """Return zone, machine and pricing of the requests for the chief, and forget all."""
        chiefs = [create for _, create in self.requested if create.group.task_type == "chief"]
        self.requested.clear()
        return [
            (create.zone, create.group.machine_type, create.price.is_preemptible)
            for create in chiefs
        ]


@pytest.fixture
def fleet() -> PlacedFleet:
    return PlacedFleet()


@pytest.fixture
def world(fleet: PlacedFleet) -> World:
    return World(fleet=fleet)


def placed(
    *alternatives: dict[str, object], name: str = "ordered", **extension: object
) -> dict[str, object]:
    return {**a_spec(), "trainmaster": {"placement": {name: list(alternatives)}, **extension}}


def submit(
    world: World, *alternatives: dict[str, object], name: str = "ordered", **extension: object
) -> None:
    world.submit(placed(*alternatives, name=name, **extension))
    world.deliver()


def lose_all(world: World) -> None:
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


def test_each_pass_requests_each_eligible_candidate_once_and_after_delays_an_alternative(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {
        (region, spot): FULL for region in ("us-central1", "us-east1") for spot in (True, False)
    }
    submit(
        world,
        {"zones": [B, A], "spot": "all"},
        {"regions": ["us-east1"], "machineSpec": BIG, "roles": ["chief", "worker"], "spot": "all"},
        {"zones": [A], "spot": "none", "after": "1800s"},
    )
    first = [
        (B, "n1-standard-4", True),
        (A, "n1-standard-4", True),
        *((zone, "n1-standard-8", True) for zone in EAST),
    ]
    began_at = world.now
    assert fleet.order() == first
    has_begun = False
    while (world.now - began_at).total_seconds() < 1900:
        world.wait(60)
        world.provision()
        world.deliver()
        order = fleet.order()
        has_begun = (A, "n1-standard-4", False) in order
        assert sorted(order) == sorted(
            [*first, *([(A, "n1-standard-4", False)] if has_begun else [])]
        )
        assert has_begun or (world.now - began_at).total_seconds() < 1800 + 70
    assert has_begun
    (text,) = [
        entry.decision.text for entry in world.ledger if entry.decision.reason is Reason.PREPARING
    ]
    assert text.startswith(
        f"The job's VMs are being created. Candidates in this order: Spot n1-standard-4 in {B} ("
    )
    assert f"trying Spot n1-standard-8 in {EAST[0]} next" in " ".join(
        entry.decision.text for entry in world.ledger
    )
    assert next_steps(world.job, world.replicas)[-1].startswith(
        ("VMs are requested (n1-standard", "VMs are requested (Spot n1-standard")
    )
    world.check()


def test_used_up_quota_is_not_asked_for_again_in_its_region_and_other_pricing_is(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {
        ("us-central1", True): NotCreated(CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED", "Quota 'X'")
    }
    submit(
        world,
        {"spot": "all"},
        {"zones": [A], "spot": "none"},
        {"regions": ["us-east1"], "spot": "all"},
    )
    assert fleet.order() == [(A, "n1-standard-4", True), (A, "n1-standard-4", False)]
    assert [e.decision.reason for e in world.ledger if e.decision.reason is Reason.QUOTA] == [
        Reason.QUOTA
    ]
    world.check()


def test_job_whose_alternatives_all_share_a_used_up_quota_waits_and_keeps_to_after(
    world: World, fleet: PlacedFleet
) -> None:
    quota = NotCreated(CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED", "Quota 'X'")
    fleet.failures = {("us-central1", False): quota}
    submit(world, {"zones": [B]}, {"zones": [A]}, {"zones": [C], "after": "1800s"})
    assert fleet.order() == [(B, "n1-standard-4", False)]
    assert world.job.placement.next_at
    fleet.failures = {("us-central1", False): FULL}
    world.wait(70)
    world.provision()
    world.deliver()
    assert fleet.order() == [(B, "n1-standard-4", False), (A, "n1-standard-4", False)]
    world.check()


def test_used_up_global_quota_of_gpus_covers_all_candidates_with_gpus(
    world: World, fleet: PlacedFleet
) -> None:
    quota = NotCreated(
        CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded."
    )
    fleet.failures = {("us-central1", False): quota, ("us-east1", False): quota}
    gpu = {
        "machineType": "n1-standard-8",
        "acceleratorType": "NVIDIA_TESLA_T4",
        "acceleratorCount": 1,
    }
    submit(
        world,
        {"machineSpec": gpu, "roles": ["worker"], "regions": ["us-central1", "us-east1"]},
        {"machineSpec": {"machineType": "n1-highmem-8"}, "roles": ["worker"], "spot": "all"},
    )
    workers = [
        (c.zone, c.group.machine_type, c.price.is_preemptible)
        for _, c in fleet.requested
        if c.group.task_type == "worker"
    ]
    assert workers == [(A, "n1-standard-8", False), (A, "n1-highmem-8", True)]


@pytest.mark.parametrize(
    "kind", [CapacityErrorKind.DENIED, CapacityErrorKind.BLOCKED, CapacityErrorKind.INTERNAL]
)
def test_refused_region_is_left_and_a_job_that_is_refused_everywhere_fails_after_an_hour(
    world: World, fleet: PlacedFleet, kind: CapacityErrorKind
) -> None:
    refusal = NotCreated(kind, "CONDITION_NOT_MET", "an organization policy forbids it")
    fleet.failures = {("us-central1", False): refusal, ("us-east1", False): refusal}
    submit(world, {"zones": [A, EAST[0]]}, {"zones": [EAST[1]], "spot": "all"})
    assert {vm.zone for vm in world.vms} == {EAST[1]}
    world.check()
    fleet.failures[("us-east1", True)] = refusal
    world.job_id = "digits_2"
    world.submit(placed({"zones": [A, EAST[0]]}), source="gs://b/jobs/digits.yaml#2")
    began_at = world.now
    while not world.has_ended:
        world.deliver()
        world.wait(60)
        world.provision()
        assert world.now - began_at < 2 * REFUSED_MAX
    assert (world.state, world.now - began_at >= REFUSED_MAX) == ("FAILED", True)
    world.check()


def test_vms_stay_where_only_the_pricing_of_the_others_changes(
    world: World, fleet: PlacedFleet
) -> None:
    submit(world, {"zones": [A, B], "spot": "all"}, {"zones": [A], "spot": "none"})
    world.report_all_ready()
    kept = world.vm(CHIEF).instance_id
    fleet.failures = {(A, True): FULL}
    fleet.order()
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


def test_candidate_is_left_only_after_its_operation_has_ended(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {(A, True): Pending()}
    submit(world, {"zones": [A], "spot": "all"}, {"zones": [EAST[0]], "spot": "none"})
    assert {zone for zone, _, _ in fleet.order()} == {A}
    fleet.failures = {(A, True): FULL}
    world.provision()
    world.deliver()
    assert {vm.zone for vm in world.vms} == {EAST[0]}
    world.check()


def test_cancelled_job_leaves_no_vm_in_any_place_that_it_has_left(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {(A, True): FULL}
    submit(world, {"zones": [A], "spot": "all"}, {"zones": [EAST[0]]}, {"zones": [B]})
    late = next(create for _, create in fleet.requested if create.zone == A)
    directive = {"trainmaster-directive": json.dumps(late.directive.to_metadata())}
    MemoryFleet.create(fleet, world.job, replace(late, round=99), directive)
    assert {vm.zone for vm in world.vms} == {A, EAST[0]}
    assert world.job.zones_used == (EAST[0], A), "B was never visited"
    user_requests.cancel_job(world.job_id, "test", world.deps)
    world.deliver()
    assert (world.state, world.vms) == ("CANCELLED", ())
    world.check()


def test_describe_names_the_candidate_and_returns_the_spec_as_submitted(world: World) -> None:
    submit(world, {"zones": [EAST[0]], "machineSpec": BIG, "spot": "all"})
    view = job_view(world.job, project="p")
    assert view["trainmaster"]["candidate"] == f"Spot n1-standard-8 in {EAST[0]}"
    assert json.loads(world.job.spec_json)["trainmaster"]["placement"]["ordered"][0]["zones"] == [
        EAST[0]
    ]


def test_cost_is_that_of_the_machine_region_and_pricing_of_each_vm(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {(A, True): FULL}
    submit(world, {"zones": [A], "spot": "all"}, {"zones": ["europe-west4-a"], "machineSpec": BIG})
    world.report_all_ready()
    world.wait(3600)
    world.exit_program(CHIEF, 0)
    job, prices = world.job, price_list()
    cost = job_cost(job, replica_spans(world.history), prices, world.now)
    assert not isinstance(cost, Unknown), cost
    hourly = hourly_cost(job.plan.at(1), prices)
    assert not isinstance(hourly, Unknown)
    assert float(cost.total) == pytest.approx(float(hourly), rel=0.01)


def test_any_of_is_ordered_by_price_and_capacity_decides_within_a_band(
    world: World, fleet: PlacedFleet
) -> None:
    world.prices, world.regions = price_list(), ("us-central1", "europe-west4")
    fleet.failures = {(place, True): FULL for place in world.regions}
    submit(
        world, {"machineSpec": BIG}, {"zones": [A]}, {"regions": "any", "spot": "all"}, name="anyOf"
    )
    order = [(machine, spot) for _, machine, spot in fleet.order()]
    assert order == [*[("n1-standard-4", True)] * 7, ("n1-standard-4", False)]
    world.check()


@pytest.mark.parametrize(
    ("place", "gib", "region", "price"),
    [
        ("US-CENTRAL1", 200, "us-central1", 0),
        ("us-central1", 200, "us-east4", 4),
        ("NAM4", 200, "us-east1", 0),
        ("NAM4", 200, "us-west1", 4),
        ("EUROPE-WEST1", 50, "europe-west4", 1),
        ("US-CENTRAL1", None, "us-east4", "gib"),
        ("US-CENTRAL1", 200, "europe-west4", "no price of transfers from US-CENTRAL1"),
        ("ASIA-EAST1", 200, "asia-east2", "no price of transfers"),
        ("US", 200, "us-east4", "no price of transfers from US"),
        (None, 200, "us-east4", "location"),
    ],
)
def test_transfer_has_a_price_within_a_continent_and_a_reason_otherwise(
    place: str | None, gib: int | None, region: str, price: float | str
) -> None:
    found = transfer_price(gib, BucketPlace(place) if place else None, region, price_list())
    if isinstance(price, str):
        assert isinstance(found, Unknown)
        assert price in found.reason
    else:
        assert found == Decimal(str(price))


@pytest.mark.parametrize(
    ("gib", "first"), [(50, {"us-central1", "us-east1"}), (1000, {"us-central1"}), (None, None)]
)
def test_any_of_counts_the_transfer_of_data_to_a_region(
    world: World, gib: int | None, first: set[str] | None
) -> None:
    """Three VMs cost 0.7 USD an hour: over a day, 1 USD per start is within the band of 15 %, and
    20 USD are not.
    """
    world.prices, world.objects = price_list(), MemoryObjects()
    world.objects.places["my-data"] = BucketPlace("US-CENTRAL1")
    world.objects.write("gs://bucket/trainer-0.1.tar.gz", b"code", content_type="application/gzip")
    data = {"uri": "gs://my-data/set", **({"gib": gib} if gib else {})}
    document = placed(
        {"regions": ["us-east1", "us-central1"]}, {"spot": "none", "machineSpec": BIG}, name="anyOf"
    )
    document["trainmaster"]["placement"]["data"] = data  # type: ignore[index]
    world.submit(document)
    plan = world.job.plan
    best = min(candidate.rank for candidate in plan.where.candidates)
    found = {
        z.rpartition("-")[0]
        for z, c in zip(plan.where.zones, plan.where.candidates, strict=True)
        if c.rank == best
    }
    assert found == (first or {"us-central1", "us-east1"})
    assert any("network traffic" in note.reason for note in plan.origin.substitutions)


def test_missing_bucket_of_data_is_refused_and_one_that_may_not_be_seen_is_noted(
    world: World,
) -> None:
    world.objects = MemoryObjects()
    world.objects.missing_buckets.add("my-data")
    world.objects.forbidden_buckets.add("other")
    world.objects.write("gs://bucket/trainer-0.1.tar.gz", b"code", content_type="application/gzip")
    document = placed({"spot": "all"}, name="anyOf")
    document["trainmaster"]["placement"]["data"] = {"uri": "gs://my-data/set"}  # type: ignore[index]
    with pytest.raises(
        PermanentError, match=r"trainmaster.placement.data.uri .*my-data, which does not exist"
    ):
        world.submit(document)
    document["trainmaster"]["placement"]["data"] = {"uri": "gs://other/set"}  # type: ignore[index]
    world.submit(document)
    assert "gs://other/set" in {note.requested for note in world.job.plan.origin.substitutions}


def test_reservation_ranks_first_and_an_unknown_price_last() -> None:
    """The price list of the tests has no prices for us-east4."""
    listed: tuple[dict[str, object], ...] = (
        {"spot": "none"},
        {"zones": [A], "reservation": "r"},
        {"zones": ["us-east4-a"]},
        {"spot": "all"},
    )
    plan = ranked_by_price(
        accept(placed(*listed, name="anyOf"), default_job_id="j").plan, price_list(), {}
    )
    ranks = {candidate.option: candidate.rank for candidate in plan.where.candidates}
    assert sorted(ranks, key=lambda option: ranks[option]) == [1, 3, 0, 2]
    assert (ranks[1], ranks[3]) == (0, 1)


@pytest.mark.parametrize(
    ("alternatives", "name", "prices", "field"),
    [
        (
            [{"spot": "all"}, {"regions": ["us-west1"]}],
            "ordered",
            True,
            "trainmaster.placement.ordered[1]",
        ),
        (
            [{"spot": "all"}, {"zones": ["us-west1-a"]}],
            "anyOf",
            True,
            "trainmaster.placement.any_of[1]",
        ),
        ([{"spot": "all"}, {"spot": "none"}], "anyOf", False, "trainmaster.placement.any_of"),
    ],
    ids=["region", "zone", "no prices"],
)
def test_job_that_this_installation_cannot_place_is_refused_with_the_field(
    world: World, alternatives: list[dict[str, object]], name: str, prices: bool, field: str
) -> None:
    world.regions = ("us-central1", "us-east1")
    world.prices = price_list() if prices else None
    with pytest.raises(
        PermanentError, match="worker_regions" if prices else "there is no price list"
    ) as caught:
        world.submit(placed(*alternatives, name=name))
    assert f"Field: {field} " in str(caught.value)


def test_any_of_with_one_machine_needs_no_prices(world: World) -> None:
    submit(world, {"regions": ["us-central1", "us-east1"], "spot": "all"}, name="anyOf")
    assert world.vms


def test_zone_that_google_names_comes_first_only_for_the_machine_that_was_requested(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {
        (A, False): replace(FULL, zones_available=(C,)),
        (B, False): replace(FULL, zones_available=(C,)),
    }
    submit(
        world,
        {"zones": [A, B]},
        {"zones": [B, C], "machineSpec": BIG, "roles": ["chief", "worker"]},
    )
    small, big = "n1-standard-4", "n1-standard-8"
    assert [request[:2] for request in fleet.order()] == [
        (A, small),
        (B, small),
        (B, big),
        (C, big),
    ]


def test_early_losses_do_not_begin_an_alternative_before_its_time(
    world: World, fleet: PlacedFleet
) -> None:
    submit(world, {"zones": [A], "spot": "all"}, {"zones": [B], "after": "7200s"})
    world.report_all_ready()
    for _ in range(4):
        world.send("maintenance", CHIEF, cause="preemption")
        world.deliver()
        world.wait(900)
        world.provision()
        world.deliver()
        world.send("vm-ready", CHIEF)
        world.deliver()
    assert {zone for zone, _, _ in fleet.order()} == {A}
    assert world.state == "RUNNING"
    world.check()


def test_wait_limit_ends_a_search_and_leaves_nothing_in_any_candidate(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {(A, True): FULL, (EAST[0], False): Pending()}
    document = placed({"zones": [A], "spot": "all"}, {"zones": [EAST[0]]})
    document["trainingInput"]["scheduling"] = {"maxWaitTime": "1800s"}  # type: ignore[index]
    world.submit(document)
    while not world.has_ended:
        world.deliver()
        world.wait(180)
        world.provision()
        world.sweep()
        assert world.now - world.job.created_at < timedelta(hours=1)
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
