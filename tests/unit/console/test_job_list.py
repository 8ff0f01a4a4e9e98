"""Counts of the job list: they agree with the store for all filters and pages, and cost few reads.

The store counts the jobs of a state, also those with one label. If the list is filtered by a user
or a text, it reads the newest jobs instead, and counts among them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from urllib.parse import parse_qs, urlsplit

import pytest

from bench.counting import Counts, counting_store
from tests.support.console_site import Site
from tests.support.job_lists import world_of_jobs
from tests.support.jobs import CHIEF, a_job
from tests.support.world import World
from trainmaster.console.job_counter import JobCounter
from trainmaster.console.pages import job_counts, job_list
from trainmaster.console.pages.job_filters import Filters, matches, read_filters
from trainmaster.console.pages.job_list import JobList, read_job_list
from trainmaster.console.pages.job_rows import situation
from trainmaster.core.events import CapacityErrorKind, VmsNotCreated
from trainmaster.core.ledger import fold
from trainmaster.core.model.job import JobState
from trainmaster.flows.commit.record import record
from trainmaster.flows.user_requests import delete_job
from trainmaster.ports import JobFilter

JOBS = 40
"""Number of stored jobs, with the deleted one."""
CANCELLED_JOBS, QUEUED_JOBS = JOBS // 4, JOBS - JOBS // 4
VISION_JOBS = JOBS // 2
"""Number of jobs with the label team=vision: every second one, with all that are cancelled."""
PAGE_ROWS = 10
COUNTS = len(JobState)
"""Reads for the counts of the store: one for each state."""
STATES = ((), (JobState.CANCELLED,), (JobState.QUEUED, JobState.CANCELLED))
LABELS = ("", "team", "team=vision", "team=speech", "team=none", "colour")
COMBINED = [
    Filters(states, user, label, text, size=4)
    for states, user, label, text in product(STATES, ("", "boris"), LABELS, ("", "1"))
]


@pytest.fixture(scope="module")
def site() -> Site:
    """Return the console of the jobs, of which one was deleted."""
    world = world_of_jobs(JOBS)
    delete_job("digits_0008", "request-1", world.deps, by="anna@example.com")
    site = Site(world)
    site.open()
    return site


def all_pages(site: Site, filters: Filters) -> list[JobList]:
    pages = [read_job_list(site.console(), filters)]
    while address := pages[-1].next_page:
        pages.append(read_job_list(site.console(), read_filters(parse_qs(urlsplit(address).query))))
    return pages


@pytest.mark.parametrize("filters", COMBINED)
def test_counts_rows_and_total_agree_with_the_store_on_every_page(
    site: Site, filters: Filters
) -> None:
    jobs = [job for job in site.world.store.recent_jobs(1_000) if JobFilter().matches(job)]
    others = [job for job in jobs if matches(job, replace(filters, states=()))]
    pages = all_pages(site, filters)
    for page in pages:
        assert page.counts.by_state == {
            state: sum(job.state is state for job in others) for state in JobState
        }
        assert page.counts.newest is None
        assert page.total == sum(len(part.rows) for part in pages)
    assert [row.job.job_id for page in pages for row in page.rows] == [
        job.job_id for job in jobs if matches(job, filters)
    ]


def test_page_shows_counts_and_total(site: Site) -> None:
    page = " ".join(site.text("/jobs?state=CANCELLED&label=team%3Dvision&user=boris").split())
    assert 'aria-current="true">Cancelled <span class="count">4</span></a>' in page
    assert '>Queued <span class="count">3</span></a>' in page
    assert "4 matching jobs." in page
    listed = site.get("/jobs.json?state=CANCELLED&label=team%3Dvision&user=boris").get_json()
    assert (listed["total"], listed["states"]["QUEUED"], listed["countedNewest"]) == (4, 3, None)


def test_counts_among_the_newest_jobs_say_so_on_every_page(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (job_counts, job_list):
        monkeypatch.setattr(module, "JOBS_READ_MAX", 20)
    pages = all_pages(site, Filters(text="digits", size=15))
    listed = JOBS - 1
    rows = [len(page.rows) for page in pages]
    assert rows == [15, 15, listed - 30], "the pages reach the jobs that were not counted"
    for page in pages:
        assert (page.counts.newest, page.total) == (20, 20)
    assert "20 matching jobs of the 20 newest jobs; older jobs were not counted." in site.text(
        "/jobs?q=digits"
    )
    assert "newest jobs" not in site.text("/jobs?label=team%3Dvision"), "the store counts all jobs"
    rare = all_pages(site, Filters(text="0001", size=15))
    assert [row.job.job_id for page in rare for row in page.rows] == ["digits_0001"]
    assert [page.stopped_early for page in rare] == [True, False]


@pytest.mark.parametrize(
    ("query", "jobs_read", "counts_read"),
    [
        ("", PAGE_ROWS + 1, COUNTS),
        ("label=team%3Dvision&state=QUEUED", QUEUED_JOBS, COUNTS),
        ("label=team%3Dvision&state=CANCELLED", VISION_JOBS, COUNTS),
        ("state=CANCELLED", CANCELLED_JOBS, COUNTS),
        ("user=boris", JOBS, 0),
        ("q=digits", JOBS, 0),
    ],
)
def test_view_reads_its_rows_and_one_count_for_each_state_or_the_newest_jobs(
    site: Site, query: str, jobs_read: int, counts_read: int
) -> None:
    """One job more than a page shows is read, which tells whether there is another page.

    The store searches with one condition, and the list applies the others. Jobs that have not ended
    are found by their state, others rather by their label.
    """
    counts = Counts()
    store = counting_store(site.world.store, counts)
    console = replace(site.console(), store=store, counter=JobCounter(store, wait_s=None))
    read_job_list(console, replace(read_filters(parse_qs(query)), size=PAGE_ROWS))
    assert counts.reads == jobs_read + counts_read, counts.reads_by_call
    assert bool(counts.calls["count_by_state"]) is bool(counts_read)


def test_poll_of_an_unchanged_list_is_304_and_polls_that_scan_are_rare(site: Site) -> None:
    for path, poll_s in (
        ("/jobs", 10),
        ("/jobs?label=team%3Dvision", 10),
        ("/jobs?user=boris", 60),
    ):
        first = site.get(path)
        assert f'data-poll="{poll_s}"' in first.text
        again = site.get(path, If_None_Match=first.headers["ETag"])
        assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(
    ("kind", "message", "problem"),
    [
        (CapacityErrorKind.STOCKOUT, "no resources", "no capacity in us-central1-a"),
        (
            CapacityErrorKind.QUOTA,
            "Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 8",
            "the quota NVIDIA_T4_GPUS is used up",
        ),
    ],
)
def test_row_of_a_job_without_capacity_names_the_quota_or_zone(
    kind: CapacityErrorKind, message: str, problem: str
) -> None:
    world = World()
    world.submit()
    world.deliver()
    event = VmsNotCreated(
        world.job_id,
        attempt=1,
        zone=world.job.zone,
        round=0,
        error_kind=kind,
        code="CODE",
        message=message,
        at=world.now,
    )
    record(event, world.deps)
    words = (
        f"1 capacity error so far (the last one: {problem}); VMs are requested in {world.job.zone}."
    )
    assert situation(world.job, None) == words
    stored = world.store.load_attempt(world.job_id)
    assert stored is not None
    assert fold(world.ledger) == stored.state


@pytest.mark.parametrize("user", ["anna@EXAMPLE.com", "anna"])
def test_filter_of_users_finds_jobs_whose_owner_is_not_verified(user: str) -> None:
    job = a_job(JobState.QUEUED, submission="console:4711/Anna@example.com")
    assert matches(job, Filters(user=user))
    assert not matches(replace(job, submission="gs://b/jobs/anna.yaml#1"), Filters(user=user))


def test_success_that_looks_like_none_has_its_first_note_in_the_list_and_all_on_its_page(
    site: Site,
) -> None:
    world = site.world
    world.submit()
    world.deliver()
    world.report_all_ready()
    world.wait(30)
    progress = {"share": 0.25, "epoch": 2, "epochs": 8, "not_finite": ["loss"]}
    world.exit_program(CHIEF, 0, ran_s=30.0, tail="Epoch 2/8", progress=progress)
    early_end = "ended at 25 % of its own progress (epoch 2 of 8)"
    assert situation(world.job, None) == f"but: {early_end}"
    page = site.get(f"/jobs/{world.job_id}").text
    for note in (early_end, "worker 1 were still running", "loss was NaN or infinite at the end"):
        assert note in page
    stored = world.store.load_attempt(world.job_id)
    assert stored is not None
    assert fold(world.ledger) == stored.state
