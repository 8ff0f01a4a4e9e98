"""The flows on the simulated cloud."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from bench.control_plane import NameAddresses
from bench.scale.bus import Request, ScaleBus, TimedStore
from bench.scale.cloud import Cloud
from bench.scale.fleet import ScaleFleet
from bench.scale.scenario import Scenario
from trainmaster.flows import provision
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.memory.store import MemoryStore
from trainmaster.ports import Bus, Fleet, Store


class Installation:
    """One installation: the stored state, the VMs, and what the flows need."""

    def __init__(self, scenario: Scenario) -> None:
        self.cloud = Cloud(scenario)
        self.store = MemoryStore()
        self.deps = CreationDeps(
            cast("Store", TimedStore(self.store, self.cloud)),
            cast("Bus", ScaleBus(self.cloud, self._provision)),
            clock=self.cloud.clock,
            sleep=self.cloud.spend,
        )
        self.fleet = ScaleFleet(self.cloud, self.deps)
        self._fleet_deps = FleetDeps(
            cast("Fleet", self.fleet), NameAddresses(), "my-project", {"startup-script": "#!"}, self.cloud.run_in_waves
        )

    def _provision(self, request: Request, published_at: datetime) -> None:
        provision.handle(request, self._fleet_deps, self.deps, published_at)
