"""Cost of whole jobs, their reports, and how they are shown."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.support.cost_jobs import (
    JOB_DIR,
    a_job_with_three_losses,
    finish,
    preempt,
    save_checkpoint,
    start,
)
from tests.support.jobs import a_spec, a_tuning_spec
from tests.support.world import World
from tests.unit.cost.price_lists import price_list
from trainmaster.console.cost_bar import LABEL_WIDTH, ORDER, WIDTH, draw_cost
from trainmaster.core.model.purchase import OnDemand, Spot
from trainmaster.core.reporting.phases import PAID, Phase
from trainmaster.cost.checkpoint_times import OBJECTS_MAX, CheckpointTimes
from trainmaster.cost.job_cost import JobCost
from trainmaster.cost.machine_price import machine_price
from trainmaster.cost.report import CostReport, CostSources, cost_report
from trainmaster.cost.sku import Unknown
from trainmaster.ports import CreatedObject, ObjectTimes
from trainmaster.presentation.cost_view import cost_view, money_words
from trainmaster.presentation.machine_time import final_sentence, report_lines, report_view
from trainmaster.presentation.ml_units import usage
from trainmaster_local.memory.objects import MemoryObjects


class CountingObjects:
    """Counts the listings."""

    def __init__(self, objects: ObjectTimes) -> None:
        self._objects = objects
        self.calls = 0

    def created(self, directory: str, limit: int) -> tuple[CreatedObject, ...]:
        self.calls += 1
        return self._objects.created(directory, limit)


def report_of(world: World, objects: ObjectTimes | None = None, **sources: Any) -> CostReport:
    times = CheckpointTimes(lambda: objects) if objects else None
    found = cost_report(
        world.history, world.ledger, world.now, CostSources(price_list, times, **sources)
    )
    assert found is not None
    return found


def n1_price(*, is_spot: bool, world: World) -> Decimal:
    plan = world.job.plan
    bought = Spot() if is_spot else OnDemand()
    price = machine_price(plan, plan.groups[0], price_list(), at=bought)
    assert isinstance(price, Decimal)
    return price


@pytest.mark.parametrize("spot", [False, True])
def test_cost_of_a_job_is_its_paid_time_at_the_price_of_its_machines(spot: bool) -> None:
    world = World()
    start(world, spot=spot)
    world.wait(3600)
    finish(world)
    report = report_of(world)
    assert isinstance(report.cost, JobCost)
    hours = Decimal(str(report.goodput.paid_s)) / 3600
    assert report.cost.total == pytest.approx(hours * n1_price(is_spot=spot, world=world))
    assert set(report.cost.by_attempt[1]) == {Phase.SETTING_UP, Phase.HELD, Phase.RUNNING}
    assert report.listing is None, "nothing was lost, so nothing is listed"


def test_replica_that_changes_to_an_on_demand_vm_is_charged_at_both_prices() -> None:
    world = World()
    world.submit(
        {**a_spec(workerCount=1), "trainmaster": {"spot": {"use": "workers", "onDemandAfter": 1}}}
    )
    world.deliver()
    world.report_all_ready()
    world.wait(3600)
    world.send("maintenance", world.replicas[1].replica_id, cause="preemption")
    world.deliver()
    world.report_all_ready()
    world.wait(3600)
    cost = report_of(world).cost
    assert isinstance(cost, JobCost)
    spot, on_demand = n1_price(is_spot=True, world=world), n1_price(is_spot=False, world=world)
    assert cost.total == pytest.approx(2 * on_demand + spot + on_demand, rel=Decimal("0.01"))


def test_cost_without_a_price_says_why() -> None:
    world = World()
    start(world)
    world.wait(60)
    found = cost_report(
        world.history,
        world.ledger,
        world.now,
        CostSources(lambda: Unknown("there is no price list")),
    )
    assert found is not None
    assert found.cost == Unknown("there is no price list")
    assert "price not known: there is no price list" in "\n".join(report_lines(found))
    assert cost_view(found.cost) == {"notKnown": "there is no price list"}


def test_tuning_job_has_no_report_because_its_trials_have() -> None:
    world = World()
    world.submit(a_tuning_spec())
    world.deliver()
    assert cost_report(world.history, world.ledger, world.now, CostSources(price_list)) is None


def test_preemption_forty_seconds_after_a_checkpoint_costs_forty_seconds_of_each_machine() -> None:
    objects, world = MemoryObjects(), World()
    start(world)
    world.wait(1000)
    save_checkpoint(objects, world.now - timedelta(seconds=5), "ckpt-1")
    world.wait(39)
    preempt(world)
    report = report_of(world, objects)
    lost_s = 40 * len(world.replicas)
    assert report.goodput.lost.at_most_s == report.goodput.lost.at_least_s == lost_s
    assert isinstance(report.cost, JobCost)
    assert report.cost.lost_at_most == pytest.approx(
        Decimal(lost_s) / 3600 * n1_price(is_spot=False, world=world)
    )
    assert (
        "0.03 machine-hours by 3 losses (estimate); from the times of objects in gs://bucket/digits"
        in "\n".join(report_lines(report))
    )


def test_phases_sum_to_paid_and_counted_time_and_equal_the_usage() -> None:
    world = a_job_with_three_losses(MemoryObjects())
    report = report_of(world)
    view = report_view(report)
    machine_time = view["machineTime"]
    for attempt in machine_time["attempts"]:
        paid = sum(
            seconds for phase, seconds in attempt["machineSeconds"].items() if Phase(phase) in PAID
        )
        assert paid == pytest.approx(attempt["paid"], rel=0.01)
    counted = sum(sum(attempt["counted"].values()) for attempt in machine_time["attempts"])
    assert counted / 3600 == pytest.approx(usage(world.job, world.now).machine_hours, rel=0.01)
    assert sum(
        Decimal(amount) for amount in view["cost"]["attempts"][0]["phases"].values()
    ) == pytest.approx(Decimal(view["cost"]["amount"]), abs=Decimal("0.00001"))


def test_report_of_a_job_lists_its_directory_once_and_only_after_a_loss() -> None:
    objects = CountingObjects(MemoryObjects())
    times = CheckpointTimes(lambda: objects)
    world = World()
    start(world)
    for expected in (0, 1, 1):
        cost_report(world.history, world.ledger, world.now, CostSources(price_list, times))
        assert objects.calls == expected
        if not expected:
            preempt(world)


def test_directory_of_a_live_job_is_listed_again_after_a_minute_that_of_an_ended_never() -> None:
    objects, now_s = CountingObjects(MemoryObjects()), 0.0
    times = CheckpointTimes(lambda: objects, timer=lambda: now_s)
    world = World()
    start(world)
    times.listing(world.job, world.now)
    now_s = 59
    times.listing(world.job, world.now)
    assert objects.calls == 1
    now_s = 61
    times.listing(world.job, world.now)
    assert objects.calls == 2
    finish(world)
    world.wait(3600)
    now_s = 1000
    times.listing(world.job, world.now)
    now_s = 100_000
    times.listing(world.job, world.now)
    assert objects.calls == 3


def test_more_objects_than_are_listed_leave_the_lower_bound_open() -> None:
    class Many:
        def created(self, directory: str, limit: int) -> tuple[CreatedObject, ...]:
            assert (directory, limit) == (JOB_DIR, OBJECTS_MAX)
            return (CreatedObject("digits/ckpt", world.now - timedelta(seconds=240), 1),) * limit

    world = World()
    start(world)
    world.wait(1000)
    preempt(world)
    report = report_of(world, Many())
    assert report.goodput.lost.at_least_s == 0
    assert report.goodput.lost.at_most_s > 0
    assert "has more than were listed" in "\n".join(report_lines(report))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (a_spec(jobDir=None), "the job has no jobDir"),
        (a_spec(jobDir="gs://secret/x"), "you may not list gs://secret/x"),
    ],
)
def test_directory_that_cannot_be_listed_leaves_the_bounds(
    spec: dict[str, Any], reason: str
) -> None:
    objects, world = MemoryObjects(), World()
    objects.forbidden_buckets.add("secret")
    spec["trainingInput"] = {
        name: value for name, value in spec["trainingInput"].items() if value is not None
    }
    world.submit(spec)
    world.deliver()
    world.report_all_ready()
    world.wait(100)
    preempt(world)
    report = report_of(world, objects)
    assert report.goodput.lost.at_least_s == 0 < report.goodput.lost.at_most_s
    assert reason in "\n".join(report_lines(report))


def test_final_sentence_names_hours_goodput_and_cost() -> None:
    world = a_job_with_three_losses(MemoryObjects())
    sentence = final_sentence(report_of(world))
    assert "machine-hours paid, goodput" in sentence
    assert "USD at list prices of 2026-11-20" in sentence


def test_bar_has_the_length_of_the_paid_time() -> None:
    objects = MemoryObjects()
    report = report_of(a_job_with_three_losses(objects), objects)
    drawn = draw_cost(report.goodput)
    assert drawn is not None
    assert set(ORDER) == PAID
    (bar,) = drawn.bars
    right_margin = 8.0
    drawn_width = sum(segment.width for segment in bar.segments)
    assert drawn_width == pytest.approx(WIDTH - LABEL_WIDTH - right_margin, abs=0.5)
    assert {segment.kind for segment in bar.segments} >= {"running", "setting up"}
    assert {"lost work", "perhaps lost"} & {segment.kind for segment in bar.segments}
    assert all(segment.x + segment.width <= drawn.width for segment in bar.segments)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        ("0", "0.00 USD"),
        ("0.00001", "less than 0.0001 USD"),
        ("0.0312", "0.0312 USD"),
        ("1", "1.00 USD"),
        ("1234.5", "1234.50 USD"),
    ],
)
def test_amounts_are_rounded_but_never_to_nothing(amount: str, words: str) -> None:
    assert money_words(Decimal(amount), "USD") == words
