"""`trainmaster wait`: the progress that it shows, and its exit status."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from tests.support.world import World
from trainmaster.cli.wait import exit_status, job_table, wait
from trainmaster.core.model.job import State
from trainmaster.core.model.money import read_money
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports import Loaded
from trainmaster_local.memory.store import MemoryStore

PRICE = read_money("0.49 USD")
CHIEF, WORKER = ReplicaId(TaskType.CHIEF, 0), ReplicaId(TaskType.WORKER, 0)


def state_of(world: World) -> State:
    loaded = world.store.load_attempt(world.job_id)
    assert loaded is not None
    return loaded.state


def test_wait_prints_one_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.start_running()
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: world.exit_program(WORKER, status=3),
        world.deliver,
        lambda: world.send("replica-exit", CHIEF, cause="process", exit_status=0),
    ]
    ended = wait(world.job_id, world.store, sleep=lambda _: steps.pop(0)())
    assert exit_status(ended) == 0
    assert capsys.readouterr().err.splitlines() == [
        "digits_1: RUNNING",
        "  chief 0: RUNNING",
        "  worker 0: RUNNING",
        "  worker 1: RUNNING",
        "  chief 0: STOPPING",
        "  worker 0: STOPPING",
        "  worker 1: STOPPING",
        "  chief 0: RUNNING (incarnation 2)",
        "  worker 0: RUNNING (incarnation 2)",
        "  worker 1: RUNNING (incarnation 2)",
        "digits_1: SUCCEEDED",
    ]


def test_wait_retries_transient_errors_and_fails_for_an_unknown_job() -> None:
    world = World()
    world.start_running()
    world.exit_program(WORKER, status=127)
    world.deliver()
    errors = [TemporaryError("deadline exceeded")]

    class FailingStore(MemoryStore):
        def load_attempt(self, job_id: str, *, if_needed: bool = False) -> Loaded | None:
            if errors:
                raise errors.pop()
            return world.store.load_attempt(job_id)

    ended = wait(world.job_id, FailingStore(), sleep=lambda _: None)
    assert (ended.job.state, exit_status(ended)) == ("FAILED", 1)
    with pytest.raises(PermanentError, match="no job unknown_1"):
        wait("unknown_1", FailingStore(), sleep=lambda _: None)


def test_table_contains_state_age_and_usage_of_job_and_its_replicas() -> None:
    world = World()
    world.start_running()
    world.exit_program(WORKER, status=3)
    world.deliver()
    state = state_of(world)
    output = StringIO()
    Console(file=output, width=120).print(
        job_table(state, state.job.created_at + timedelta(hours=1, seconds=62), PRICE)
    )
    lines = [line.split() for line in output.getvalue().splitlines()]
    used = ["3.05", "machine-hours,", "1.18", "ML", "units,", "0.58", "USD"]
    assert lines[0] == ["digits_1", "RUNNING", "1:01:02", *used]
    assert ["worker", "0", "RUNNING", "2", "1", "0"] in lines
