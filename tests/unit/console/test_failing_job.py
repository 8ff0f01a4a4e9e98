"""A job that keeps failing in the console: the list, the job's page, and both as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.support.console_site import Site
from tests.support.failing_world import LAST, failing_world
from tests.support.jobs import START
from tests.unit.console.pages import words
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica

PAGES = ("/jobs", "/jobs/failing_1")


def site_of(*, failures: int, workers: int = 0) -> Site:
    """Return the console of a job whose chief has failed so often in a row."""
    site = Site(failing_world(START, failures=failures, workers=workers))
    site.open()
    return site


@pytest.mark.parametrize("workers", [0, 2], ids=["judged alone", "gang"])
def test_list_and_page_say_that_the_job_fails_and_what_follows(workers: int) -> None:
    site = site_of(failures=3, workers=workers)
    assert f"failing: 3 in a row, last {LAST}" in words(site.text("/jobs"))
    page = words(site.text("/jobs/failing_1"))
    assert f"Failing: 3 in a row {LAST} First at" in page
    assert "What comes next Restart 3 of 5" in page
    assert "Every replica runs." not in page


@pytest.mark.parametrize("path", ["/jobs.json", "/jobs/failing_1.json"])
def test_json_has_the_failures_in_a_row_as_fields(path: str) -> None:
    answer = site_of(failures=3).get(path).get_json()
    (job,) = answer.get("jobs", [answer])
    assert job["trainmaster"]["failing"]["failures"] == 3
    assert job["trainmaster"]["failing"]["lastFailure"] == LAST


def test_first_failure_and_a_program_that_runs_again_show_nothing() -> None:
    first = site_of(failures=1)
    recovered = site_of(failures=3)
    recovered.world.wait(3600)
    for site in (first, recovered):
        for path in PAGES:
            assert "failing: " not in words(site.text(path)).lower()


@pytest.mark.parametrize(("workers", "asked"), [(0, [["failing_1"]]), (2, [])])
def test_list_reads_the_replicas_only_of_jobs_whose_documents_do_not_say_it(
    monkeypatch: pytest.MonkeyPatch, workers: int, asked: list[list[str]]
) -> None:
    site = site_of(failures=3, workers=workers)
    calls = []
    find = site.world.store.failing_replicas

    def counted(jobs: Sequence[Job]) -> Mapping[str, tuple[Replica, ...]]:
        calls.append([job.job_id for job in jobs])
        return find(jobs)

    monkeypatch.setattr(site.world.store, "failing_replicas", counted)
    site.text("/jobs")
    assert calls == asked
