"""How fast searches find capacity, in seeded weather: `python -m bench.arena [WEATHERS]`.

    oracle    takes the first zone that has room
    now       the rules of the product, with what other jobs have found

All times count until the gang is ready, and are cut at 48 hours. The rules are the real ones: each capacity error is
judged and folded into the job's state. No cloud is called, and no time passes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import exp, log
from typing import Final

from trainmaster.core.actions import AcceptJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import CapacityErrorKind, Event, ProvisioningStarted, VmsNotCreated
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.capacity import Outcome, Prospect, candidate_keys
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.plan import Accelerator, Plan, Program, TaskGroup
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.rules.capacity_backoff import is_too_early
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.outlook import look_out
from trainmaster.core.rules.search import may_begin_pass
from trainmaster.simulator.weather import Climate, Weather

START: Final = datetime(2026, 11, 21, 3, tzinfo=UTC)
GANG: Final = 4
LIMIT_S: Final = 48 * 3600.0
SWEEP_S: Final = 60.0
READY_S: Final = 75.0
"""From the creation of a VM to its agent's report."""
VISIT_S: Final = 7200.0
"""Other jobs request VMs in each zone every two hours."""
ONE_REGION: Final = tuple(f"us-central1-{letter}" for letter in "abcf")
THREE_REGIONS: Final = (*ONE_REGION, *(f"us-east4-{letter}" for letter in "abc"), *(f"us-west1-{c}" for c in "abc"))


