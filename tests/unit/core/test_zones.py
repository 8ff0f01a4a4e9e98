from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.model.plan import Accelerator, Plan, TaskGroup, Tpu
from shared.core.model.replica_id import TaskType
from shared.core.reconcile.zone_order import STOCKOUT_REMEMBERED, Stockout, exhausted, machine_kind, with_last
from tests.support.jobs import a_plan, at

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
CPU = "n1-standard-4"
NOW = at(STOCKOUT_REMEMBERED.total_seconds())


def the_plan() -> Plan:
    return a_plan(zones=(A, B, C))


@pytest.mark.parametrize(
    ("group", "spot", "words"),
    [
        (TaskGroup(TaskType.WORKER, 1, CPU), False, CPU),
        (TaskGroup(TaskType.WORKER, 9, CPU), True, f"Spot {CPU}"),
        (TaskGroup(TaskType.WORKER, 1, CPU, Accelerator("nvidia-l4", 2)), False, f"{CPU} with 2 x nvidia-l4"),
        (TaskGroup(TaskType.WORKER, 1, "", tpu=Tpu("v5litepod-16", "r", 4)), False, "v5litepod-16"),
    ],
)
def test_capacity_is_counted_in_kinds_of_machines(group: TaskGroup, words: str, *, spot: bool) -> None:
    assert machine_kind(group, spot=spot) == words


@pytest.mark.parametrize(
    ("stockouts", "last"),
    [
        ([], ()),
        ([Stockout(A, CPU, at(1))], (A,)),
        ([Stockout(C, CPU, at(9)), Stockout(A, CPU, at(9))], (A, C)),
        ([Stockout(A, CPU, at(0))], (A,)),
        ([Stockout(A, CPU, at(-1))], ()),
        ([Stockout(A, f"Spot {CPU}", at(9))], ()),
        ([Stockout("europe-west4-a", CPU, at(9))], ()),
    ],
    ids=["none", "one", "in the plan's order", "as old as can be", "too old", "of other machines", "elsewhere"],
)
def test_zones_that_lately_had_no_room_for_these_machines_are_found(
    stockouts: list[Stockout], last: tuple[str, ...]
) -> None:
    assert exhausted(the_plan(), stockouts, NOW) == last


def test_what_counts_is_what_is_asked_for_first() -> None:
    plan = the_plan()
    spot = replace(plan, groups=tuple(replace(group, spot=True) for group in plan.groups))
    short = [Stockout(B, f"Spot {CPU}", at(9))]
    assert exhausted(spot, short, NOW) == (B,)
    assert exhausted(replace(spot, on_demand_after=2), short, NOW) == (B,)
    assert exhausted(replace(spot, on_demand_after=0), short, NOW) == ()


def test_the_others_keep_their_order_and_no_zone_is_left_out() -> None:
    assert with_last((A, B, C), ()) == (A, B, C)
    assert with_last((A, B, C), (A,)) == (B, C, A)
    assert with_last((A, B, C), (A, B, C)) == (A, B, C)
