"""Notes about doubtful successes: the state stays SUCCEEDED.

The primary, here the chief, exits 0. The agent reports how far the program came by its own output,
how long it ran, and the end of its output (`tail`).

A round is one common start of all members of a job. An incarnation is one execution of a replica's
program.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import alone
from tests.support.jobs import CHIEF, WORKER_0, a_replica, a_state, at, exited
from trainmaster.core.actions import SucceedJob
from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.evolve import evolve
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.last_progress import LastProgress
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round
from trainmaster.core.rules.judge import judge

NOW = at(400)
LOST = ProgramError("KeyError", "'rows'", "threading.py:9 in run", "train.py:7 in load")
EARLY = LastProgress(share=0.25, epoch=2, epochs=8)


def success(
    progress: LastProgress | None = None,
    *,
    ran_s: float | None = 300,
    tail: str = "epoch",
    incarnation: int = 1,
) -> ReplicaExited:
    event = exited(CHIEF, 0, tail=tail, ran_s=ran_s, incarnation=incarnation)
    return replace(event, progress=progress)


def notes(event: ReplicaExited, state: State | None = None) -> tuple[str, ...]:
    """Return the notes of the decision. `state` None: of a job whose other replicas are unknown."""
    decision = judge(state or replace(a_state(), whole=False), event, NOW)
    assert isinstance(decision.action, SucceedJob)
    return decision.action.notes


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(
            success(EARLY), "ended at 25 % of its own progress (epoch 2 of 8)", id="early epoch"
        ),
        pytest.param(
            success(LastProgress(share=0.5, step=50, steps=100)),
            "ended at 50 % of its own progress (step 50 of 100)",
            id="early step",
        ),
        pytest.param(
            success(LastProgress(share=1.0, not_finite=("loss",))),
            "loss was NaN or infinite at the end",
            id="NaN",
        ),
        pytest.param(
            replace(success(), left_nothing=True),
            "nothing was written to its jobDir gs://bucket/digits",
            id="no output",
        ),
        pytest.param(
            replace(success(), error=LOST),
            "its output ends with KeyError: 'rows' (train.py:7 in load)",
            id="error",
        ),
        pytest.param(success(ran_s=0.6), "ran for 1 s", id="a second"),
        pytest.param(success(ran_s=3.2, tail="\n"), "ran for 3 s and printed nothing", id="silent"),
    ],
)
def test_suspicious_success_has_a_note(event: ReplicaExited, expected: str) -> None:
    assert notes(event) == (expected,)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(success(), id="unknown"),
        pytest.param(success(ran_s=None, tail=""), id="an agent without ran_s"),
        pytest.param(success(LastProgress(share=1.0, epoch=8, epochs=8)), id="complete"),
        pytest.param(
            success(LastProgress(share=0.95, step=95, steps=100)), id="prints each 5th step"
        ),
        pytest.param(success(LastProgress(share=0.75, epoch=3, epochs=4)), id="may count from 0"),
        pytest.param(success(ran_s=0.6, incarnation=2), id="resumed at its end"),
    ],
)
def test_ordinary_success_has_no_note(event: ReplicaExited) -> None:
    chief = a_replica(CHIEF, incarnation=event.subject.incarnation)
    assert notes(event, alone.a_state(chief)) == ()


def test_members_that_still_ran_are_named_beside_an_early_end() -> None:
    running = notes(success(EARLY), a_state())[1:]
    assert running
    assert running[0].startswith("worker 0")
    assert running[0].endswith("still running")
    done = LastProgress(share=1.0, epoch=8, epochs=8)
    assert notes(success(done), a_state()) == (), "it may end a moment later"


@pytest.mark.parametrize(
    ("ended_by", "expected"),
    [
        (WORKER_0, ("worker 0 had ended the round before, and had not run again",)),
        (CHIEF, ()),
        (None, ()),
    ],
    ids=str,
)
def test_member_that_ended_the_round_before_the_success_is_named(
    ended_by: ReplicaId | None, expected: tuple[str, ...]
) -> None:
    """While all wait for the next round (`is_held`), the exit 0 of the primary arrives."""
    state = replace(a_state(), whole=False)
    next_round = Round(2, is_held=True, began_at=at(10), ordered_at=at(390), stopped_by=ended_by)
    held = replace(state, job=replace(state.job, round=next_round))
    assert notes(success(), held) == expected


def test_notes_are_stored_and_part_of_the_decision() -> None:
    state = replace(a_state(), whole=False)  # the other replicas were not loaded
    decision = judge(state, success(EARLY), NOW)
    assert decision.text == (
        "chief 0 is the primary and exited 0. But: ended at 25 % of its own progress"
        " (epoch 2 of 8)."
    )
    job = evolve(state, decision, NOW).job
    assert job
    assert (job.state, len(job.notes), job.last_progress) == (JobState.SUCCEEDED, 1, EARLY)
