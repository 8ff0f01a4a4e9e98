"""Zones with recent stockouts are tried last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import a_plan, at
from trainmaster.core.model.plan import Accelerator, TaskGroup, Tpu
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.reconcile.zone_order import Stockout, machine_kind, move_to_end, zones_with_stockout
from trainmaster.core.timeouts import STOCKOUT_MEMORY

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
CPU = "n1-standard-4"
NOW = at(STOCKOUT_MEMORY.total_seconds())


PLAN = a_plan(zones=(A, B, C))


@pytest.mark.parametrize(
    ("group", "spot", "words"),
    [
        (TaskGroup(TaskType.WORKER, 1, CPU), False, CPU),
        (TaskGroup(TaskType.WORKER, 9, CPU), True, f"Spot {CPU}"),
        (TaskGroup(TaskType.WORKER, 1, CPU, Accelerator("nvidia-l4", 2)), False, f"{CPU} with 2 x nvidia-l4"),
        (TaskGroup(TaskType.WORKER, 1, "", tpu=Tpu("v5litepod-16", "r", 4)), False, "v5litepod-16"),
    ],
)
def test_machine_kind_names_pricing_machine_type_and_gpus(group: TaskGroup, words: str, *, spot: bool) -> None:
    assert machine_kind(group, spot=spot) == words


@pytest.mark.parametrize(
    ("stockouts", "zones"),
    [
        ([], ()),
        ([Stockout(A, CPU, at(1))], (A,)),
        ([Stockout(C, CPU, at(9)), Stockout(A, CPU, at(9))], (A, C)),
        ([Stockout(A, CPU, at(0))], (A,)),
        ([Stockout(A, CPU, at(-1))], ()),
        ([Stockout(A, f"Spot {CPU}", at(9))], ()),
        ([Stockout("europe-west4-a", CPU, at(9))], ()),
    ],
    ids=["none", "one", "two in the plan's order", "oldest that counts", "too old", "other pricing", "other region"],
)
def test_zones_with_a_recent_stockout_of_the_plans_vms_are_found(
    stockouts: list[Stockout], zones: tuple[str, ...]
) -> None:
    assert zones_with_stockout(PLAN, stockouts, NOW) == zones


def test_stockouts_count_for_the_pricing_that_the_job_requests_first() -> None:
    spot = replace(PLAN, groups=tuple(replace(group, spot=True) for group in PLAN.groups))
    stockouts = [Stockout(B, f"Spot {CPU}", at(9))]
    assert zones_with_stockout(spot, stockouts, NOW) == (B,)
    assert zones_with_stockout(replace(spot, on_demand_after=2), stockouts, NOW) == (B,)
    assert zones_with_stockout(replace(spot, on_demand_after=0), stockouts, NOW) == ()


def test_move_to_end_keeps_the_order_of_the_other_zones() -> None:
    assert move_to_end((A, B, C), ()) == (A, B, C)
    assert move_to_end((A, B, C), (A,)) == (B, C, A)
    assert move_to_end((A, B, C), (A, B, C)) == (A, B, C)
