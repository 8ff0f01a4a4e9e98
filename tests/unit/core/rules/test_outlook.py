"""The chance of each candidate, and the order of a pass.

A candidate is a zone with the machines to request there. A pass requests the candidates of a job
one after the other, those of a lower rank first. The outcome of the last request of any job for
machines of that kind in that zone, and Google's advice, say how likely the next request succeeds.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.jobs import a_plan, at
from trainmaster.core.model.capacity import (
    Outcome,
    Prospect,
    decisive_kinds,
    machine_kind,
    requests_with_advice,
)
from trainmaster.core.model.purchase import OnDemand, Purchase, Spot
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup, Tpu
from trainmaster.core.rules.outlook import ADVICE_WEIGHT, estimate_prospects, in_order, is_fresh
from trainmaster.core.timeouts import (
    ADVICE_DOUBTED,
    CAPACITY_FRESH,
    CAPACITY_HALF_LIFE,
    RETRY_JITTER,
    RETRY_MIN,
)

CPU, GPU = "n1-standard-4", "n1-standard-4 with 1 x nvidia-l4"
HALF_S = CAPACITY_HALF_LIFE.total_seconds()
CHIEF, WORKER = (TaskGroup(task_type, 1, CPU) for task_type in (TaskType.CHIEF, TaskType.WORKER))
SPOT = Purchase(Spot())
SPOT_AT_FIRST = Purchase(Spot(2))
WITH_GPU = replace(WORKER, accelerator=Accelerator("nvidia-l4", 1))


@pytest.mark.parametrize(
    ("group", "spot", "words"),
    [
        (WORKER, False, CPU),
        (replace(WORKER, count=9), True, f"Spot {CPU}"),
        (
            replace(WITH_GPU, accelerator=Accelerator("nvidia-l4", 2)),
            False,
            f"{CPU} with 2 x nvidia-l4",
        ),
        (
            TaskGroup(TaskType.WORKER, 1, machine_type="", tpu=Tpu("v5litepod-16", "r", 4)),
            False,
            "v5litepod-16",
        ),
    ],
)
def test_machine_kind_names_pricing_machine_type_and_gpus(
    group: TaskGroup, words: str, *, spot: bool
) -> None:
    assert machine_kind(group, Spot() if spot else OnDemand()) == words


@pytest.mark.parametrize(
    ("groups", "kinds"),
    [
        ((CHIEF, WORKER), (CPU,)),
        ((CHIEF, WITH_GPU), (GPU,)),
        ((replace(CHIEF, purchase=SPOT), WORKER), (f"Spot {CPU}", CPU)),
        ((replace(CHIEF, purchase=SPOT_AT_FIRST), WORKER), (f"Spot {CPU}", CPU)),
    ],
    ids=["one kind", "accelerators decide", "two pricings", "Spot first"],
)
def test_chance_of_a_candidate_depends_on_its_scarcest_kinds_of_machines(
    groups: tuple[TaskGroup, ...], kinds: tuple[str, ...]
) -> None:
    assert decisive_kinds(a_plan(groups=groups)) == kinds


@pytest.mark.parametrize(
    ("age_s", "is_created", "chance"),
    [
        (0, False, 0.0),
        (0, True, 1.0),
        (HALF_S, False, 0.25),
        (HALF_S, True, 0.75),
        (2 * HALF_S, False, 0.375),
    ],
)
def test_chance_returns_to_a_half_as_its_outcome_ages(
    age_s: float, chance: float, *, is_created: bool
) -> None:
    outcome = Outcome("z", CPU, at(0), is_created)
    (seen, unknown) = estimate_prospects([[outcome.key], [("y", CPU)]], [outcome], at(age_s))
    assert (seen.chance, seen.failed_at) == (chance, None if is_created else at(0))
    assert unknown == Prospect(0.5)


def test_least_likely_role_decides_and_a_clock_that_is_behind_does_no_harm() -> None:
    created, failed = Outcome("z", CPU, at(60), is_created=True), Outcome("z", GPU, at(0))
    assert estimate_prospects([[created.key, failed.key]], [created, failed], at(0)) == (
        Prospect(0.0, at(0)),
    )


MANY_S = 40 * HALF_S
ADVISED = 0.9
"""The chance that Google names."""


def combined(by_outcome: float, *, weight: float = ADVICE_WEIGHT) -> float:
    """Return the chance from Google's advice, with its weight, and from the last outcome."""
    return weight * ADVISED + (1 - weight) * by_outcome


HALF_DOUBTED = combined(0.5 - 0.5 * 0.5 ** (1 / 3), weight=ADVICE_WEIGHT / 2)
"""`ADVICE_DOUBTED` after a stockout, advice has half of its weight back. The stockout is a third of
`CAPACITY_HALF_LIFE` old then.
"""


