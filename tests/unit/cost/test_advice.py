"""Measured rates, the checkpoint interval, and the advice without enough data."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.cost_jobs import a_job_with_three_losses, start
from tests.support.world import World
from trainmaster.core.reporting.lost_work import losses
from trainmaster.core.reporting.phases import replica_spans
from trainmaster.cost.advice import checkpoint_advice, spot_rate_problem
from trainmaster.cost.checkpoint_interval import (
    advise_interval,
    daly_interval,
    poisson_limits,
    waste,
    young_interval,
)
from trainmaster.cost.checkpoint_times import CheckpointTimes, Listing
from trainmaster.cost.measured_rates import MeasuredRates, measure
from trainmaster.cost.sku import Unknown
from trainmaster.ports import CreatedObject
from trainmaster_local.memory.objects import MemoryObjects

HOUR_S = 3600.0
RATES = MeasuredRates(
    interruptions=4,
    running_s=40 * HOUR_S,
    restart_s=180.0,
    checkpoints=50,
    checkpoint_s=HOUR_S,
    save_s=20.0,
    spot_hours=120.0,
    spot_losses=4,
)
LISTING = Listing("gs://bucket/digits", objects=(), is_complete=True)


def measured(world: World, objects: MemoryObjects) -> MeasuredRates:
    spans = replica_spans(world.history)
    listing = CheckpointTimes(lambda: objects).listing(world.job, world.now)
    assert isinstance(listing, Listing)
    return measure(world.job, spans, losses(world.job.plan, spans), listing.checkpoints, world.now)


def test_rates_of_a_job_are_those_of_its_history() -> None:
    objects = MemoryObjects()
    rates = measured(a_job_with_three_losses(objects, every_s=600), objects)
    assert rates.interruptions == 3, "the failures of both peers belong to the loss"
    assert rates.running_s == pytest.approx(12 * HOUR_S, rel=0.02)
    assert rates.checkpoint_s == pytest.approx(600, abs=1)
    assert rates.save_s == 5
    assert rates.checkpoints == 12 * HOUR_S / 600
    assert rates.restart_s == pytest.approx(126, abs=5)
    assert rates.spot_losses == 3
    vms = 3
    assert rates.spot_hours == pytest.approx(12 * vms, rel=0.03)
    assert rates.mean_time_between_s == pytest.approx(12 / 3 * HOUR_S, rel=0.02)


def test_rates_of_a_job_without_losses_and_checkpoints_are_unknown() -> None:
    world = World()
    start(world)
    world.wait(HOUR_S)
    rates = measured(world, MemoryObjects())
    assert rates.interruptions == 0
    assert rates.mean_time_between_s is None
    assert (
        rates.checkpoint_s is rates.save_s is rates.restart_s is rates.spot_losses_per_hour is None
    )


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (
            [
                "x/ckpt-5.data",
                "x/ckpt-5.index",
                "x/checkpoint",
                "x/ckpt-10.data",
                "x/ckpt-10.index",
            ],
            2,
        ),
        (["x/epoch_1/model.pt", "x/epoch_1/optim.pt", "x/epoch_2/model.pt"], 2),
        (["x/run7/step_5.pt", "x/run7/step_6.pt", "x/run7/step_7.pt"], 3),
        (["x/model.h5", "x/optimizer.h5"], 1),
    ],
)
def test_objects_of_one_checkpoint_are_recognized_by_their_names(
    names: list[str], count: int
) -> None:
    world = World()
    start(world)
    created = [
        CreatedObject(name, world.now + timedelta(seconds=number), 1)
        for number, name in enumerate(names)
    ]
    assert (
        measure(world.job, spans=(), losses=(), checkpoints=created, now=world.now).checkpoints
        == count
    )


def test_checkpoints_of_an_earlier_job_in_the_same_directory_do_not_count() -> None:
    world = World()
    start(world)
    created = [CreatedObject("x/ckpt-1", world.job.created_at - timedelta(seconds=1), 1)]
    assert (
        measure(world.job, spans=(), losses=(), checkpoints=created, now=world.now).checkpoints == 0
    )


def test_young_interval_is_the_known_formula() -> None:
    assert young_interval(20, 36000) == math.sqrt(2 * 20 * 36000) == 1200


@pytest.mark.parametrize(("save_s", "between_s"), [(5, 3600), (60, 86400), (300, 7200)])
def test_daly_interval_wastes_least(save_s: float, between_s: float) -> None:
    best = daly_interval(save_s, between_s)
    assert waste(best, save_s, between_s, restart_s=0) <= min(
        waste(best * factor, save_s, between_s, restart_s=0) for factor in (0.5, 0.75, 1.35, 2)
    )


def test_daly_interval_of_slow_saving_is_the_time_between_interruptions() -> None:
    assert daly_interval(1000, 400) == 400


@pytest.mark.parametrize(
    ("count", "low", "high"), [(3, 1.10, 6.68), (10, 6.22, 15.41), (100, 87.4, 114.1)]
)
def test_limits_of_a_rate_are_those_of_the_poisson_distribution(
    count: int, low: float, high: float
) -> None:
    assert poisson_limits(count) == pytest.approx((low, high), rel=0.01)


def test_interval_is_uncertain_with_few_interruptions_and_certain_with_many() -> None:
    few, many = (
        advise_interval(save_s=20, running_s=40 * HOUR_S, interruptions=4),
        advise_interval(save_s=20, running_s=1000 * HOUR_S, interruptions=100),
    )
    assert few.shortest_s < few.interval_s < few.longest_s
    assert few.interval_s == pytest.approx(many.interval_s)
    assert many.longest_s / many.shortest_s < 1.2 < few.longest_s / few.shortest_s


def test_checkpoint_advice_names_interval_its_limits_and_the_gain() -> None:
    advice = checkpoint_advice(RATES, LISTING, save_s=None)
    assert "save every 19.8 min" in advice.text
    assert "instead of every 1.0 h" in advice.text
    assert "4 interruptions were seen" in advice.text
    assert advice.missing == ""


def test_save_time_of_the_user_counts_more_than_the_measured_one() -> None:
    assert (
        "save every 59.6 min"
        in checkpoint_advice(replace(RATES, checkpoint_s=60.0), LISTING, save_s=190.0).text
    )


def test_good_interval_is_kept() -> None:
    assert checkpoint_advice(
        replace(RATES, checkpoint_s=1200.0), LISTING, save_s=None
    ).text.startswith("keep saving")


@pytest.mark.parametrize(
    ("rates", "missing"),
    [
        (replace(RATES, interruptions=2), "interruptions: 2 in 40.0 hours"),
        (replace(RATES, interruptions=0), "interruptions: 0"),
        (replace(RATES, save_s=None), "--save-time"),
    ],
)
def test_without_enough_data_there_is_no_advice_about_checkpoints(
    rates: MeasuredRates, missing: str
) -> None:
    advice = checkpoint_advice(rates, LISTING, save_s=None)
    assert advice.text == ""
    assert missing in advice.missing


@pytest.mark.parametrize("listing", [Unknown("the job has no jobDir"), None])
def test_without_checkpoints_the_present_interval_is_unknown(listing: Unknown | None) -> None:
    advice = checkpoint_advice(replace(RATES, checkpoint_s=None), listing, save_s=None)
    assert "How often the job saves now is not known" in advice.text


@pytest.mark.parametrize(
    ("rates", "problem"),
    [
        (RATES, ""),
        (replace(RATES, spot_losses=0), ""),
        (replace(RATES, spot_hours=0.0), "the job had none"),
        (replace(RATES, spot_hours=2.0, spot_losses=1), "1 losses in 2.0 hours are too few"),
    ],
)
def test_rate_of_spot_losses_needs_losses_or_hours(rates: MeasuredRates, problem: str) -> None:
    assert problem in spot_rate_problem(rates)
    assert bool(spot_rate_problem(rates)) is bool(problem)
