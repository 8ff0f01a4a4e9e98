"""How many jobs a list reads: what an index of the store can answer reads no others."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Final, cast

import pytest

from bench.counting import Counts, counting_store
from tests.contract.store.building import submit
from tests.integration.api.client import CUSTOM_JOBS, TOKENS, Api, an_app
from tests.integration.api.test_lists import read_all_pages
from tests.support.jobs import a_job, at
from tests.support.world import World
from trainmaster.api import list_filter, paging
from trainmaster.api.jobs import FIELDS, STATES
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.origin import Dialect
from trainmaster.presentation.job_view import service_view
from trainmaster_local.memory.access import MemoryAccess
from trainmaster_local.memory.store import MemoryStore

JOBS_STORED: Final = 2_000
"""Twice as many as one request may read."""
VISION: Final = Label("team", "vision")
NEWEST: Final = f"job_{JOBS_STORED - 1}"


def a_stored_job(number: int) -> Job:
    """Return a job of 2,000: four run, five have the label, and one in four is Vertex AI's."""
    state = JobState.RUNNING if number % 500 == 7 else JobState.SUCCEEDED
    labels = (VISION,) if number % 400 == 3 else ()
    job = a_job(state, job_id=f"job_{number}", created_at=at(number), labels=labels)
    if number % 4:
        return job
    document = json.dumps({"displayName": f"Digits {number}", "jobSpec": {}})
    origin = replace(job.plan.origin, dialect=Dialect.VERTEX)
    return replace(job, spec_json=document, plan=replace(job.plan, origin=origin))


@pytest.fixture(scope="module")
def stored() -> MemoryStore:
    store = MemoryStore()
    for number in range(JOBS_STORED):
        submit(store, a_stored_job(number))
    return store


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def api(stored: MemoryStore, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> Api:
    world = World(store=cast("MemoryStore", counting_store(stored, counts)))
    access = MemoryAccess(TOKENS)
    return Api(world, access, an_app(world, access, monkeypatch).test_client())


@pytest.mark.parametrize(
    ("text", "found", "reads"),
    [
        ("state=RUNNING", 4, 4),
        ("state:run*", 4, 4),
        ("-state:SUCCEEDED", 4, 4),
        ("NOT (state=SUCCEEDED OR state=FAILED)", 4, 4),
        ("state=QUEUED OR state=RUNNING", 4, 4),
        ("state=RUNNING AND jobId:job_7*", 1, 4),
        ("labels.team=vision", 5, 5),
        ("labels.team:VISION AND state!=RUNNING", 5, 5),
        ("NOT labels.team!=vision", 5, 5),
        ("jobId=job_1001", 1, 1),
        ("job_id:Job_1001", 1, 1),
        ("jobId=job_1001 AND labels.team=vision", 0, 1),
        ("jobId=none", 0, 1),
        ("state=LOST", 0, 0),
        ("state=RUNNING AND state=FAILED", 0, 0),
        (f'createTime>="{at(1989).isoformat()}"', 9, 21),
        (f'createTime<"{at(10).isoformat()}"', 7, 11),
        (f'createTime>="{at(10).isoformat()}" AND createTime<"{at(20).isoformat()}"', 8, 21),
        (f'createTime>="{at(20).isoformat()}" AND createTime<"{at(10).isoformat()}"', 0, 0),
        ("createTime<1000", 0, 1),
    ],
)
def test_list_reads_only_jobs_that_an_index_finds(
    api: Api, counts: Counts, text: str, found: int, reads: int
) -> None:
    """`found`: jobs in the list, which leaves out those of Vertex AI. `reads`: jobs that were read
    for it. A list that is bounded by times alone reads a page of 20 jobs and the first one beyond.
    """
    pages = read_all_pages(api, filter=text)
    assert (sum(len(page) for page in pages), len(pages)) == (found, 1)
    assert counts.reads_by_call["recent_jobs"] == reads


@pytest.mark.parametrize(
    ("text", "found"),
    [('display_name="Digits 1000"', 1), ('displayName="digits 1000"', 1), ("displayName=no", 0)],
)
def test_list_of_vertex_jobs_reads_only_those_of_the_name(
    api: Api, counts: Counts, text: str, found: int
) -> None:
    status, page = api.send("GET", CUSTOM_JOBS, filter=text)
    assert (status, len(page.get("customJobs", [])), counts.reads) == (200, found, 1)
    assert "nextPageToken" not in page


def test_filter_without_an_index_reads_a_bounded_number_in_few_queries(
    api: Api, counts: Counts
) -> None:
    page = api.list(pageSize="1", filter="trainingInput.region=mars")
    assert list(page) == ["nextPageToken"]
    assert counts.reads_by_call["recent_jobs"] == paging.JOBS_READ_MAX
    full_pages = paging.JOBS_READ_MAX / paging.SIZE_MAX
    growing_pages = 8  # each is twice as large as the one before, up to a full page
    assert counts.calls["recent_jobs"] <= full_pages + growing_pages


ATOMS: Final = (
    "state=RUNNING",
    "state:*ED",
    "state!=FAILED",
    "jobId=job_3",
    "jobId!=job_3",
    "jobId:job_1*",
    "labels.team=vision",
    "labels.team!=vision",
    "labels.team:*",
    "labels:vision",
    "createTime>1795230005",
    f"createTime<={at(12).timestamp():.0f}",
    f"createTime>{at(5).timestamp():.0f}",
    f"createTime>={at(5).timestamp() + 0.5}",
    f"createTime<{at(20).timestamp()}",
    "createTime<nan",
    "createTime>1e300",
    "createTime<-5",
)


def a_filter(source: random.Random, depth: int = 3) -> str:
    """Return a filter of comparisons that an index knows, and of such that none knows."""
    if depth == 0 or source.random() < 0.25:
        return source.choice(ATOMS)
    left, right = a_filter(source, depth - 1), a_filter(source, depth - 1)
    form = source.choice(("({}) AND ({})", "({}) OR ({})", "NOT ({})", "({}) ({})"))
    return form.format(left, right)


@pytest.mark.parametrize("seed", range(20))
def test_no_job_that_a_filter_accepts_is_outside_of_its_bounds(seed: int) -> None:
    source = random.Random(seed)  # noqa: S311 - no secret
    jobs = [
        a_job(
            source.choice(list(JobState)),
            job_id=f"job_{number}",
            created_at=at(number).replace(microsecond=source.choice((0, 1, 999_999))),
            labels=source.choice(((VISION,), (Label("team", "audio"),), ())),
        )
        for number in range(30)
    ]
    views = [service_view(job) for job in jobs]
    narrow = 0
    for _ in range(50):
        text = a_filter(source)
        wanted = list_filter.parse_filter(text, FIELDS)
        condition, start = wanted.bounds.condition(STATES), wanted.bounds.start(None)
        for job, view in zip(jobs, views, strict=True):
            is_read = (
                condition is not None
                and condition.matches(job)
                and (start is None or job.created_at < start.created_at)
                and job.created_at.timestamp() >= wanted.bounds.since_s
            )
            assert is_read or not wanted.holds(view), (text, job)
            narrow += not is_read
    assert narrow, "some bounds leave out jobs"
