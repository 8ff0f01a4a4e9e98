"""Weather of capacity is seeded, and like the records that it is made after; the arena's gates hold."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from bench.arena import ONE_REGION, compare
from trainmaster.simulator.weather import Alternating, Climate, Weather

ZONE = "us-central1-a"
HOUR_S = 3600.0


def availability(climate: Climate, *, spot: bool = True, later_s: float = 0.0) -> float:
    weathers = [Weather(seed, climate) for seed in range(200)]
    return mean(weather.room(ZONE, later_s, spot=spot) > 0 for weather in weathers)


def test_equal_seeds_give_equal_weather_in_whatever_order_it_is_asked_for() -> None:
    moments = [hour * HOUR_S / 4 for hour in range(100)]
    one, other = Weather(7, Climate.SCARCE), Weather(7, Climate.SCARCE)
    forwards = [one.room(zone, at_s, spot=True) for zone in ONE_REGION for at_s in moments]
    backwards = [other.room(zone, at_s, spot=True) for zone in ONE_REGION[::-1] for at_s in moments[::-1]]
    assert forwards == backwards[::-1]
    assert 0 < sum(room > 0 for room in forwards) < len(forwards)
    assert forwards != [
        Weather(8, Climate.SCARCE).room(zone, at_s, spot=True) for zone in ONE_REGION for at_s in moments
    ]


def test_room_changes_only_when_a_process_does() -> None:
    weather = Weather(3, Climate.MILD)
    at_s = 0.0
    for _ in range(50):
        until_s = weather.next_change(ZONE, at_s)
        assert until_s > at_s
        assert weather.room(ZONE, at_s, spot=True) == weather.room(ZONE, (at_s + until_s) / 2, spot=True)
        at_s = until_s


def test_climates_become_scarcer_and_on_demand_has_more_room_than_spot() -> None:
    spot = [availability(climate) for climate in Climate]
    assert spot == sorted(spot, reverse=True)
    assert 0.54 < spot[0] < 0.74, "records of Spot VMs: 0.64"
    assert availability(Climate.SCARCE, spot=False) > spot[1] + 0.1


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_process_is_on_in_its_share_of_the_time_from_the_beginning_on(share: float) -> None:
    for at_s in (0.0, 100 * HOUR_S):
        generators = [random.Random(seed) for seed in range(800)]  # noqa: S311 - weather keeps no secret
        states = [Alternating(rng, share, 1).is_on(at_s) for rng in generators]
        assert mean(states) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("climate", [Climate.MILD, Climate.SCARCE])
def test_gang_that_lost_all_its_vms_is_ready_soon_after_the_first_zone_has_room(climate: Climate) -> None:
    """The bound is loose: the figures of many weathers are in docs/capacity.md."""
    assert compare(range(12), climate, ONE_REGION, lost=True) < 1.5


def test_start_takes_little_longer_than_with_knowledge_of_the_weather() -> None:
    assert compare(range(12), Climate.MILD, ONE_REGION, lost=False) < 1.2
