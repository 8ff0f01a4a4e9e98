"""In which order, how often and how long the alternatives of a job are requested.

A candidate is a zone of an alternative. A pass requests each candidate once; passes follow each
other with pauses. An alternative with `after` takes part in them when the job has waited for that
long.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.support.jobs import CHIEF
from tests.support.world import World
from tests.unit.flows.placement.placed_fleet import (
    BIG,
    EAST,
    FULL,
    A,
    B,
    C,
    PlacedFleet,
    placed,
    submit,
)
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.ports import NotCreated, Pending


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
    reasons = [entry.decision.reason for entry in world.ledger]
    assert reasons.count(Reason.QUOTA) == 1
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
        (create.zone, create.group.machine_type, create.price.is_preemptible)
        for _, create in fleet.requested
        if create.group.task_type == "worker"
    ]
    assert workers == [(A, "n1-standard-8", False), (A, "n1-highmem-8", True)]


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