@dataclass
class Search:
    """One search for capacity. Each arm gets one of its own, with the same weather and the same answers of Google."""

    weather: Weather
    zones: tuple[str, ...]
    lost_in: str | None = None
    """Zone in which the gang ran and lost all VMs at `now_s`; None: it has never run."""
    now_s: float = 0.0
    requests: int = 0
    _failed: dict[str, float] = field(default_factory=dict)
    """When the job's own request failed last, by zone."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.weather.seed}/answers")  # noqa: S311 - weather keeps no secret
        self._offsets = {zone: self._rng.uniform(0, VISIT_S) for zone in self.zones}

    def request(self, zone: str) -> tuple[str, ...] | None:
        """Request the gang. Return None if it is ready, else the zones that Google names."""
        self.requests += 1
        rng = self._rng
        if self.weather.room(zone, self.now_s, spot=True) >= GANG:
            self.now_s += rng.uniform(8, 25) + READY_S
            return None
        named = tuple(other for other in self.zones if other != zone and self._is_named(other, zone))
        self.now_s += 1.0 if rng.random() < 0.2 else min(rng.lognormvariate(log(8), 0.8), 120.0)  # noqa: PLR2004
        self._failed[zone] = self.now_s
        return named if rng.random() < 0.6 else ()  # noqa: PLR2004

    def outcomes(self, kind: str) -> list[Outcome]:
        """Return what all jobs have found, the latest in each zone."""
        found = []
        for zone in self.zones:
            offset = self._offsets[zone]
            visit_s = (self.now_s - offset) // VISIT_S * VISIT_S + offset
            own_s = self._failed.get(zone, visit_s)
            is_created = own_s <= visit_s and self.weather.room(zone, visit_s, spot=True) > 0
            found.append(Outcome(zone, kind, at(max(own_s, visit_s)), is_created))
        return found

    def wait_for_sweep(self, until_s: float) -> None:
        self.now_s = max(self.now_s, -(-until_s // SWEEP_S) * SWEEP_S)

    def _is_named(self, zone: str, full: str) -> bool:
        is_near = zone.rpartition("-")[0] == full.rpartition("-")[0]
        chance = 0.8 if self.weather.room(zone, self.now_s, spot=True) else 0.1
        return is_near and self._rng.random() < chance


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def oracle_s(search: Search) -> float:
    """Return when a search that knows the weather is ready."""
    found = LIMIT_S
    for zone in search.zones:
        at_s = search.now_s
        while at_s < found and search.weather.room(zone, at_s, spot=True) < GANG:
            at_s = search.weather.next_change(zone, at_s)
        found = min(found, at_s)
    return found + 16.5 + READY_S


def now_s(search: Search) -> float:
    """Return when the product is ready."""
    state = _begun(search)
    keys = candidate_keys(state.job.plan)

    def outlook() -> tuple[Prospect, ...]:
        return look_out(keys, search.outcomes(keys[0][0][1]), at(search.now_s))

    if search.lost_in is None:
        state = _after(state, ProvisioningStarted(state.job.job_id, at(search.now_s), outlook=outlook()), search)
    while search.now_s < LIMIT_S:
        job = state.job
        if is_too_early(job, at(search.now_s)) and job.placement.next_at:
            search.wait_for_sweep((job.placement.next_at - START).total_seconds())
        named = search.request(job.zone)
        if named is None:
            return search.now_s
        error = VmsNotCreated(
            job.job_id,
            job.attempt,
            job.zone,
            job.placement.round,
            CapacityErrorKind.STOCKOUT,
            "ZONE_RESOURCE_POOL_EXHAUSTED",
            "no capacity",
            at(search.now_s),
            named,
            outlook=outlook() if may_begin_pass(job) else (),
        )
        state = _after(state, error, search)
    return LIMIT_S


def job_in(zones: tuple[str, ...]) -> Job:
    gpus = Accelerator("nvidia-tesla-a100", 1)
    group = TaskGroup(TaskType.WORKER, GANG, "a2-highgpu-1g", gpus, spot=True)
    program = Program((), "trainer.task", (), None)
    plan = Plan((group,), program, "us-central1", zones, "pytorch", "image", max_running_s=604_800)
    return Job("arena", "{}", "arena", plan, JobState.QUEUED, START)


def _begun(search: Search) -> State:
    """Return the state of the queued job, or of one that ran and has lost all VMs."""
    job, begins_at = job_in(search.zones), at(search.now_s)
    accepted = evolve(None, Decision(Rule.LIFECYCLE, Reason.ACCEPTED, "", AcceptJob(job)), START)
    state = State(job, accepted.replicas, whole=True)
    if search.lost_in is None:
        return state
    running = replace(
        job,
        state=JobState.RUNNING,
        started_at=START,
        placement=replace(job.placement, zone_index=search.zones.index(search.lost_in)),
    )
    lost = (
        replace(replica, state=ReplicaState.REPLACING, vm_generation=2, ready_at=START, ordered_at=begins_at)
        for replica in state.replicas
    )
    return State(running, tuple(lost), whole=True)


def _after(state: State, event: Event, search: Search) -> State:
    now = at(search.now_s)
    return apply(state, evolve(state, judge(state, event, now), now))


def compare(weathers: Sequence[int], climate: Climate, zones: tuple[str, ...], *, lost: bool) -> float:
    """Return the geometric mean of the product's time over the oracle's."""
    logs = []
    for seed in weathers:
        begins_s, lost_in = _loss(seed, climate, zones) if lost else (0.0, None)
        best_s = oracle_s(Search(Weather(seed, climate), zones, lost_in, begins_s)) - begins_s
        took_s = min(now_s(Search(Weather(seed, climate), zones, lost_in, begins_s)), LIMIT_S) - begins_s
        logs.append(log(max(took_s, 1.0) / best_s))
    return exp(sum(logs) / len(logs))


def _loss(seed: int, climate: Climate, zones: tuple[str, ...]) -> tuple[float, str]:
    """Return when and where a gang that found capacity loses all of it."""
    weather = Weather(seed, climate)
    began_s = oracle_s(Search(weather, zones)) - 16.5 - READY_S
    zone = max(zones, key=lambda zone: weather.room(zone, began_s, spot=True))
    lost_s = began_s
    while lost_s < LIMIT_S / 2 and weather.room(zone, lost_s, spot=True) >= GANG:
        lost_s = weather.next_change(zone, lost_s)
    return min(lost_s, LIMIT_S / 2), zone


def main() -> None:
    """Print a table of all climates."""
    weathers = range(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    sys.stdout.write(f"| {len(weathers)} weathers per cell | climate | now |\n| --- | --- | --- |\n")
    for label, zones in (("one region", ONE_REGION), ("three regions", THREE_REGIONS)):
        for lost in (False, True):
            for climate in Climate:
                found = compare(weathers, climate, zones, lost=lost)
                what = "gang that lost all VMs" if lost else "start"
                sys.stdout.write(f"| {what}, {label} | {climate} | {found:.2f} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
