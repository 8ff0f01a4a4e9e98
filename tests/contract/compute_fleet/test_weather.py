"""Weather, which is capacity that changes with a seed: the flows request VMs of the emulator in the
same order as of the fleet in memory, where both have the same weather.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from bench import arena
from tests.contract.fleets import a_fleet, delete_and_wait
from tests.integration.compute.emulator import IMAGE, PROJECT, Emulator
from tests.support.jobs import change_plan
from tests.support.weather import WeatherAdvisor, WeatherFleet, search
from tests.support.world import World
from trainmaster.core.model.job import Job
from trainmaster.core.reconcile.steps import Create
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.compute_fleet.advice import CapacityAdvisor
from trainmaster.ports import Created, CreateOutcome
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.simulator.weather import Climate, Weather


@dataclass
class OverEmulator(WeatherFleet):
    """A fleet in memory that has the emulator's capacity."""

    compute: ComputeFleet | None = None

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        assert self.compute is not None
        self.requested.append((create.zone, create.group.machine_type, create.price.is_preemptible))
        outcome = self.compute.create(job, create, {})
        return MemoryFleet.create(self, job, create, metadata) if outcome == Created() else outcome


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_flows_request_the_same_on_the_emulator_and_in_memory(
    seed: int, emulator: Emulator
) -> None:
    job = arena.job_of(arena.anywhere(seed))
    plan = change_plan(job.plan, source=IMAGE)
    job = replace(job, job_id=f"weather_{uuid.uuid4().hex[:8]}", plan=plan)
    weather = Weather(seed, Climate.FAMINE)
    in_memory = WeatherFleet(weather=weather, answer_s=0.0)
    in_memory.world = world = World(
        job_id=job.job_id, fleet=in_memory, advisor=WeatherAdvisor(weather)
    )
    search(world, job, limit_s=0.0)
    emulator.faults(weather={"seed": seed, "climate": "famine"})
    compute = a_fleet(emulator)
    on_emulator = OverEmulator(compute=compute)
    advisor = CapacityAdvisor(PROJECT, endpoint=emulator.endpoint)
    search(World(job_id=job.job_id, fleet=on_emulator, advisor=advisor), job, limit_s=0.0)
    assert on_emulator.requested == in_memory.requested
    assert len(in_memory.requested) > 1
    for vm in compute.list_vms(job.job_id):
        delete_and_wait(compute, vm)
