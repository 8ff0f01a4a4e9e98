"""Measure how fast searches find capacity, in seeded weather: `python -m bench.arena [[FIRST]
END]`.

*Weather* is which zone has room for how many machines at what time; a *climate* says how scarce it
is. Each of the following *arms* searches in the same weather:

    oracle           takes the first candidate that has room
    Trainmaster      the rules of the product, with Google's advice; also without it, and with the
                     opposite of it
    cheapest first   the rule of SkyPilot 0.14.1: by price, each once; then again, after a pause of
                     one to five minutes
    one region       the rules of the product for a job without alternatives

A job has 36 candidates: two machines, three zones in each of three regions, Spot and on demand. All
times count until the gang is ready, and are cut at 48 hours. The rules are the real ones: each
capacity error is judged and folded into the job's state. No cloud is called, and no time passes.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from math import ceil, exp, log, nan
from statistics import fmean
from typing import Final

from bench.report import PLOTTER, ROOT
from trainmaster.core.actions import AcceptJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import CapacityErrorKind, Event, ProvisioningStarted, VmsNotCreated
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.capacity import Outcome, Prospect, candidate_keys, machine_kind
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.plan import BootImage, Limits, Plan
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, Program, TaskGroup
from trainmaster.core.model.where import Candidate, Option, Where
from trainmaster.core.rules.capacity_backoff import is_too_early
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.outlook import estimate_prospects
from trainmaster.core.rules.search import may_begin_pass
from trainmaster.core.timeouts import ADVICE_KEPT
from trainmaster_local.simulator.weather import Climate, Weather

START: Final = datetime(2026, 11, 21, 3, tzinfo=UTC)
GANG: Final = 4
"""VMs that the job needs at the same time, in one zone."""
BAND: Final = 1.15
"""Prices whose ratio is at most this have one rank, as `trainmaster.cost` ranks candidates."""
LIMIT_S: Final = 48 * 3600.0
"""Time after which a search is given up."""
SWEEP_S: Final = 60.0
"""Interval of the sweep, which continues a search that pauses."""
READY_S: Final = 75.0
"""From the creation of a VM to its agent's report."""
CREATION_S: Final = (8.0, 25.0)
"""Shortest and longest time that Google needs to create the VMs."""
REFUSED_AT_ONCE_SHARE: Final = 0.2
"""Share of the refused requests that Google refuses at once."""
REFUSED_AT_ONCE_S: Final = 1.0
REFUSAL_MEDIAN_S: Final = 8
REFUSAL_SIGMA: Final = 0.8
"""Standard deviation of the logarithm of the other refusals' times."""
REFUSAL_MAX_S: Final = 120.0
FIRST_PAUSE_S: Final = 60.0
PAUSE_GROWTH: Final = 1.6
PAUSE_MAX_S: Final = 300.0
"""SkyPilot's pauses between two passes: the first, the factor of each further one, the longest."""
VISIT_S: Final = 7200.0
"""Other jobs request VMs of each candidate every two hours."""
ZONES: Final = (
    "us-central1-a",
    "us-central1-b",
    "us-central1-c",
    "us-east1-b",
    "us-east1-c",
    "us-east1-d",
    "us-west1-a",
    "us-west1-b",
    "us-west1-c",
)
ONE_REGION: Final = ZONES[:3]
GROUPS: Final = tuple(
    TaskGroup(TaskType.WORKER, GANG, machine_type, Accelerator(accelerator, 1), purchase=purchase)
    for purchase in (Purchase(Spot()), Purchase())
    for machine_type, accelerator in (
        ("a2-highgpu-1g", "nvidia-tesla-a100"),
        ("g2-standard-4", "nvidia-l4"),
    )
)


@dataclass(frozen=True)
class Market:
    """A job, and the price of each of its candidates."""

    plan: Plan
    prices: tuple[float, ...]

    @cached_property
    def keys(self) -> list[list[tuple[str, str]]]:
        """Return what each candidate requests: pairs of zone and kind of machine."""
        return candidate_keys(self.plan)

    @cached_property
    def pools(self) -> tuple[tuple[str, TaskGroup], ...]:
        """Return zone and VMs of each candidate."""
        return tuple(
            (zone, self.plan.at(number).groups[0])
            for number, zone in enumerate(self.plan.where.zones)
        )


