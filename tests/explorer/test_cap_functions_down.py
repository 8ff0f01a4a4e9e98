"""`maxCost` while no function runs: the VMs end themselves, and the job costs no more.

Each job has two replicas, one program on each VM. A VM ends itself when the time is over that all
machines of the job can run for `maxCost` (`life_s`); functions that run extend this time.
"""

from __future__ import annotations

import pytest

from tests.explorer.scripted import DAY_S, Scripted
from trainmaster.core.model.job import JobState

CAP_USD = 0.6
REPLICAS = 2
DOWN_BEFORE_END_S = 300
"""How long before the VMs would end themselves the functions stop."""


@pytest.mark.parametrize("minutes", [4, 10, 30, 60])
@pytest.mark.parametrize("kind", ["sync", "independent"])
def test_job_costs_no_more_than_its_cap_while_functions_are_down(minutes: int, kind: str) -> None:
    options = {"independentReplicas": True} if kind == "independent" else {}
    case = Scripted(size=REPLICAS, kind=kind, options={"maxCost": f"{CAP_USD} USD", **options})
    case.wait(case.life_s - DOWN_BEFORE_END_S - case.world.now_s)
    assert case.is_running, case.story
    case.functions.down_until_s = case.world.now_s + 60 * minutes
    case.wait(DAY_S)
    assert case.job.state is JobState.CANCELLED, case.story
    case.world.run(case.world.now_s + 600, lambda: not case.cloud.present)
    assert 0.9 * CAP_USD < case.explored.cost <= CAP_USD
    case.check()


def test_job_on_cheap_machines_is_not_ended_early_while_functions_run() -> None:
    """Its rate is that of its dearest machines: the time is extended again and again."""
    spot = {"spot": {"use": "all", "onDemandAfter": 3}}
    case = Scripted(size=REPLICAS, options={"maxCost": f"{CAP_USD} USD", **spot})
    case.wait(DAY_S)
    assert case.job.state is JobState.CANCELLED, case.story
    assert case.ended_s > 2 * case.life_s, "it would have ended"
    assert len(case.explored.programs.all) == REPLICAS, "no VM has ended itself"
    case.check()


def test_outage_far_from_the_cap_ends_no_vm() -> None:
    case = Scripted(size=REPLICAS, options={"maxCost": f"{10 * CAP_USD} USD"})
    case.train(3600)
    case.functions.down_until_s = case.world.now_s + 3600
    case.wait(7200)
    assert case.is_running
    assert len(case.explored.programs.all) == REPLICAS, "no VM has ended itself"
    case.check()
