"""The console by keyboard alone: keys, visible focus, and focus that polls do not take away."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import failed_world, log_entry, opened, running_world
from tests.support.jobs import WORKER_0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TABS_MAX = 80


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element that matches the selector has the focus, which is visible on the
    way.
    """
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            style = page.evaluate(
                "() => { const s = getComputedStyle(document.activeElement); return"
                " [s.outlineStyle, s.outlineWidth]; }"
            )
            assert style == ["solid", "2px"]
            return
    raise AssertionError(f"{selector} is not reached by {TABS_MAX} tabs")


def test_keys_lead_from_the_list_to_a_failed_jobs_decision_and_its_log_lines(
    browser: Browser,
) -> None:
    world = failed_world()
    key = world.ledger[-1].key
    with opened(browser, world) as (page, site):
        site.entries = [log_entry("ERROR", "worker-replica-0", "the last line", second=603.0)]
        page.goto("/jobs")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/digits_1")
        tab_to(page, f"#failure a[href='#decision-{key}']")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**#decision-{key}")
        tab_to(page, f"[id='decision-{key}'] a[href*='/logs?around=']")
        page.keyboard.press("Enter")
        page.wait_for_url("**/logs?around=*")
        assert page.locator("table.log td.text").inner_text() == "the last line"
        assert len(site.queries) == 2, "the lines before that time, and those after it"


def test_keys_are_listed_and_ignored_while_typing(browser: Browser) -> None:
    with opened(browser, failed_world()) as (page, _):
        page.goto("/jobs")
        page.keyboard.press("/")
        page.keyboard.type("j?kfp")
        assert page.locator("#search").input_value() == "j?kfp"
        assert page.url.endswith("/jobs")
        page.locator("#search").evaluate("element => element.blur()")
        page.keyboard.press("?")
        page.wait_for_url("**/help")
        listed = page.locator("kbd").all_inner_texts()
        assert {"/", "j", "k", "Enter", "g", "f", "p", "?"} <= set(listed)
        page.keyboard.press("g")
        page.keyboard.press("j")
        page.wait_for_url("**/jobs")


def test_focus_stays_over_five_polls_that_change_the_page(browser: Browser) -> None:
    world = running_world()
    with opened(browser, world, has_prompt_polls=True) as (page, _):
        page.goto("/jobs/digits_1")
        tab_to(page, "#replicas a.row-link, #replicas a")
        page.evaluate("document.activeElement.isKept = true")
        for number in range(5):
            world.kill(WORKER_0)
            world.deliver()
            world.send("vm-ready", WORKER_0)
            page.locator(f"[id='decision-{world.ledger[-1].key}']").wait_for(state="attached")
            assert page.evaluate("document.activeElement.isKept"), number
