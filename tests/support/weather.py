"""Flows in seeded weather: a fleet with its capacity, advice about it, and the search that the
arena makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bench import arena
from tests.support.jobs import START
from tests.support.world import World
from trainmaster.core.events import CapacityErrorKind, JobSubmitted
from trainmaster.core.model.capacity import Outcome, machine_kind
from trainmaster.core.model.job import Job
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.timeouts import ADVICE_KEPT
from trainmaster.flows.commit.record import record
from trainmaster.ports import CreateOutcome, NotCreated
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.simulator.weather import Climate, Weather

ANSWER_S = 10.0
"""How long Google takes to answer a request for VMs."""
Request = tuple[str, str, bool]
"""Zone, machine type, and whether the VMs are Spot VMs."""


@dataclass
class PlainSearch(arena.Search):
    """A search whose answers take the same time, and that knows only what it has found itself."""

    limit_s: float = arena.LIMIT_S
    requested: list[Request] = field(default_factory=list)

    def request(self, number: int) -> tuple[str, ...] | None:
        zone, group = self.market.pools[number]
        self.requested.append((zone, group.machine_type, group.purchase.price.is_preemptible))
        named = self.weather.named(
            zone,
            arena.ZONES,
            self.now_s,
            group.machine_type,
            spot=group.purchase.price.is_preemptible,
        )
        if self.room(number, self.now_s) >= arena.GANG:
            return None
        self.now_s += ANSWER_S
        self._failed[number] = self.now_s
        return named if self.now_s < self.limit_s else None

    def outcomes(self) -> list[Outcome]:
        pools = self.market.pools
        return [
            Outcome(
                pools[number][0],
                machine_kind(pools[number][1], pools[number][1].purchase.price),
                arena.at(failed_s),
            )
            for number, failed_s in self._failed.items()
        ]


@dataclass
class WeatherFleet(MemoryFleet):
    """A fleet that has the weather's capacity."""

    weather: Weather = field(default_factory=lambda: Weather(0, Climate.MILD))
    world: World | None = None
    answer_s: float = ANSWER_S
    requested: list[Request] = field(default_factory=list)
    """All requests, in order."""

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the VMs if the zone has room; else let time pass, and return a stockout."""
        assert self.world is not None
        now_s, machine_type = (self.world.now - START).total_seconds(), create.group.machine_type
        self.requested.append((create.zone, machine_type, create.price.is_preemptible))
        named = self.weather.named(
            create.zone, arena.ZONES, now_s, machine_type, spot=create.price.is_preemptible
        )
        if self.weather.room(
            create.zone, now_s, machine_type, spot=create.price.is_preemptible
        ) >= len(create.names):
            return super().create(job, create, metadata)
        self.world.wait(self.answer_s)
        return NotCreated(
            CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", "no capacity", named
        )


@dataclass
class WeatherAdvisor:
    """Google's advice in this weather. All that ask within ten minutes get the same answer."""

    weather: Weather

    def advise(
        self, requests: Sequence[tuple[str, TaskGroup]], now: datetime
    ) -> dict[tuple[str, str], float]:
        asked_s, said = (
            (now - START) // ADVICE_KEPT * ADVICE_KEPT.total_seconds(),
            self.weather.advice,
        )
        return {
            (zone, machine_kind(group, group.purchase.price)): said(
                zone, group.count, asked_s, group.machine_type
            )
            for zone, group in requests
        }


def search(world: World, job: Job, limit_s: float) -> None:
    """Submit the job, and sweep each minute until it has VMs."""
    record(JobSubmitted(replace(job, created_at=world.now), world.now), world.deps)
    world.deliver()
    limit = START + timedelta(seconds=limit_s)
    while (
        not world.vms
        and (next_at := world.job.placement.next_at)
        and max(next_at, world.now) < limit
    ):
        due_s = -(-(next_at - START).total_seconds() // arena.SWEEP_S) * arena.SWEEP_S
        world.now = max(world.now, START + timedelta(seconds=due_s))
        world.provision()
        world.deliver()
    world.check()
