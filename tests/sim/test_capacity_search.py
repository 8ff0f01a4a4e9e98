"""The real flows request zones and machines in the order in which the arena's searches do.

The arena (bench/arena.py) compares ways to search for capacity in weather: capacity that changes
with a seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench import arena
from tests.support.weather import PlainSearch, WeatherAdvisor, WeatherFleet, search
from tests.support.world import World
from trainmaster_local.simulator.weather import Climate, Weather

LIMIT_S = 2 * 3600.0
ALL = pytest.param(
    range(2, 500),
    marks=[
        pytest.mark.heavy(
            fact="flows search for capacity as the arena does",
            quick="the same test with two weathers of each climate",
        ),
        pytest.mark.timeout(3600),
    ],
)


@pytest.mark.parametrize("seeds", [range(2), ALL], ids=["some", "all"])
@pytest.mark.parametrize("has_alternatives", [False, True])
@pytest.mark.parametrize("climate", [Climate.SCARCE, Climate.FAMINE])
def test_flows_request_what_the_arena_requests_until_the_gang_is_created(
    seeds: Sequence[int], climate: Climate, *, has_alternatives: bool
) -> None:
    lengths = []
    for seed in seeds:
        market = arena.anywhere(seed) if has_alternatives else arena.one_region()
        expected = PlainSearch(Weather(seed, climate), market, limit_s=LIMIT_S)
        arena.trainmaster(expected)
        weather = Weather(seed, climate)
        fleet = WeatherFleet(weather=weather)
        job = arena.job_of(market)
        fleet.world = world = World(job_id=job.job_id, fleet=fleet, advisor=WeatherAdvisor(weather))
        search(world, job, LIMIT_S)
        assert (
            fleet.requested[: len(expected.requested)] == expected.requested[: len(fleet.requested)]
        )
        assert abs(len(fleet.requested) - len(expected.requested)) <= 1
        lengths.append(len(expected.requested))
    assert max(lengths) > len(arena.ONE_REGION), (
        "some searches take several passes, or go to other regions"
    )
