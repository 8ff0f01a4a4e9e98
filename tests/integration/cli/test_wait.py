"""Waiting for a job: what is shown of its way there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from cli.wait import exit_status, table, wait
from shared.core.model.job import State
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.errors import PermanentError, TemporaryError
from shared.memory.store import MemoryStore
from shared.ports import Loaded
from shared.presentation.price import Price
from tests.support.world import World

PRICE = Price(0.49, "USD")
CHIEF, WORKER = ReplicaId(TaskType.CHIEF, 0), ReplicaId(TaskType.WORKER, 0)


def state_of(world: World) -> State:
    loaded = world.store.load_attempt(world.job_id)
    assert loaded is not None
    return loaded.state


def test_each_change_is_a_line_and_nothing_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.running()
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: world.fail(WORKER, status=3),
        lambda: world.tell("replica-exit", CHIEF, cause="process", exit_status=0),
    ]
    ended = wait(world.job_id, world.store, sleep=lambda _: steps.pop(0)())
    assert exit_status(ended) == 0
    assert capsys.readouterr().err.splitlines() == [
        "digits_1: RUNNING",
        "  chief 0: RUNNING",
        "  worker 0: RUNNING",
        "  worker 1: RUNNING",
        "  worker 0: RESTARTING (incarnation 2)",
        "digits_1: SUCCEEDED",
    ]


def test_trouble_with_the_store_is_waited_for_and_a_job_that_is_not_there_is_not() -> None:
    world = World()
    world.running()
    world.fail(WORKER, status=127)
    troubles = [TemporaryError("deadline exceeded")]

    class Troubled(MemoryStore):
        def load_attempt(self, job_id: str) -> Loaded | None:
            if troubles:
                raise troubles.pop()
            return world.store.load_attempt(job_id)

    ended = wait(world.job_id, Troubled(), sleep=lambda _: None)
    assert (ended.job.state, exit_status(ended)) == ("FAILED", 1)
    with pytest.raises(PermanentError, match="no job nobody"):
        wait("nobody", Troubled(), sleep=lambda _: None)


def test_at_a_terminal_the_replicas_are_a_table_under_the_jobs_state_and_time() -> None:
    world = World()
    world.running()
    world.fail(WORKER, status=3)
    state = state_of(world)
    shown = StringIO()
    Console(file=shown, width=120).print(table(state, state.job.created_at + timedelta(hours=1, seconds=62), PRICE))
    lines = [line.split() for line in shown.getvalue().splitlines()]
    used = ["3.05", "machine-hours,", "1.18", "ML", "units,", "0.58", "USD"]
    assert lines[0] == ["digits_1", "RUNNING", "1:01:02", *used]
    assert ["worker", "0", "RESTARTING", "2", "1", "0", "0"] in lines
