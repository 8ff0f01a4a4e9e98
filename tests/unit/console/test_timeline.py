"""Lanes, marks and the time scale of the timeline, and the cost of reading ledgers."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec, at
from tests.support.world import World
from trainmaster.console.caches import OVERLAP, REREAD_AFTER_S, LedgerCache
from trainmaster.console.svg import draw, time_ticks
from trainmaster.console.time_scale import time_scale
from trainmaster.console.timeline import LANES_MAX, MarkKind, Timeline, read_timeline
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import JobState
from trainmaster.presentation.durations import duration_words
from trainmaster_local.memory.store import MemoryStore


def timeline_of(world: World, *, with_all: bool = False) -> Timeline:
    return read_timeline(world.history, world.now, with_all=with_all)


def preempted_world() -> World:
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
    job, chief, _, worker = timeline.lanes
    assert [lane.name for lane in timeline.lanes] == ["job", "chief 0", "worker 0", "worker 1"]
    assert job.bars[-1].label == "running"
    assert [bar.label for bar in worker.bars if bar.end is None or bar.end > bar.start] == [
        "starting",
        "running",
        "replacing",
        "running",
    ]
    (mark,) = worker.marks
    assert (mark.kind, mark.replica_id, mark.rule) == (MarkKind.PREEMPTION, WORKER_1, 4)
    assert chief.marks == ()
    assert "incarnation 2" in worker.bars[-1].title


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
    short, full = time_scale(timeline, 900), time_scale(timeline, 900, shortens_gaps=False)
    (gap,) = short.gaps
    assert gap.end - gap.start > timedelta(seconds=900)
    assert gap.width == pytest.approx(90)
    assert full.gaps == ()
    moments = [timeline.start + timedelta(seconds=second) for second in range(0, 1060, 20)]
    positions = [short.x(moment) for moment in moments]
    assert positions == sorted(positions)
    assert short.x(timeline.start) == 0
    assert short.x(timeline.end) == pytest.approx(900)


def test_large_job_shows_replicas_with_incidents_and_counts_the_others() -> None:
    world = World()
    world.submit(a_spec(workerCount=LANES_MAX + 50))
    world.deliver()
    world.report_all_ready()
    world.kill(WORKER_0)
    world.deliver()
    timeline = timeline_of(world)
    assert [lane.name for lane in timeline.lanes] == ["job", "worker 0"]
    assert timeline.hidden == LANES_MAX + 50
    assert len(timeline_of(world, with_all=True).lanes) == LANES_MAX + 52


def test_drawing_keeps_bars_within_the_image() -> None:
    drawn = draw(timeline_of(preempted_world()))
    for lane in drawn.lanes:
        assert all(bar.x > 0 and bar.x + bar.width <= drawn.width for bar in lane.bars)
    assert dict(drawn.symbols).keys() == {"preemption"}
    assert set(drawn.legend) == {"starting", "running", "replacing", "held"}, (
        "its peers wait for the next VM"
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


class CountingStore(MemoryStore):
    """Counts what a ledger cache reads."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = 0
        self.entries_read = 0
        self.single = 0

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        self.single += 1
        return super().entry(job_id, key)

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        self.whole += 1
        return super().ledger(job_id)

    def ledger_since(self, job_id: str, moment: object) -> tuple[LedgerEntry, ...]:
        recent = tuple(entry for entry in MemoryStore.ledger(self, job_id) if entry.at >= moment)  # type: ignore[operator]
        self.entries_read += len(recent)
        return recent


