"""The timeline of a job: a lane for each replica with bars and marks, and its time scale."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec, at
from tests.support.world import World
from trainmaster.console.svg import draw, time_ticks
from trainmaster.console.time_scale import GAP_DRAWN, time_scale
from trainmaster.console.timeline import LANES_MAX, MarkKind, Timeline, read_timeline
from trainmaster.core.decisions import Rule
from trainmaster.core.model.job import JobState
from trainmaster.presentation.durations import duration_words


def timeline_of(world: World, *, with_all: bool = False) -> Timeline:
    return read_timeline(world.history, world.now, with_all=with_all)


def preempted_world() -> World:
    """Return a job of a chief and two workers; worker 1 has lost its VM, and got another."""
    world = World(silent={WORKER_1})
    world.start_running()
    world.wait(1000)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    world.wait(60)
    world.send("vm-ready", WORKER_1)
    world.deliver()
    return world


def test_lanes_of_a_preempted_worker_have_its_spans_and_mark() -> None:
    timeline = timeline_of(preempted_world())
    job, chief, _, lost_worker = timeline.lanes
    assert [lane.name for lane in timeline.lanes] == ["job", "chief 0", "worker 0", "worker 1"]
    assert job.bars[-1].label == "running"
    assert [bar.label for bar in lost_worker.bars if bar.end is None or bar.end > bar.start] == [
        "starting",
        "running",
        "replacing",
        "running",
    ]
    (mark,) = lost_worker.marks
    assert (mark.kind, mark.replica_id) == (MarkKind.PREEMPTION, WORKER_1)
    assert mark.rule == Rule.VM_LOST
    assert chief.marks == ()
    assert "incarnation 2" in lost_worker.bars[-1].title


def test_end_of_a_job_is_a_mark_of_its_own_lane_or_of_its_replica() -> None:
    world = World()
    world.start_running()
    world.exit_program(CHIEF, 0)
    world.deliver()
    assert world.state == JobState.SUCCEEDED
    assert [mark.kind for lane in timeline_of(world).lanes for mark in lane.marks] == [
        MarkKind.SUCCEEDED
    ]
    assert all(bar.end is not None for lane in timeline_of(world).lanes for bar in lane.bars)


def test_long_stretch_without_a_change_is_drawn_shorter_and_positions_stay_in_order() -> None:
    timeline = timeline_of(preempted_world())
    width = 900
    short, full = time_scale(timeline, width), time_scale(timeline, width, shortens_gaps=False)
    (gap,) = short.gaps
    assert gap.end - gap.start > timedelta(seconds=900)
    assert gap.width == pytest.approx(GAP_DRAWN * width)
    assert full.gaps == ()
    length_s = int((timeline.end - timeline.start).total_seconds())
    moments = [timeline.start + timedelta(seconds=second) for second in range(0, length_s, 20)]
    positions = [short.x(moment) for moment in moments]
    assert positions == sorted(positions)
    assert short.x(timeline.start) == 0
    assert short.x(timeline.end) == pytest.approx(width)


def test_large_job_shows_replicas_with_incidents_and_counts_the_others() -> None:
    world = World()
    workers = LANES_MAX + 50
    world.submit(a_spec(workerCount=workers))
    world.deliver()
    world.report_all_ready()
    world.kill(WORKER_0)
    world.deliver()
    timeline = timeline_of(world)
    assert [lane.name for lane in timeline.lanes] == ["job", "worker 0"]
    others = workers  # the chief, and all workers but one
    assert timeline.hidden == others
    job_and_worker_0 = len(timeline.lanes)
    assert len(timeline_of(world, with_all=True).lanes) == job_and_worker_0 + others


def test_drawing_keeps_bars_within_the_image() -> None:
    drawn = draw(timeline_of(preempted_world()))
    for lane in drawn.lanes:
        assert all(bar.x > 0 and bar.x + bar.width <= drawn.width for bar in lane.bars)
    assert dict(drawn.symbols).keys() == {"preemption"}
    assert set(drawn.legend) == {"starting", "running", "replacing", "held"}, (
        "held: its peers wait for the next VM"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (4.25, "4.2 s"),
        (59, "59 s"),
        (200, "3 min 20 s"),
        (8040, "2 h 14 min"),
        (266400, "3 d 2 h"),
    ],
)
def test_duration_is_written_in_words(seconds: float, words: str) -> None:
    assert duration_words(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (4, ["+1 s", "+2 s", "+3 s", "+4 s"]),
        (95, ["+30 s", "+1 min", "+1 min 30 s"]),
        (1095, ["+5 min", "+10 min", "+15 min"]),
        (5 * 3600, ["+2 h", "+4 h"]),
        (30 * 86400, ["+8 d", "+16 d", "+24 d"]),
    ],
)
def test_labels_of_a_time_axis_are_round(seconds: int, labels: list[str]) -> None:
    end = at(seconds)
    ticks = time_ticks(at(0), end, lambda moment: 1000 * (moment - at(0)) / (end - at(0)))
    assert [tick.label for tick in ticks] == ["03:00:00", *labels]


def test_axis_whose_beginning_is_drawn_shorter_has_labels_in_the_rest() -> None:
    """Ten minutes without a change take a tenth of the width, and three with restarts the rest."""

    def position(moment: datetime) -> float:
        seconds = (moment - at(0)).total_seconds()
        return seconds / 6 if seconds < 600 else 100 + 5 * (seconds - 600)

    labels = [tick.label for tick in time_ticks(at(0), at(780), position)]
    assert labels == ["03:00:00", "+11 min", "+12 min", "+13 min"]
