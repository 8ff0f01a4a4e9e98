"""Lost work and its bounds, from the times of losses and checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, START, WORKER_0, WORKER_1, at
from tests.support.kept_jobs import a_keeping_job
from tests.support.machine_time import world_goodput
from tests.support.world import World
from trainmaster.core.reporting.lost_work import (
    Loss,
    LostWork,
    WrittenObjects,
    checkpoints_of,
    lost_work,
    written_objects,
)

LOSS = Loss(
    WORKER_0, attempt=1, incarnation=1, machines=2, start=at(100), at=at(500), resumed_at=at(600)
)
"""The end of a program that had run for 400 s, on two machines: it lost 800 s at most. A checkpoint
at 460 s leaves a loss of 40 s on each.
"""


def checkpoints(*seconds: float) -> WrittenObjects:
    return written_objects(
        [(f"ckpt-{number}.index", at(second)) for number, second in enumerate(seconds)]
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(None, LostWork(at_least_s=0, at_most_s=800), id="not listed"),
        pytest.param(
            checkpoints(460), LostWork(at_least_s=80, at_most_s=80), id="checkpoint before the loss"
        ),
        pytest.param(
            checkpoints(300, 460),
            LostWork(at_least_s=80, at_most_s=80),
            id="newest checkpoint counts",
        ),
        pytest.param(
            checkpoints(50),
            LostWork(at_least_s=800, at_most_s=800),
            id="no checkpoint in this incarnation",
        ),
        pytest.param(
            checkpoints(),
            LostWork(at_least_s=0, at_most_s=800),
            id="empty directory: saves elsewhere or never",
        ),
        pytest.param(
            checkpoints(510),
            LostWork(at_least_s=0, at_most_s=0),
            id="saved on notice, after the loss was judged",
        ),
        pytest.param(
            checkpoints(460, 700),
            LostWork(at_least_s=80, at_most_s=80),
            id="later checkpoints delete older ones first",
        ),
        pytest.param(
            written_objects([("ckpt-1", at(460)), ("last.ckpt", at(700))]),
            LostWork(at_least_s=0, at_most_s=80),
            id="a later checkpoint may have replaced a newer one",
        ),
        pytest.param(
            written_objects(
                [("ckpt-1.index", at(460)), ("ckpt-2.index", at(700)), ("checkpoint", at(700))]
            ),
            LostWork(at_least_s=80, at_most_s=80),
            id="TensorFlow's list of checkpoints is no checkpoint of its own",
        ),
        pytest.param(
            checkpoints(700),
            LostWork(at_least_s=0, at_most_s=800),
            id="all checkpoints are later: replaced or deleted",
        ),
        pytest.param(
            replace(checkpoints(460), is_complete=False),
            LostWork(at_least_s=0, at_most_s=80),
            id="listing was cut off",
        ),
        pytest.param(
            written_objects([("ckpt-1", at(300)), ("events.out.tfevents.1.host", at(490))]),
            LostWork(at_least_s=20, at_most_s=400),
            id="event file written after the checkpoint",
        ),
    ],
)
def test_lost_work_has_bounds(written: WrittenObjects | None, expected: LostWork) -> None:
    assert lost_work(LOSS, written, at(1000)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("digits/model.ckpt-1000.index", True),
        ("digits/checkpoint", True),
        ("digits/step_100/model.pt", True),
        ("digits/export/saved_model.pb", True),
        ("digits/events.out.tfevents.1700000000.host", False),
        ("digits/train.log", False),
        ("digits/metrics.CSV", False),
        ("digits/", False),
    ],
)
def test_checkpoints_are_distinguished_from_event_files_and_logs(name: str, expected: bool) -> None:
    assert (name in checkpoints_of([name])) is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(
            "m/1/state/a m/1/commit_success.txt m/2/state/b",
            "m/1/commit_success.txt",
            id="Orbax on Cloud Storage: the second save is not complete",
        ),
        pytest.param(
            "m/step_1/__0_0.distcp m/step_1/.metadata m/step_2/__0_0.distcp",
            "m/step_1/.metadata",
            id="torch.distributed.checkpoint",
        ),
        pytest.param(
            (
                "o/checkpoint-5/model.bin o/checkpoint-5/trainer_state.json"
                " o/checkpoint-9/model.bin x/final.pt"
            ),
            "o/checkpoint-5/trainer_state.json x/final.pt",
            id="transformers: an incomplete save, and the final model elsewhere",
        ),
        pytest.param(
            "c/checkpoint c/ckpt-1.data-00000-of-00001 c/ckpt-1.index c/ckpt-2.data-00000-of-00001",
            "c/ckpt-1.index",
            id="TensorFlow",
        ),
        pytest.param(
            "c/faiss.index c/model.pt", "c/faiss.index c/model.pt", id="no library: every file"
        ),
        pytest.param(
            "n/step=1/weights n/step=2/weights n/step=2-unfinished", "n/step=1/weights", id="NeMo"
        ),
        pytest.param(
            "checkpoint-5/trainer_state.json checkpoint-9/model.bin",
            "checkpoint-5/trainer_state.json",
            id="a save at the top of the job's directory",
        ),
    ],
)
def test_only_markers_of_complete_saves_are_checkpoints_where_a_library_writes_them(
    names: str, expected: str
) -> None:
    assert checkpoints_of(names.split()) == set(expected.split())


def test_preemption_forty_seconds_after_a_checkpoint_loses_forty_seconds() -> None:
    """39 s, and the second that the message of the agent takes."""
    world = World(is_independent=True)
    world.start_running()
    world.wait(300)
    checkpoint_s = (world.now - START).total_seconds()
    world.wait(39)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    world.wait(30)
    world.send("vm-ready", WORKER_1)
    result = world_goodput(world, checkpoints(checkpoint_s))
    assert result.lost == LostWork(at_least_s=40, at_most_s=40)
    assert result.at_least == result.at_most == (result.running_s - 40) / result.paid_s


def test_loss_of_a_gang_loses_the_time_of_each_machine() -> None:
    """Both peers of the preempted worker fail with it, one and two seconds later.

    A message of an agent takes a second, so the notice of the preemption arrives 40 s after the
    checkpoint.
    """
    world = World(is_independent=True)
    world.start_running()
    world.wait(300)
    checkpoint_s = (world.now - START).total_seconds()
    world.wait(39)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.exit_program(WORKER_0, 1)
    world.exit_program(CHIEF, 1)
    world.deliver()
    world.send("vm-ready", WORKER_1)
    world.deliver()
    for replica_id in (WORKER_0, CHIEF):
        world.send("vm-ready", replica_id)
    assert world_goodput(world, checkpoints(checkpoint_s)).lost == LostWork(
        40 + 41 + 42, 40 + 41 + 42
    )


def test_work_of_a_completed_replica_is_not_lost() -> None:
    world = World(is_independent=True)
    world.start_running()
    world.wait(100)
    world.exit_program(WORKER_0, 0)
    world.deliver()
    assert world_goodput(world, checkpoints()).lost == LostWork()


def test_work_of_a_completed_replica_whose_machine_is_kept_is_not_lost() -> None:
    assert world_goodput(a_keeping_job()).lost == LostWork()