def test_ledger_cache_reads_a_ledger_once_and_then_what_is_new() -> None:
    store, clock = CountingStore(), [0.0]
    world = World(store=store)
    cache = LedgerCache(store, lambda: clock[0])
    world.start_running()
    cache.entries("digits_1", has_ended=False)
    world.wait(OVERLAP.total_seconds() + 60)
    before = store.whole
    world.kill(WORKER_0)
    assert cache.entries("digits_1", has_ended=False) == world.store.ledger_since(
        "digits_1", at(-1)
    )
    world.deliver()
    known = cache.entries("digits_1", has_ended=False)
    assert known[-1].done_at is not None, "a confirmation is seen"
    # The exit, what every member of the next round reports, and the verdict.
    of_restart = 1 + len(world.replicas) + 1
    assert len(known) > 2 * of_restart
    store.entries_read = 0
    for _ in range(10):
        cache.entries("digits_1", has_ended=False)
    assert store.entries_read == 10 * of_restart, "those of the last minute"
    store.entries_read = 0
    world.wait(OVERLAP.total_seconds() + 60)
    clock[0] = OVERLAP.total_seconds() + 60
    for _ in range(10):
        cache.entries("digits_1", has_ended=False)
    assert store.entries_read <= 10
    reads_by_flows = store.whole - before
    clock[0] = REREAD_AFTER_S + 1
    cache.entries("digits_1", has_ended=False)
    assert store.whole - before == reads_by_flows + 1


def test_ledger_cache_reads_the_last_minute_again_only_while_its_entries_may_grow() -> None:
    """All replicas of a large job become ready in the same minute.

    Its idle page must not read them at each poll.
    """
    store = CountingStore()
    world = World(store=store)
    clock = [0.0]
    cache = LedgerCache(store, lambda: clock[0])
    world.start_running()
    known = cache.entries("digits_1", has_ended=False)
    clock[0] = 5.0
    cache.entries("digits_1", has_ended=False)
    assert store.entries_read >= len(known), "an entry of the last minute may still be committed"
    clock[0] = 66.0
    cache.entries("digits_1", has_ended=False)
    store.entries_read = 0
    clock[0] = 71.0
    cache.entries("digits_1", has_ended=False)
    assert store.entries_read == 0


def test_ledger_cache_reads_one_pending_entry_while_a_round_waits_for_its_last_vm() -> None:
    store, clock = CountingStore(), [0.0]
    world = World(store=store, silent={CHIEF, WORKER_0, WORKER_1})
    cache = LedgerCache(store, lambda: clock[0])
    world.start_running()
    world.wait(1000)
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        world.send("maintenance", replica_id, cause="preemption")
    world.deliver()
    world.wait(2 * OVERLAP.total_seconds())
    for replica_id in (CHIEF, WORKER_0):
        world.send("vm-ready", replica_id)
    world.deliver()
    assert sum(entry.is_pending for entry in cache.entries("digits_1", has_ended=False)) == 1
    clock[0] = 2 * OVERLAP.total_seconds()
    store.single = 0
    cache.entries("digits_1", has_ended=False)
    cache.entries("digits_1", has_ended=False)
    assert store.single == 2
    world.wait(clock[0])
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert not world.job.round.is_held
    assert cache.entries("digits_1", has_ended=False) == world.ledger, "all confirmations are seen"


def test_ledger_cache_sees_an_entry_that_is_committed_a_minute_after_its_time() -> None:
    store = CountingStore()
    world = World(store=store)
    clock = [0.0]
    cache = LedgerCache(store, lambda: clock[0])
    world.start_running()
    cache.entries("digits_1", has_ended=False)
    for seconds in range(5, 121, 5):
        clock[0] = float(seconds)
        cache.entries("digits_1", has_ended=False)
    world.wait(70)  # the event is judged at this time, and committed at 120 s
    world.kill(WORKER_0)
    clock[0] = 125.0
    assert cache.entries("digits_1", has_ended=False)[-1].event == world.ledger[-1].event


def test_ledger_cache_reads_nothing_about_an_ended_job() -> None:
    store = CountingStore()
    world = World(store=store)
    cache = LedgerCache(store, lambda: 0.0)
    world.start_running()
    world.exit_program(CHIEF, 0)
    world.deliver()
    entries = cache.entries("digits_1", has_ended=True)
    store.whole = store.entries_read = 0
    assert cache.entries("digits_1", has_ended=True) == entries
    assert (store.whole, store.entries_read) == (0, 0)


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