@cache
def one_region() -> Market:
    """Return a job without alternatives."""
    plan = Plan(
        GROUPS[:1],
        Program(package_uris=(), python_module="trainer.task", args=(), job_dir=None),
        Where("us-central1", ONE_REGION),
        BootImage("image", "pytorch"),
        Limits(max_running_s=604_800),
    )
    return Market(plan, (1.0,) * len(ONE_REGION))


def anywhere(seed: int) -> Market:
    """Return a job with alternatives (`anyOf`).

    Spot VMs cost 28 to 45 % of the others; regions differ by 20 %. Prices have no unit: only their
    ratios count.
    """
    rng = random.Random(f"{seed}/prices")  # noqa: S311 - as in weather
    regions = list(dict.fromkeys(_region(zone) for zone in ZONES))
    factors = {region: rng.uniform(1, 1.2) for region in regions}
    machines = {
        group.machine_type: (rng.uniform(1, 1.5), rng.uniform(0.28, 0.45)) for group in GROUPS
    }
    prices = []
    for group in GROUPS:
        base, spot_share = machines[group.machine_type]
        share = spot_share if group.purchase.price.is_preemptible else 1
        prices += [base * share * factors[_region(zone)] for zone in ZONES]
    ranks = [1 + int(log(price / min(prices), BAND)) for price in prices]
    # With Z zones, candidate n is option n // Z in zone n % Z: `where.zones` has all zones for each
    # option.
    candidates = tuple(Candidate(number // len(ZONES), rank) for number, rank in enumerate(ranks))
    options = tuple(Option((group,)) for group in GROUPS)
    plan = one_region().plan
    where = replace(plan.where, zones=ZONES * len(GROUPS), options=options, candidates=candidates)
    plan = replace(plan, where=where)
    return Market(plan, tuple(prices))


def _region(zone: str) -> str:
    """Return the region of a zone: `us-east1` of `us-east1-b`."""
    return zone.rpartition("-")[0]


@dataclass
class Search:
    """One search for capacity.

    Each arm gets one of its own, with the same weather and the same answers of Google.
    """

    weather: Weather
    market: Market
    opinion: Callable[[float], float] | None = float
    """Converts the chance of capacity in Google's advice, from 0 to 1, to the chance that the
    search uses; `float` changes nothing. None: the search has no advice.
    """
    now_s: float = 0.0
    price: float | None = None
    """Price of the candidate that was found, divided by that of the cheapest one with capacity;
    None: none was found.
    """
    _failed: dict[int, float] = field(default_factory=dict)
    """Candidate → the time at which the job's own request for it failed last, in seconds."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.weather.seed}/answers")  # noqa: S311 - as in weather
        self._offsets = [self._rng.uniform(0, VISIT_S) for _ in self.market.pools]

    def room(self, number: int, at_s: float) -> int:
        """Return how many VMs of a candidate could be created at that time."""
        zone, group = self.market.pools[number]
        return self.weather.room(
            zone, at_s, group.machine_type, spot=group.purchase.price.is_preemptible
        )

    def request(self, number: int) -> tuple[str, ...] | None:
        """Request the gang of a candidate.

        Return None if it is ready, else the zones that Google's error names as available.
        """
        rng = self._rng
        zone, group = self.market.pools[number]
        if self.room(number, self.now_s) >= GANG:
            prices = self.market.prices
            available = (
                price
                for candidate, price in enumerate(prices)
                if self.room(candidate, self.now_s) >= GANG
            )
            self.price = prices[number] / min(available)
            self.now_s += rng.uniform(*CREATION_S) + READY_S
            return None
        named = self.weather.named(
            zone,
            self.market.plan.where.zones,
            self.now_s,
            group.machine_type,
            spot=group.purchase.price.is_preemptible,
        )
        self.now_s += _refusal_s(rng)
        self._failed[number] = self.now_s
        return named

    def outlook(self) -> tuple[Prospect, ...]:
        """Return what is known when a pass begins."""
        return estimate_prospects(self.market.keys, self.outcomes(), at(self.now_s), self.advice())

    def outcomes(self) -> list[Outcome]:
        """Return what all jobs have found, the latest of each candidate."""
        found = []
        for number, (zone, group) in enumerate(self.market.pools):
            visit_s = self._last_visit_s(number)
            own_s = self._failed.get(number, visit_s)
            # Other jobs ask for one machine, and not for a gang.
            is_created = own_s <= visit_s and self.room(number, visit_s) > 0
            found.append(
                Outcome(
                    zone,
                    machine_kind(group, group.purchase.price),
                    at(max(own_s, visit_s)),
                    is_created,
                )
            )
        return found

    def _last_visit_s(self, number: int) -> float:
        """Return when another job last requested this candidate: each is visited every `VISIT_S`
        seconds.
        """
        offset_s = self._offsets[number]
        return (self.now_s - offset_s) // VISIT_S * VISIT_S + offset_s

    def advice(self) -> dict[tuple[str, str], float]:
        """Return Google's advice, which all jobs share for `ADVICE_KEPT`."""
        kept_s = ADVICE_KEPT.total_seconds()
        asked_s = self.now_s // kept_s * kept_s
        opinion = self.opinion
        if opinion is None:
            return {}
        return {
            (zone, machine_kind(group, group.purchase.price)): opinion(
                self.weather.advice(zone, GANG, asked_s, group.machine_type)
            )
            for zone, group in self.market.pools
            if group.purchase.price.has_advice
        }


def at(seconds: float) -> datetime:
    """Return the time of a search in seconds as a date."""
    return START + timedelta(seconds=seconds)


def _refusal_s(rng: random.Random) -> float:
    """Return the time that a request takes until Google refuses it, in seconds.

    One of five is refused at once; the others take eight seconds in the median, and two minutes at
    most. These are assumptions: Google documents no such times.
    """
    if rng.random() < REFUSED_AT_ONCE_SHARE:
        return REFUSED_AT_ONCE_S
    return min(rng.lognormvariate(log(REFUSAL_MEDIAN_S), REFUSAL_SIGMA), REFUSAL_MAX_S)


def oracle_s(search: Search) -> float:
    """Return when a search that knows the weather is ready, in seconds."""
    earliest_s = LIMIT_S
    for number, (zone, group) in enumerate(search.market.pools):
        at_s = 0.0
        while at_s < earliest_s and search.room(number, at_s) < GANG:
            at_s = search.weather.next_change(zone, at_s, group.machine_type)
        earliest_s = min(earliest_s, at_s)
    mean_creation_s = sum(CREATION_S) / 2
    return earliest_s + mean_creation_s + READY_S


def cheapest_first(search: Search) -> None:
    """Search as SkyPilot does: pauses between two passes grow by 60 %, to five minutes at most.

    Its first pause is a minute. Source: SkyPilot 0.14.1.
    """
    prices = search.market.prices
    pause_s = FIRST_PAUSE_S
    order = sorted(range(len(prices)), key=prices.__getitem__)
    while search.now_s < LIMIT_S and not any(search.request(number) is None for number in order):
        search.now_s += pause_s
        pause_s = min(PAUSE_GROWTH * pause_s, PAUSE_MAX_S)


def trainmaster(search: Search) -> None:
    """Search as the product does."""
    job = job_of(search.market)
    accepted = evolve(
        state=None,
        decision=Decision(Rule.LIFECYCLE, Reason.ACCEPTED, text="", action=AcceptJob(job)),
        now=START,
    )
    state = State(job, accepted.replicas, whole=True)  # all replicas of the job are in it
    state = _after(state, ProvisioningStarted(job.job_id, START, outlook=search.outlook()), search)
    while search.now_s < LIMIT_S:
        job = state.job
        if is_too_early(job, at(search.now_s)) and job.placement.next_at:
            due_s = (job.placement.next_at - START).total_seconds()
            # Only the next sweep acts on the time.
            search.now_s = max(search.now_s, ceil(due_s / SWEEP_S) * SWEEP_S)
        named = search.request(job.placement.zone_index)
        if named is None:
            return
        error = VmsNotCreated(
            job.job_id,
            job.attempt,
            job.zone,
            job.placement.round,
            error_kind=CapacityErrorKind.STOCKOUT,
            code="ZONE_RESOURCE_POOL_EXHAUSTED",
            message="no capacity",
            at=at(search.now_s),
            zones_available=named,
            outlook=search.outlook() if may_begin_pass(job) else (),
        )
        state = _after(state, error, search)


def job_of(market: Market) -> Job:
    """Return the job as it is accepted."""
    return Job("arena", "{}", "arena", market.plan, JobState.QUEUED, START)


def _after(state: State, event: Event, search: Search) -> State:
    """Return the state after the event, as the rules judge it now."""
    now = at(search.now_s)
    return apply(state, evolve(state, judge(state, event, now), now))


ARMS: Final[dict[str, tuple[Callable[[Search], None], Callable[[float], float] | None]]] = {
    "Trainmaster": (trainmaster, float),
    "without advice": (trainmaster, None),
    "advice inverted": (trainmaster, lambda chance: 1 - chance),
    "cheapest first": (cheapest_first, None),
    "one region": (trainmaster, float),
}
"""Name of the arm → how it searches, and its `Search.opinion`."""


def compare(weathers: Iterable[int], climate: Climate) -> dict[str, tuple[float, float]]:
    """Return per arm the geometric means of its time over the oracle's, and of its price over the
    cheapest with room, where it found anything.

    The oracle searches in all regions, also beside the arm that has only one.
    """
    found: dict[str, list[tuple[float, float | None]]] = {arm: [] for arm in ARMS}
    for seed in weathers:
        weather = Weather(seed, climate)
        market = anywhere(seed)
        best_s = oracle_s(Search(weather, market))
        for arm, (search_in, opinion) in ARMS.items():
            search = Search(weather, one_region() if arm == "one region" else market, opinion)
            search_in(search)
            log_price = None if search.price is None else log(search.price)
            found[arm].append((log(min(search.now_s, LIMIT_S) / best_s), log_price))
    return {arm: _geometric_means(logs) for arm, logs in found.items()}


def _geometric_means(logs: list[tuple[float, float | None]]) -> tuple[float, float]:
    """Return the means of the times and prices whose logarithms these are.

    The price is NaN if nothing was found in any weather.
    """
    times = fmean(log_time for log_time, _ in logs)
    log_prices = [log_price for _, log_price in logs if log_price is not None]
    return exp(times), exp(fmean(log_prices)) if log_prices else nan


def main() -> None:
    """Print a table of all climates, and draw it if `make bench-peers` has installed what draws."""
    weathers = range(*map(int, sys.argv[1:] or ["1000"]))
    rows = []
    first = weathers[0]
    last = weathers[-1]
    sys.stdout.write(
        f"| weathers {first} to {last} | {' | '.join(ARMS)} |\n{'| --- ' * (len(ARMS) + 1)}|\n"
    )
    for climate in Climate:
        found = compare(weathers, climate)
        cells = " | ".join(f"{time:.3g}, {price:.2f}" for time, price in found.values())
        sys.stdout.write(f"| {climate} | {cells} |\n")
        sys.stdout.flush()
        # Its waits are tens of times longer: beside them, the others could not be told apart.
        values = {arm: [time] for arm, (time, _) in found.items() if arm != "one region"}
        rows.append({"name": f"capacity: {climate}", "values": values})
    if PLOTTER.exists():
        data = ROOT / "build" / "arena.json"
        data.write_text(json.dumps({"rows": rows}), encoding="utf-8")
        subprocess.run(
            [PLOTTER, ROOT / "bench/peers/programs/plots.py", data, ROOT / "docs/images"],
            check=True,
        )


if __name__ == "__main__":
    main()
