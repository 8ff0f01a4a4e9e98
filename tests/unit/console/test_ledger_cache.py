"""How often an open page of the console reads a ledger, the record of a job's events and decisions.

A page polls every few seconds. The cache reads the whole ledger once. After that it reads the
entries of the last minute (`OVERLAP`), because a function may commit an entry that long after the
entry's own time, and the entries whose effects were not confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.console.caches import OVERLAP, REREAD_AFTER_S, Entries, LedgerCache
from trainmaster.core.ledger import LedgerEntry
from trainmaster_local.memory.store import MemoryStore

OVERLAP_S = OVERLAP.total_seconds()


class CountingStore(MemoryStore):
    """Counts what a ledger cache reads."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers_read = 0
        self.recent_read = 0
        """Entries that reads of recent ones returned."""
        self.single_read = 0

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        self.single_read += 1
        return super().entry(job_id, key)

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        self.ledgers_read += 1
        return super().ledger(job_id)

    def ledger_since(self, job_id: str, moment: datetime) -> tuple[LedgerEntry, ...]:
        recent = tuple(entry for entry in MemoryStore.ledger(self, job_id) if entry.at >= moment)
        self.recent_read += len(recent)
        return recent


@dataclass
class OpenPage:
    """A page of the job of a world, at a time that the test sets."""

    world: World
    store: CountingStore
    time_s: float = 0.0
    cache: LedgerCache = field(init=False)

    def __post_init__(self) -> None:
        self.cache = LedgerCache(self.store, lambda: self.time_s)

    def poll(self, *, has_ended: bool = False) -> Entries:
        return self.cache.entries(self.world.job_id, has_ended=has_ended)

    def recent_read_by(self, polls: int) -> int:
        """Poll so often, and return how many entries the reads of recent ones returned."""
        self.store.recent_read = 0
        for _ in range(polls):
            self.poll()
        return self.store.recent_read


def an_open_page(**options: object) -> OpenPage:
    store = CountingStore()
    return OpenPage(World(store=store, **options), store)  # type: ignore[arg-type]


def test_poll_after_a_restart_reads_only_the_entries_of_the_restart() -> None:
    page = an_open_page()
    world = page.world
    world.start_running()
    page.poll()
    world.wait(OVERLAP_S + 60)
    world.kill(WORKER_0)
    assert page.poll() == world.ledger
    world.deliver()
    known = page.poll()
    assert known[-1].done_at is not None, "a confirmation is seen"
    the_exit, the_verdict = 1, 1
    of_restart = the_exit + len(world.replicas) + the_verdict
    assert len(known) > 2 * of_restart
    assert page.recent_read_by(polls=10) == 10 * of_restart


def test_idle_page_reads_at_most_one_entry_for_each_poll() -> None:
    page = an_open_page()
    world = page.world
    world.start_running()
    page.poll()
    world.wait(OVERLAP_S + 60)
    world.kill(WORKER_0)
    world.deliver()
    page.poll()
    page.time_s = OVERLAP_S + 60
    assert page.recent_read_by(polls=10) <= 10


def test_whole_ledger_is_read_again_after_ten_minutes() -> None:
    page = an_open_page()
    page.world.start_running()
    page.poll()
    before = page.store.ledgers_read
    page.time_s = REREAD_AFTER_S
    page.poll()
    assert page.store.ledgers_read == before
    page.time_s = REREAD_AFTER_S + 1
    page.poll()
    assert page.store.ledgers_read == before + 1


def test_last_minute_is_read_again_only_while_its_entries_may_grow() -> None:
    """All replicas of a large job become ready in the same minute.

    Its idle page must not read them at each poll.
    """
    page = an_open_page()
    page.world.start_running()
    known = page.poll()
    page.time_s = 5.0
    assert page.recent_read_by(polls=1) >= len(known), (
        "an entry of the last minute may still be committed"
    )
    page.time_s = 5.0 + OVERLAP_S + 1
    page.poll()
    page.time_s += 5.0
    assert page.recent_read_by(polls=1) == 0


def test_one_pending_entry_is_read_while_a_gang_waits_for_its_last_vm() -> None:
    """The members of a gang start together: the job is held until all have reported."""
    gang = (CHIEF, WORKER_0, WORKER_1)
    page = an_open_page(silent=set(gang))
    world = page.world
    world.start_running()
    world.wait(1000)
    for replica_id in gang:
        world.send("maintenance", replica_id, cause="preemption")
    world.deliver()
    world.wait(2 * OVERLAP_S)
    *first, last = gang
    for replica_id in first:
        world.send("vm-ready", replica_id)
    world.deliver()
    assert sum(entry.is_pending for entry in page.poll()) == 1
    page.time_s = 2 * OVERLAP_S
    page.store.single_read = 0
    page.poll()
    page.poll()
    assert page.store.single_read == 2, "one for each poll"
    world.wait(2 * OVERLAP_S)
    world.send("vm-ready", last)
    world.deliver()
    assert not world.job.round.is_held
    assert page.poll() == world.ledger, "all confirmations are seen"


def test_only_the_first_of_several_pending_entries_is_read_at_each_poll() -> None:
    """The later ones are confirmed together with it, or after it."""
    page = an_open_page(is_independent=True)
    world = page.world
    world.start_running()
    world.deliver()
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        world.kill(replica_id)
    assert sum(entry.is_pending for entry in page.poll()) > 1
    page.time_s = 2 * OVERLAP_S
    page.poll()
    page.store.single_read = 0
    page.poll()
    assert page.store.single_read == 1


def test_entry_that_is_committed_a_minute_after_its_time_is_seen() -> None:
    page = an_open_page()
    page.world.start_running()
    page.poll()
    for seconds in range(5, 121, 5):
        page.time_s = float(seconds)
        page.poll()
    page.world.wait(70)  # the event is judged at this time, and committed at 120 s
    page.world.kill(WORKER_0)
    page.time_s = 125.0
    assert page.poll()[-1].event == page.world.ledger[-1].event


def test_nothing_is_read_about_an_ended_job() -> None:
    page = an_open_page()
    page.world.start_running()
    page.world.exit_program(CHIEF, 0)
    page.world.deliver()
    entries = page.poll(has_ended=True)
    page.store.ledgers_read = page.store.recent_read = 0
    assert page.poll(has_ended=True) == entries
    assert (page.store.ledgers_read, page.store.recent_read) == (0, 0)
