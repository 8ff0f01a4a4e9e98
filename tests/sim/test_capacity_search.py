"""The real flows request the zones in the order in which the arena's searches request them, in the same weather."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import takewhile

import pytest

from bench import arena
from tests.support.jobs import START
from tests.support.world import World
from trainmaster.core.events import CapacityErrorKind, JobSubmitted
from trainmaster.core.model.capacity import Outcome
from trainmaster.core.model.job import Job
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows.commit.record import record
from trainmaster.memory.fleet import MemoryFleet
from trainmaster.ports import CreateOutcome, NotCreated
from trainmaster.simulator.weather import Climate, Weather

ANSWER_S = 10.0
LIMIT_S = 2 * 3600.0


@dataclass
class PlainSearch(arena.Search):
    """A search whose answers take the same time, and that knows only what it has found itself."""

    requested: list[str] = field(default_factory=list)

    def request(self, zone: str) -> tuple[str, ...] | None:
        self.requested.append(zone)
        if self.weather.room(zone, self.now_s, spot=True) >= arena.GANG:
            return None
        self.now_s += ANSWER_S
        self._failed[zone] = self.now_s
        return () if self.now_s < LIMIT_S else None

    def outcomes(self, kind: str) -> list[Outcome]:
        return [Outcome(zone, kind, arena.at(failed_s)) for zone, failed_s in self._failed.items()]


@dataclass
class WeatherFleet(MemoryFleet):
    """A fleet that has the weather's capacity."""

    weather: Weather = field(default_factory=lambda: Weather(0, Climate.MILD))
    world: World | None = None
    requested: list[tuple[float, str]] = field(default_factory=list)

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        assert self.world is not None
        now_s = (self.world.now - START).total_seconds()
        self.requested.append((now_s, create.zone))
        if self.weather.room(create.zone, now_s, spot=True) >= len(create.names):
            return super().create(job, create, metadata)
        self.world.wait(ANSWER_S)
        return NotCreated(CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", "no capacity")


def requests_of_flows(weather: Weather, job: Job) -> list[str]:
    fleet = WeatherFleet(weather=weather)
    world = World(job_id=job.job_id, fleet=fleet)
    fleet.world = world
    record(JobSubmitted(replace(job, created_at=world.now), world.now), world.deps)
    world.deliver()
    while not world.vms and (next_at := world.job.placement.next_at) and world.now < START + timedelta(seconds=LIMIT_S):
        due_s = -(-(next_at - START).total_seconds() // arena.SWEEP_S) * arena.SWEEP_S
        world.now = max(world.now, START + timedelta(seconds=due_s))
        world.provision()
        world.deliver()
    world.check()
    return [zone for _, zone in takewhile(lambda request: request[0] < LIMIT_S, fleet.requested)]


@pytest.mark.parametrize("climate", [Climate.SCARCE, Climate.FAMINE])
def test_flows_request_what_the_arena_requests_until_the_gang_is_created(climate: Climate) -> None:
    lengths = []
    for seed in range(8):
        search = PlainSearch(Weather(seed, climate), arena.ONE_REGION)
        arena.now_s(search)
        job = arena.job_in(arena.ONE_REGION)
        requested = requests_of_flows(Weather(seed, climate), job)
        assert requested == search.requested[: len(requested)]
        assert abs(len(requested) - len(search.requested)) <= 1
        lengths.append(len(requested))
    assert max(lengths) > len(arena.ONE_REGION), "some searches take several passes"
