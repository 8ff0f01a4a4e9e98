"""Requests to save after a growth that no program answered by stopping: the gang grows all the
same, and the programs are asked again at the `maxCost`.

An elastic gang goes on with fewer members when a VM cannot be replaced. It grows when the VM is
there: its programs are asked to save, are stopped, and start together with the new member.
"""

from __future__ import annotations

import pytest

from tests.explorer.causes import EXITS, GOES_ON, IGNORES
from tests.explorer.scripted import DAY_S, LAST_SAVE_S, Scripted
from trainmaster.core.model.job import JobState
from trainmaster.core.timeouts import GROWTH_MIN, SAVE_MAX

STOCKOUT_S = 900.0
LATE_S = 500.0
"""From the growth to the end of the money, if all machines had run all the time."""
SWEEPS_S = 120.0
RESTART_S = 60.0


def shrink(reaction: str | None, **options: object) -> Scripted:
    """Return a job of three members that goes on with two, until Google has a VM again.

    `reaction`: what its programs do when they are asked to save.
    """
    case = Scripted(size=3, options={"elastic": {"minReplicas": 2}, **options})
    case.explored.reaction_to_save = reaction
    case.train(700)
    lose(case)
    return case


def lose(case: Scripted) -> None:
    case.stockout(STOCKOUT_S)
    case.lose("worker-1")
    case.train(60)
    assert len(case.job.round.without) == 1, case.story  # one member takes no part
    case.wait(STOCKOUT_S)


def await_growth(case: Scripted, limit_s: float) -> float:
    """Return the time until all members train."""
    began_s = case.world.now_s
    case.world.run(
        began_s + limit_s,
        lambda: case.explored.programs.are_training and not case.job.round.without,
    )
    assert not case.job.round.without, case.story
    return case.world.now_s - began_s


@pytest.mark.parametrize("reaction", [EXITS, GOES_ON, IGNORES])
def test_gang_grows_within_ten_minutes_whatever_its_programs_do(reaction: str) -> None:
    case = shrink(reaction)
    await_growth(case, SAVE_MAX.total_seconds() + SWEEPS_S + RESTART_S)
    assert case.charges == {}, case.story
    case.check()


@pytest.mark.parametrize("reaction", [GOES_ON, IGNORES])
def test_gang_grows_a_second_time(reaction: str) -> None:
    case = shrink(reaction)
    await_growth(case, SAVE_MAX.total_seconds() + SWEEPS_S + RESTART_S)
    case.wait(GROWTH_MIN.total_seconds())
    lose(case)
    await_growth(case, SAVE_MAX.total_seconds() + SWEEPS_S + RESTART_S)
    assert case.charges == {}, case.story
    case.check()


def test_why_says_that_programs_were_stopped_without_a_save() -> None:
    case = shrink(IGNORES)
    await_growth(case, SAVE_MAX.total_seconds() + SWEEPS_S + RESTART_S)
    assert "Programs that do not catch SIGTERM were not asked to save" in case.story


def test_cap_soon_after_a_growth_asks_again() -> None:
    case = shrink(GOES_ON, maxCost="0.90 USD")
    case.wait(DAY_S)
    assert case.job.state is JobState.CANCELLED, case.story
    lost_s = case.lost_work_s()
    assert max(lost_s.values()) <= LAST_SAVE_S, (lost_s, case.story)
    case.check()


def test_cap_while_a_growth_waits_for_the_programs_asks_again() -> None:
    """The second directive to save is of the same round as the first."""
    case = Scripted(size=3, options={"elastic": {"minReplicas": 2}, "maxCost": "0.90 USD"})
    case.explored.reaction_to_save = GOES_ON
    case.train()
    case.wait(case.life_s - case.world.now_s - STOCKOUT_S - LATE_S)
    lose(case)
    case.wait(DAY_S)
    asked = [line for line in case.story.splitlines() if "are asked to save" in line]
    growth, cap = [line for line in asked if "already" not in line]
    assert "worker 1 can join round 3" in growth, case.story
    assert "maxCost" in cap, case.story
    lost_s = case.lost_work_s()
    assert max(lost_s["chief-0"], lost_s["worker-0"]) <= LAST_SAVE_S, (lost_s, case.story)
    case.check()
