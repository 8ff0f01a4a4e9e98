"""A job that FAILED keeps how far its primary's program was at its last end.

`held(n)` is a job of three members whose round n awaits the verdict on the round before;
`judge_held` is this verdict, on the given ends (`tests.support.held_rounds`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.held_rounds import held, judge_held
from tests.support.jobs import CHIEF, WORKER_0, a_state, at, exited
from trainmaster.core.actions import FailJob
from trainmaster.core.events import ExitCause
from trainmaster.core.evolve import evolve
from trainmaster.core.model.job import JobState
from trainmaster.core.model.last_progress import LastProgress
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.rules.judge import judge

NOW = at(400)
HALF = LastProgress(share=0.5, epoch=4, epochs=8)


def test_exit_of_the_primary_that_ends_the_job_leaves_its_progress() -> None:
    state = replace(a_state(), whole=False)
    event = replace(exited(CHIEF, 1, cause=ExitCause.INSTALL), progress=HALF)
    job = evolve(state, judge(state, event, NOW), NOW).job
    assert job
    assert (job.state, job.last_progress) == (JobState.FAILED, HALF)


@pytest.mark.parametrize("failed", [CHIEF, WORKER_0], ids=str)
def test_verdict_that_ends_the_job_leaves_the_progress_of_the_primary(failed: ReplicaId) -> None:
    """The packages of one member cannot be installed, and the other one lost its peer."""
    other = WORKER_0 if failed == CHIEF else CHIEF
    ends = [exited(failed, 1, cause=ExitCause.INSTALL, seconds=80), exited(other, 1, seconds=82)]
    decision = judge_held(
        held(),
        *(replace(end, progress=HALF if end.subject.replica_id == CHIEF else None) for end in ends),
    )
    assert isinstance(decision.action, FailJob)
    assert decision.action.progress == HALF
