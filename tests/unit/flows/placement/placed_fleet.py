"""A fleet that fails the requests which a test chooses, and jobs with alternatives for it
(`trainmaster.placement`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.reconcile.steps import Create
from trainmaster.ports import CreateOutcome, NotCreated, Pending
from trainmaster_local.memory.fleet import MemoryFleet

A, B, C = (f"us-central1-{letter}" for letter in "abc")
EAST = tuple(f"us-east1-{letter}" for letter in "bcd")
BIG = {"machineType": "n1-standard-8"}
"""Twice the machine that the jobs of these tests have otherwise, n1-standard-4."""
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


def placed(
    *alternatives: dict[str, object], name: str = "ordered", **extension: object
) -> dict[str, object]:
    """Return a job with these alternatives, and more fields of its section `trainmaster`.

    `name`: `ordered` or `anyOf`.
    """
    return {**a_spec(), "trainmaster": {"placement": {name: list(alternatives)}, **extension}}


def submit(
    world: World, *alternatives: dict[str, object], name: str = "ordered", **extension: object
) -> None:
    """Submit a `placed` job, and let the functions do what follows."""
    world.submit(placed(*alternatives, name=name, **extension))
    world.deliver()
