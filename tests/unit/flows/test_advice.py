"""Google's advice about capacity, through the flows: how likely Spot VMs with GPUs are created in a
zone. The chance of a zone follows from the advice and from the outcome of the last request there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.events import CapacityErrorKind, ProvisioningStarted, VmsNotCreated
from trainmaster.core.model.capacity import machine_kind
from trainmaster.core.model.job import Job
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.reconcile.steps import Create
from trainmaster.ports import CreateOutcome, NotCreated
from trainmaster_local.memory.fleet import MemoryFleet

A, B, C = (f"us-central1-{letter}" for letter in "abc")


@dataclass
class FullFleet(MemoryFleet):
    """A fleet without capacity."""

    requested: list[str] = field(default_factory=list)

    def create(self, job: Job, create: Create, metadata: Any) -> CreateOutcome:
        self.requested.append(create.zone)
        return NotCreated(CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", "full")


@dataclass
class FixedAdvisor:
    """Advice by zone; none about the other zones."""

    chances: dict[str, float]
    asked: list[set[str]] = field(default_factory=list)

    def advise(
        self, requests: Sequence[tuple[str, TaskGroup]], now: datetime
    ) -> dict[tuple[str, str], float]:
        self.asked.append({zone for zone, _ in requests})
        known = [(zone, group) for zone, group in requests if zone in self.chances]
        return {
            (zone, machine_kind(group, group.purchase.price)): self.chances[zone]
            for zone, group in known
        }


def a_search(spot: str, advisor: FixedAdvisor | None) -> tuple[World, FullFleet]:
    """Return a job with GPUs that has been requested in each of three zones once."""
    fleet = FullFleet()
    world = World(fleet=fleet, advisor=advisor)
    spec = a_spec(masterConfig={"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 1}})
    world.submit(
        {**spec, "trainmaster": {"placement": {"ordered": [{"zones": [A, B, C], "spot": spot}]}}}
    )
    world.deliver()
    world.check()
    return world, fleet


def outlooks(world: World) -> list[dict[str, float]]:
    """Return the chance of each zone, per pass."""
    events = (entry.event for entry in world.ledger)
    found = [
        event.outlook for event in events if isinstance(event, ProvisioningStarted | VmsNotCreated)
    ]
    return [
        dict(zip((A, B, C), (zone.chance for zone in outlook), strict=True))
        for outlook in found
        if outlook
    ]


def test_pass_begins_where_advice_expects_capacity_and_the_ledger_says_why() -> None:
    advisor = FixedAdvisor({A: 0.1, C: 0.9})
    world, fleet = a_search("all", advisor)
    assert fleet.requested[0] == B
    # Advice counts 70 %; no outcome is known, which alone means 50 %.
    expected = {A: 0.7 * 0.1 + 0.3 * 0.5, B: 0.5, C: 0.7 * 0.9 + 0.3 * 0.5}
    assert outlooks(world)[0] == pytest.approx(expected)
    assert advisor.asked[0] == {A, B, C}
    assert len(advisor.asked) == 2, "at the beginning of each pass, and not after each request"
    texts = [entry.decision.text for entry in world.ledger]
    assert any("us-central1-c (chance 78%)" in text for text in texts)
    assert any("next (chance 0%) in" in text for text in texts), "the next pass"


@pytest.mark.parametrize("spot", ["none", "all"])
def test_without_advice_nothing_changes(spot: str) -> None:
    """On-demand VMs get none, whatever the advisor would say."""
    advisor = FixedAdvisor({A: 0.1, C: 0.9} if spot == "none" else {})
    world, fleet = a_search(spot, advisor)
    plain, expected = a_search(spot, advisor=None)
    assert fleet.requested == expected.requested
    assert outlooks(world) == outlooks(plain)
    assert advisor.asked[0] == (set() if spot == "none" else {A, B, C})
