"""With JavaScript off, the list, its filters and pages, a job's page, its logs and its actions
work.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.support.console_browser import follow, log_entry, opened, running_world
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.model.job import JobState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_list_filters_and_pages_work(browser: Browser) -> None:
    world = World()
    for number in range(1, 5):
        world.job_id = f"digits_{number}"
        world.wait(10)
        world.submit(
            {**a_spec(), "labels": {"team": "vision"}}, source=f"gs://b/jobs/{number}.yaml#1"
        )
    with opened(browser, world, has_script=False) as (page, _):
        page.goto("/jobs?size=3")
        assert page.locator("tbody tr").count() == 3
        follow(page, page.get_by_role("link", name="Older jobs"))
        assert page.locator("tbody .row-link").all_inner_texts() == ["digits_1"]
        page.goto("/jobs")
        follow(page, page.get_by_role("link", name="team=vision").first)
        page.get_by_label("Job id or name").fill("3")
        follow(page, page.get_by_role("button", name="Filter"))
        assert page.locator("tbody .row-link").all_inner_texts() == ["digits_3"]
        page.get_by_label("Job id or name").fill("nothing")
        follow(page, page.get_by_role("button", name="Filter"))
        assert "matches these filters" in page.locator("#empty").inner_text()
        follow(page, page.get_by_role("link", name="Remove all filters"))
        assert page.locator("tbody tr").count() == 4


def test_job_page_logs_and_cancellation_work(browser: Browser) -> None:
    world = running_world()
    with opened(browser, world, has_script=False) as (page, site):
        site.entries = [
            log_entry("INFO", "worker-replica-0", f"line {n}", f"id-{n}") for n in range(3)
        ]
        page.goto("/jobs")
        follow(page, page.get_by_role("link", name="digits_1"))
        assert page.locator("svg.timeline .lane").count() == 4
        assert page.locator("table.decisions tbody tr").count() > 0
        follow(page, page.get_by_role("link", name="Logs"))
        assert page.locator("table.log tbody tr").count() == 3
        page.go_back()
        follow(page, page.get_by_role("link", name="Cancel…"))
        follow(page, page.get_by_role("button", name="Cancel the job"))
        page.wait_for_url("**/jobs/digits_1")
        assert page.locator("#job-state").inner_text() == "CANCELLED"
    assert world.state == JobState.CANCELLED


def test_resubmission_works(browser: Browser) -> None:
    world = running_world()
    with opened(browser, world, has_script=False) as (page, _):
        page.goto("/jobs/digits_1")
        follow(page, page.get_by_role("link", name="Resubmit…"))
        page.get_by_label("Id of the new job").fill("digits_again")
        follow(page, page.get_by_role("button", name="Submit the job"))
        assert "published" in page.locator("#outcome").inner_text()
        world.deliver()
        follow(page, page.get_by_role("link", name="Reload"))
        follow(page, page.get_by_role("link", name="Open digits_again"))
        assert "in the console, by anna@example.com" in page.locator("#facts").inner_text()