@pytest.mark.parametrize(
    ("outcome", "age_s", "chance"),
    [
        pytest.param(None, 0, combined(0.5), id="no outcome"),
        pytest.param(True, 0, combined(1.0), id="created"),
        pytest.param(True, HALF_S, combined(0.75), id="created before"),
        pytest.param(False, 0, 0.0, id="stockout"),
        pytest.param(False, ADVICE_DOUBTED.total_seconds(), HALF_DOUBTED, id="stockout before"),
        pytest.param(False, -60, 0.0, id="clock is behind"),
        pytest.param(False, MANY_S, combined(0.5), id="forgotten"),
    ],
)
def test_advice_counts_more_than_an_outcome_except_a_recent_stockout(
    outcome: bool | None, age_s: float, chance: float
) -> None:
    outcomes = [] if outcome is None else [Outcome("z", GPU, at(0), outcome)]
    (prospect,) = estimate_prospects(
        [[("z", GPU)]], outcomes, at(age_s), {("z", GPU): ADVISED, ("y", GPU): 0.1}
    )
    assert prospect.chance == pytest.approx(chance, abs=0.0006)
    assert prospect.failed_at == (at(0) if outcome is False else None)


def test_role_with_the_worst_advice_decides() -> None:
    advice = {("z", GPU): 0.3, ("z", CPU): 0.9}
    (prospect,) = estimate_prospects([[("z", GPU), ("z", CPU)]], [], at(0), advice)
    assert prospect.chance == pytest.approx(ADVICE_WEIGHT * 0.3 + (1 - ADVICE_WEIGHT) * 0.5)
    assert prospect.failed_at is None


SPOT_GPU = replace(WITH_GPU, purchase=SPOT)
SPOT_AT_FIRST_GPU = replace(WITH_GPU, purchase=SPOT_AT_FIRST)
TPU = TaskGroup(TaskType.WORKER, 1, machine_type="", tpu=Tpu("v5litepod-16", "r", 4), purchase=SPOT)


@pytest.mark.parametrize(
    ("groups", "advised"),
    [
        pytest.param((replace(CHIEF, purchase=SPOT), SPOT_GPU), [SPOT_GPU], id="Spot GPUs"),
        pytest.param((SPOT_AT_FIRST_GPU,), [SPOT_AT_FIRST_GPU], id="Spot at first"),
        pytest.param((WITH_GPU,), [], id="on demand"),
        pytest.param((replace(CHIEF, purchase=SPOT),), [], id="no GPU"),
        pytest.param((TPU,), [], id="TPU"),
    ],
)
def test_advice_is_asked_for_about_spot_vms_with_gpus(
    groups: tuple[TaskGroup, ...], advised: list[TaskGroup]
) -> None:
    plan = a_plan(groups=groups, zones=("a-a", "a-b"))
    assert requests_with_advice(plan) == [
        (zone, group) for zone in plan.where.zones for group in advised
    ]


LONG_AGO = at(-3600)
LIKELY, LIKELIEST = Prospect(0.4), Prospect(0.9)
UNLIKELY, UNLIKELIEST = Prospect(0.29, LONG_AGO), Prospect(0.05, LONG_AGO)
FAILED_NOW = Prospect(0.0, at(0))
ALL = (LIKELY, LIKELIEST, UNLIKELY, UNLIKELIEST)


@pytest.mark.parametrize(
    ("prospects", "ranks", "order"),
    [
        pytest.param(ALL, (0, 0, 0, 0), (1, 0, 2, 3), id="chance"),
        pytest.param(ALL[::-1], (0, 0, 0, 0), (2, 3, 1, 0), id="any order"),
        pytest.param(ALL, (0, 1, 2, 3), (0, 1, 2, 3), id="rank before chance"),
        pytest.param((UNLIKELIEST, LIKELY, LIKELIEST), (0, 1, 2), (1, 2, 0), id="unlikely last"),
        pytest.param((LIKELY,) * 3, (0, 0, 0), (0, 1, 2), id="equal"),
        pytest.param((LIKELY, FAILED_NOW, LIKELIEST), (0, 0, 1), (0, 2), id="fresh failure"),
        pytest.param((FAILED_NOW,), (0,), (), id="all fresh"),
    ],
)
def test_pass_requests_likely_candidates_by_rank_and_then_the_unlikely_ones(
    prospects: tuple[Prospect, ...], ranks: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """`order`: indexes of the candidates that are requested."""
    assert in_order(prospects, ranks, at(10)) == order


def test_fresh_failure_counts_until_just_before_the_next_pass_of_the_same_job() -> None:
    assert is_fresh(FAILED_NOW, at(0) + CAPACITY_FRESH - timedelta(microseconds=1))
    assert not is_fresh(FAILED_NOW, at(0) + CAPACITY_FRESH)
    assert CAPACITY_FRESH < RETRY_MIN * (1 - RETRY_JITTER), (
        "no pass leaves out what the pass before requested last"
    )
