"""`maxCost` after maintenance was announced an hour ahead: the programs have saved and gone on,
and must be asked again before the job is cancelled.
"""

from __future__ import annotations

from tests.explorer.causes import GOES_ON
from tests.explorer.scripted import DAY_S, LAST_SAVE_S, Scripted
from trainmaster.core.model.job import JobState

CAP_USD = 0.6
SERVES_S = 120
"""A request to save that is not older than this serves a later reason, too."""


def run(announced_s: float | None) -> Scripted:
    """Let a job run until its `maxCost` is used up. `announced_s`: how long before, in seconds,
    maintenance of a VM is announced; None: it is not.
    """
    case = Scripted(size=2, options={"maxCost": f"{CAP_USD} USD"})
    case.explored.reaction_to_save = GOES_ON
    case.train()
    if announced_s is not None:
        case.wait(case.life_s - announced_s - case.world.now_s)
        assert case.is_running
        case.announce("worker-0", 3600)
    case.wait(DAY_S)
    assert case.job.state is JobState.CANCELLED, case.story
    case.check()
    return case


def test_programs_that_saved_after_an_early_notice_are_asked_again_at_the_cap() -> None:
    case = run(announced_s=2400)
    assert max(case.lost_work_s().values()) <= LAST_SAVE_S, case.story
    assert [len(program.saved_s) for program in case.explored.programs.all] == [2, 2]


def test_request_of_less_than_two_minutes_ago_serves_the_cap_too() -> None:
    case = run(announced_s=320)
    assert max(case.lost_work_s().values()) <= LAST_SAVE_S + SERVES_S, case.story


def test_job_without_a_notice_asks_once() -> None:
    case = run(None)
    assert max(case.lost_work_s().values()) <= LAST_SAVE_S, case.story
    assert [len(program.saved_s) for program in case.explored.programs.all] == [1, 1]


def test_why_says_that_the_programs_are_asked_only_when_they_are() -> None:
    case = run(announced_s=2400)
    requests = ("all members of round 1 are asked to save", "all programs that catch SIGTERM are")
    asked = [line for line in case.story.splitlines() if any(text in line for text in requests)]
    first = case.explored.programs.all[0]
    assert len(asked) == len(first.saved_s) == 2, case.story
