"""Numbers of jobs by state: a page waits for them only a moment, and many are kept for a while."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from tests.support.console_site import Site
from tests.support.world import World
from trainmaster.console.job_counter import JobCounter
from trainmaster.core.model.job import JobState, Label
from trainmaster.errors import TemporaryError
from trainmaster_local.memory.store import MemoryStore

VISION = Label("team", "vision")


class SlowStore(MemoryStore):
    """A store that counts only while it may, and that counts its counts."""

    def __init__(self) -> None:
        super().__init__()
        self.may_count = Event()
        self.times_counted = 0
        self.succeeded = 0
        self.error: Exception | None = None

    def count_by_state(self, label: Label | None = None) -> dict[JobState, int]:
        self.times_counted += 1
        assert self.may_count.wait(30)
        if self.error:
            raise self.error
        return {**dict.fromkeys(JobState, 0), JobState.SUCCEEDED: self.succeeded}


class Timer:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def store() -> Iterator[SlowStore]:
    store = SlowStore()
    yield store
    store.may_count.set()


def test_page_does_not_wait_for_slow_counts_and_a_later_one_has_them(store: SlowStore) -> None:
    counter = JobCounter(store, wait_s=0)
    store.succeeded = 7
    assert counter.counts(None) is None
    assert counter.counts(None) is None
    assert store.times_counted == 1, "pages that are open at once share one counting"
    store.may_count.set()
    counted = counter.counts(None, waits=True)
    assert counted is not None
    assert counted[JobState.SUCCEEDED] == 7
    store.may_count.clear()
    store.succeeded = 8
    assert counter.counts(None) == counted, "the latest counts, while newer ones are not known"
    store.may_count.set()
    assert counter.counts(None, waits=True) == {**counted, JobState.SUCCEEDED: 8}


def test_each_label_is_counted_by_itself(store: SlowStore) -> None:
    store.may_count.set()
    counter = JobCounter(store, wait_s=None)
    store.succeeded = 7
    assert (counter.counts(None) or {})[JobState.SUCCEEDED] == 7
    store.succeeded = 3
    assert (counter.counts(VISION) or {})[JobState.SUCCEEDED] == 3


@pytest.mark.parametrize(("jobs", "kept_s"), [(999, 0), (12_500, 12)])
def test_counts_are_kept_for_as_many_seconds_as_they_cost_further_reads(
    store: SlowStore, jobs: int, kept_s: int
) -> None:
    store.may_count.set()
    store.succeeded = jobs
    timer = Timer()
    counter = JobCounter(store, wait_s=None, timer=timer)
    counter.counts(None)
    if kept_s:
        timer.seconds = kept_s - 0.1
        counter.counts(None)
        assert store.times_counted == 1
    timer.seconds = kept_s
    counter.counts(None)
    assert store.times_counted == 2


def test_failed_count_fails_the_page_that_waits_and_is_repeated(
    store: SlowStore, caplog: pytest.LogCaptureFixture
) -> None:
    counter = JobCounter(store, wait_s=0)
    store.error = TemporaryError("503: unavailable")
    assert counter.counts(None) is None
    store.may_count.set()
    with pytest.raises(TemporaryError):
        counter.counts(None, waits=True)
    assert "Cannot count the jobs: 503: unavailable" in caplog.text
    store.error = None
    assert counter.counts(None, waits=True) is not None


def test_page_whose_jobs_are_not_counted_yet_shows_its_rows_and_asks_again_soon(
    store: SlowStore,
) -> None:
    site = Site(World(store=store), count_wait_s=0)
    site.world.submit()
    site.open()
    page = " ".join(site.text("/jobs").split())
    assert 'href="/jobs/digits_1"' in page
    assert 'Queued <span class="count">…</span>' in page
    assert "The jobs are being counted<noscript>: reload the page" in page
    assert 'data-poll="2"' in page
    store.may_count.set()
    listed = site.get("/jobs.json").get_json()
    assert (listed["total"], listed["states"]["SUCCEEDED"]) == (0, 0), "a program gets the numbers"
