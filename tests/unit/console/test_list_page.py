"""The page of all jobs: its rows, filters and pages."""

from __future__ import annotations

import html
import re

import pytest

from tests.support.console_site import Site
from tests.unit.console.pages import job_rows, three_jobs, words


def test_list_shows_every_job_with_state_program_and_machines(site: Site) -> None:
    site.world.start_running()
    page = words(site.text("/jobs"))
    assert "digits_1 python -m trainer.task" in page
    assert "RUNNING" in page
    assert "1 x n1-standard-4 (chief), 2 x n1-standard-4 (worker)" in page


def test_empty_list_says_why_and_how_to_submit(site: Site) -> None:
    page = site.text("/jobs")
    assert "There are no jobs in the project my-project yet" in page
    assert "trainmaster submit --folder . -- python train.py" in page
    assert "No job matches these filters." in site.text("/jobs?state=FAILED")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["digits_3", "digits_2", "digits_1"]),
        ("?label=team", ["digits_2", "digits_1"]),
        ("?label=team%3Dspeech", ["digits_2"]),
        ("?q=IGITS_3", ["digits_3"]),
        ("?state=RUNNING", []),
        ("?state=PREPARING&state=QUEUED", ["digits_3", "digits_2", "digits_1"]),
        ("?user=anna", []),
        ("?label=team&q=1", ["digits_1"]),
    ],
)
def test_list_filters_apply_together(site: Site, query: str, expected: list[str]) -> None:
    three_jobs(site)
    assert job_rows(site.text(f"/jobs{query}")) == expected


def test_list_pages_reach_every_job_once(site: Site) -> None:
    three_jobs(site)
    path, seen = "/jobs?size=1&label=team", list[str]()
    for _ in range(5):
        page = site.text(path)
        seen += job_rows(page)
        match = re.search(r'<a href="([^"]+)" rel="next"', page)
        if match is None:
            break
        path = html.unescape(match[1])
    assert seen == ["digits_2", "digits_1"]


@pytest.mark.parametrize(
    "query",
    [
        "state=WRONG",
        "size=0",
        "size=x",
        "after=yesterday",
        "after=2026-11-21T03:00:00Z/a/b",
        "after=2026-11-21T03:00:00Z/__job__",
        f"after=2026-11-21T03:00:00Z/{'a' * 2_000}",
    ],
)
def test_list_with_a_wrong_parameter_is_400_and_names_it(site: Site, query: str) -> None:
    response = site.get(f"/jobs?{query}")
    assert response.status_code == 400
    assert f"{query.partition('=')[0]}: must be" in response.text
