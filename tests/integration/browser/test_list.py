"""The list of jobs: a new job takes its place, filters agree with the store, and 1,000 jobs are
fast.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import (
    UPDATE_MS,
    compared_world,
    follow,
    has_only_rows_in_tables,
    opened,
)
from tests.support.job_lists import USERS, add_job, world_of_jobs
from trainmaster.console.pages.job_filters import SIZE
from trainmaster.core.model.job import Job, JobState
from trainmaster.flows.user_requests import cancel_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def names(page: Page) -> list[str]:
    return page.locator("tbody .row-link").all_inner_texts()


def chips(page: Page) -> dict[str, int]:
    """Return the counts of the state chips that are not zero."""
    texts = page.locator("#chips .chip").all_inner_texts()
    counts = {name: int(count.replace(",", "")) for name, count in (text.split() for text in texts)}
    return {name: count for name, count in counts.items() if count}


def total(page: Page) -> str:
    return page.locator("#total").inner_text()


def test_jobs_that_are_selected_stay_so_while_the_list_is_updated_and_are_compared(
    browser: Browser,
) -> None:
    world = compared_world()
    with opened(browser, world, has_prompt_polls=True) as (page, _):
        page.goto("/jobs")
        for job_id in ("digits_2", "digits_1"):
            page.get_by_label(f"Select {job_id}").check()
        world.wait(60)
        cancel_job("digits_2", "anna", world.deps)
        page.locator("#job-digits_2 .state-cancelled").wait_for()
        follow(page, page.get_by_role("button", name="Compare"))
        assert page.locator("table.compare thead").first.inner_text().split() == [
            "Jobs",
            "digits_2",
            "digits_1",
        ]
        page.get_by_role("checkbox", name="digits_1").uncheck()
        follow(page, page.get_by_role("button", name="Compare"))
        assert page.locator("table.compare thead").first.inner_text().split() == [
            "Jobs",
            "digits_2",
        ]


def test_all_jobs_of_a_page_are_selected_with_one_box_and_cancelled(browser: Browser) -> None:
    world = world_of_jobs(5)
    with opened(browser, world, has_prompt_polls=True) as (page, _):
        page.goto("/jobs")
        page.get_by_label("Select digits_0002").check()
        select_all = page.get_by_label("Select all jobs of this page")
        assert select_all.evaluate("box => box.indeterminate")
        select_all.check()
        add_job(world, 6)
        page.locator("#job-digits_0006").wait_for(state="attached")
        assert not page.get_by_label("Select digits_0006").is_checked(), "it was not there"
        assert select_all.evaluate("box => box.indeterminate")
        page.get_by_role("button", name="Cancel the selected jobs").click()
        page.get_by_role("heading", name="Cancel 4 jobs?").wait_for()
        assert "not cancelled: digits_0004." in page.locator("#ended").inner_text()
        page.get_by_role("button", name="Cancel 4 jobs").click()
        page.wait_for_url("**/jobs")
        assert chips(page) == {"Queued": 1, "Cancelled": 5}


def test_heading_sorts_the_list_and_another_click_reverses_it(browser: Browser) -> None:
    with opened(browser, world_of_jobs(4)) as (page, _):
        page.goto("/jobs")
        job = page.get_by_role("columnheader", name="Job", exact=True)
        assert job.get_attribute("aria-sort") == "none"
        job.get_by_role("link").click()
        page.wait_for_url("**sort=job&order=asc")
        assert job.get_attribute("aria-sort") == "ascending"
        assert names(page) == [f"digits_{number:04d}" for number in (1, 2, 3, 4)]
        job.get_by_role("link").click()
        page.wait_for_url("**sort=job&order=desc")
        assert names(page) == [f"digits_{number:04d}" for number in (4, 3, 2, 1)]


def test_open_list_shows_a_new_job_at_its_place_and_keeps_everything_else(browser: Browser) -> None:
    world = world_of_jobs(60)
    with opened(browser, world, has_prompt_polls=True) as (page, _):
        page.goto("/jobs")
        page.evaluate("for (const row of document.querySelectorAll('tbody tr')) row.isKept = true")
        page.evaluate("""() => { const link = document.querySelector('#job-digits_0031 .row-link');
            link.focus({preventScroll: true}); getSelection().selectAllChildren(link);
            link.scrollIntoView({block: 'center', behavior: 'instant'}); }""")
        before = page.locator("#job-digits_0031").bounding_box()
        assert before is not None
        add_job(world, 61)
        page.locator("#job-digits_0061").wait_for(state="attached")
        assert names(page) == [f"digits_{number:04d}" for number in range(61, 61 - SIZE, -1)]
        assert (
            page.evaluate(
                "[...document.querySelectorAll('tbody tr')].filter(row => row.isKept).length"
            )
            == SIZE - 1
        )
        assert page.evaluate("document.activeElement.textContent") == "digits_0031"
        assert page.evaluate("getSelection().toString()") == "digits_0031"
        after = page.locator("#job-digits_0031").bounding_box()
        assert after is not None
        assert after["y"] == pytest.approx(before["y"], abs=2), (
            "the browser's scroll anchor keeps the view"
        )


def test_open_list_shows_a_new_job_at_its_next_poll_ten_seconds_later(browser: Browser) -> None:
    world = world_of_jobs(1)
    with opened(browser, world) as (page, _):
        page.goto("/jobs")
        assert page.locator("body").get_attribute("data-poll") == "10"
        add_job(world, 2)
        page.locator("#job-digits_0002").wait_for(timeout=UPDATE_MS)


def test_combined_filters_agree_with_the_store_over_all_pages(browser: Browser) -> None:
    world = world_of_jobs(240)

    def is_wanted(job: Job) -> bool:
        is_vision = any(label.value == "vision" for label in job.labels)
        return (
            job.state is JobState.CANCELLED
            and is_vision
            and job.submitted_by == USERS[1]
            and "1" in job.job_id
        )

    wanted = [job.job_id for job in world.store.recent_jobs(1_000) if is_wanted(job)]
    assert len(wanted) > 6
    # Every other job is of the team, and every third of these of the user.
    of_team = {"Queued": 60, "Cancelled": 60}
    others = [
        job
        for job in world.store.recent_jobs(1_000)
        if job.submitted_by == USERS[1] and "1" in job.job_id
    ]
    states = Counter(job.state.capitalize() for job in others if job.labels[0].value == "vision")
    with opened(browser, world) as (page, _):
        page.goto("/jobs?size=4")
        page.locator("#chips").get_by_role("link", name=re.compile("^Cancelled")).click()
        page.wait_for_url("**state=CANCELLED*")
        page.get_by_role("link", name="team=vision").first.click()
        page.wait_for_url("**label=team*")
        assert (chips(page), total(page)) == (of_team, "60 matching jobs.")
        page.get_by_label("User").fill("boris")
        page.get_by_label("Job id or name").fill("1")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**q=1*")
        page.goto(f"{page.url}&size=4")
        shown_counts = dict(states), f"{len(wanted)} matching jobs."
        assert (chips(page), total(page)) == shown_counts
        seen = names(page)
        first = page.url
        while page.get_by_role("link", name="Older jobs").count():
            follow(page, page.get_by_role("link", name="Older jobs"))
            assert names(page) != seen[-4:]
            assert (chips(page), total(page)) == shown_counts
            seen += names(page)
        assert seen == wanted
        assert "These are all matching jobs" in page.locator("#paging").inner_text()
        last, shown = page.url, names(page)
        page.reload()
        assert names(page) == shown
        assert (chips(page), total(page)) == shown_counts
        page.goto(first)
        assert names(page) == wanted[:4]
        page.go_back()
        assert (page.url, names(page)) == (last, shown)
        assert (chips(page), total(page)) == shown_counts
        page.goto("about:blank")
        page.goto(first)
        assert names(page) == wanted[:4]
        assert (chips(page), total(page)) == shown_counts


def test_open_list_receives_a_page_only_when_it_changed_and_its_counts_follow_the_store(
    browser: Browser,
) -> None:
    world = world_of_jobs(60)
    with opened(browser, world, has_prompt_polls=True) as (page, _):
        statuses: list[int] = []
        page.on(
            "response",
            lambda response: statuses.append(response.status) if "/jobs" in response.url else None,
        )
        page.goto("/jobs")
        for _poll in range(2):
            with page.expect_response("**/jobs"):
                pass
        assert statuses[0] == 200
        assert set(statuses[1:]) == {304}
        assert has_only_rows_in_tables(page)
        assert (chips(page), total(page)) == ({"Queued": 45, "Cancelled": 15}, "60 jobs.")
        cancel_job("digits_0001", "anna", world.deps)
        page.locator("#chips", has_text=re.compile(r"Cancelled\s+16")).wait_for()
        assert (chips(page), total(page)) == ({"Queued": 44, "Cancelled": 16}, "60 jobs.")


@pytest.mark.heavy(
    fact="a list of a thousand jobs is complete, and updates leave its rows",
    quick="`unit/console/test_job_list.py` with 40 jobs",
)
def test_update_among_a_thousand_jobs_touches_one_row_and_all_are_reachable(
    browser: Browser,
) -> None:
    world = world_of_jobs(1_050)
    with opened(browser, world, has_prompt_polls=True) as (page, _):
        page.goto("/jobs?size=1000")
        assert len(names(page)) == 1_000
        page.evaluate("for (const row of document.querySelectorAll('tbody tr')) row.isKept = true")
        page.evaluate("""() => {
            window.touched = new Set();
            const everything = {
                subtree: true,
                childList: true,
                characterData: true,
                attributes: true,
            };
            new MutationObserver(records => {
                for (const {target} of records) {
                    const node = target.nodeType === 1 ? target : target.parentElement;
                    window.touched.add(node?.closest('tr')?.id || node?.id || node?.tagName);
                }
            }).observe(document.querySelector('tbody'), everything);
        }""")
        cancel_job("digits_0702", "anna", world.deps)
        page.locator("#job-digits_0702 .state-cancelled").wait_for(state="attached")
        assert set(page.evaluate("[...window.touched]")) == {"job-digits_0702"}
        assert page.evaluate("[...document.querySelectorAll('tbody tr')].every(row => row.isKept)")
        page.get_by_role("link", name="Older jobs").click()
        page.wait_for_url("**after=*")
        assert names(page)[-1] == "digits_0001"
        page.goto("/jobs?q=digits_0001")
        assert names(page) == []
        assert re.search(r"Read 10\d\d jobs\.", page.locator("#paging").inner_text())
        page.get_by_role("link", name="Older jobs").click()
        page.wait_for_url("**after=*")
        assert names(page) == ["digits_0001"]
