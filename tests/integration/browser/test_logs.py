"""The log page: filters, addresses of lines, at most 1,000 lines, and following a log
that grows.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import (
    barriers,
    has_only_rows_in_tables,
    log_entry,
    opened,
    running_world,
)
from tests.support.console_site import Site
from trainmaster.console.pages.log_window import FOLLOWED_MAX, LINES_MAX

HEAVY = pytest.mark.heavy(
    fact="a long log is a window that follows its end and names its gaps",
    quick="`unit/console/test_log_page.py`, following in the same module",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LINES = (
    "() => [...document.querySelectorAll('table.log tbody tr')].map(row =>"
    " row.lastElementChild.textContent)"
)

COLLECT = f"""() => {{
const add = () => ({LINES})().forEach(line => window.seen.add(line));
window.seen = new Set();
add();
document.addEventListener('console:updated', add);
}}"""
"""Remember each line that an update shows."""


class GrowingLog:
    """A log of two replicas. Its newest lines are kept: more than a page shows."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._count = 0

    def grow(self, count: int) -> None:
        numbers = range(self._count, self._count + count)
        added = [self._entry(number) for number in reversed(numbers)]
        self._count += count
        self._site.entries = (added + self._site.entries)[: 10 * LINES_MAX]

    @property
    def last(self) -> str:
        """Text of the newest line."""
        return str(self._entry(self._count - 1)["textPayload"])

    @staticmethod
    def _entry(number: int) -> dict[str, object]:
        task = f"worker-replica-{number % 2}"
        return log_entry(
            "INFO", task, f"{task} line {number // 2}", f"id{number}", 300 + number / 1_000
        )


def lines(page: Page) -> list[str]:
    found: list[str] = page.evaluate(LINES)
    return found


def assert_in_order_and_once(shown: list[str]) -> None:
    assert len(shown) == len(set(shown)) <= FOLLOWED_MAX * LINES_MAX
    for task in ("worker-replica-0", "worker-replica-1"):
        numbers = [int(line.rpartition(" ")[2]) for line in shown if line.startswith(task)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@HEAVY
def test_log_of_100_000_lines_is_shown_as_a_window_and_followed_line_by_line(
    browser: Browser,
) -> None:
    with opened(browser, running_world(), has_prompt_polls=True) as (page, site):
        log = GrowingLog(site)
        log.grow(100_000)
        page.goto("/jobs/digits_1/logs")
        first = log._count - LINES_MAX
        page.evaluate(COLLECT)
        for _ in range(4):
            log.grow(4_400)
            page.wait_for_function("last => window.seen.has(last)", arg=log.last)
            assert_in_order_and_once(lines(page))
        assert page.evaluate("window.seen.size") == log._count - first, "every line was shown"
        assert page.locator("#gap").count() == 0


def test_following_stops_on_scroll_up_counts_new_lines_and_continues(browser: Browser) -> None:
    with opened(browser, running_world(), has_prompt_polls=True) as (page, site):
        log = GrowingLog(site)
        log.grow(200)
        page.goto("/jobs/digits_1/logs")
        page.get_by_role("button", name="Follow").click()
        page.wait_for_function("window.scrollY > 0")
        log.grow(50)
        page.locator("#line-id249").wait_for()
        page.wait_for_function(
            "window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 80"
        )
        assert page.locator("#follow").inner_text() == "Following"
        page.mouse.wheel(0, -600)
        page.get_by_role("button", name="Follow", exact=True).wait_for()
        top = page.evaluate("window.scrollY")
        log.grow(14)
        page.get_by_role("button", name="↓ 14 new").wait_for()
        assert page.evaluate("window.scrollY") == pytest.approx(top, abs=2)
        page.keyboard.press("f")
        page.wait_for_function(
            "window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 80"
        )
        assert page.locator("#follow").inner_text() == "Following"


@HEAVY
def test_page_that_falls_behind_names_the_gap_and_opens_it(browser: Browser) -> None:
    with opened(browser, running_world(), has_prompt_polls=True) as (page, site):
        log = GrowingLog(site)
        log.grow(200)
        page.goto("/jobs/digits_1/logs")
        log.grow(8_000)
        page.locator("#line-id8199").wait_for()
        assert (
            "an unknown number of lines from 2026-11-21T03:05:00.199Z to"
            in page.locator("#gap").inner_text()
        )
        page.get_by_role("button", name="↓ 5000+ new").wait_for()
        log.grow(10)
        page.locator("#line-id8209").wait_for()
        assert_in_order_and_once(lines(page))
        page.get_by_role("link", name="Open this time").click()
        page.wait_for_url("**from=*")
        assert lines(page)[:2] == ["worker-replica-0 line 100", "worker-replica-1 line 100"]
        assert barriers(page, "light") == []


def test_filters_are_sent_to_cloud_logging_and_kept_in_the_address(browser: Browser) -> None:
    with opened(browser, running_world()) as (page, site):
        page.goto("/jobs/digits_1/logs")
        page.get_by_label("Replica").select_option("worker-replica-1")
        page.get_by_label("Severity").select_option("ERROR")
        page.get_by_label("Text").fill('say "loss"')
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**severity=ERROR*")
        for part in (
            'task_name"="worker-replica-1"',
            "severity>=ERROR",
            'jsonPayload.message:"say \\"loss\\""',
        ):
            assert part in site.queries[-1]
        page.reload()
        assert page.get_by_label("Text").input_value() == 'say "loss"'
        assert page.locator(".empty").inner_text() == "No line matches these filters."


def test_address_of_a_line_opens_the_log_at_that_line(browser: Browser) -> None:
    with opened(browser, running_world()) as (page, site):
        log = GrowingLog(site)
        log.grow(400)
        page.goto("/jobs/digits_1/logs")
        assert has_only_rows_in_tables(page)
        page.locator("#line-id17 a").click()
        page.wait_for_url("**around=*#line-id17")
        assert 'timestamp>="2026-11-21T03:04:30' in site.queries[-1]
        page.goto("about:blank")
        page.go_back()
        box = page.locator("#line-id17").bounding_box()
        height = page.evaluate("window.innerHeight")
        assert box is not None
        assert 0 <= box["y"] < height


def test_older_lines_are_one_click_away_and_the_limit_is_named(browser: Browser) -> None:
    with opened(browser, running_world()) as (page, site):
        GrowingLog(site).grow(1_500)
        page.goto("/jobs/digits_1/logs")
        assert f"this page shows the newest {LINES_MAX}" in page.locator("#older").inner_text()
        page.get_by_role("link", name="Older lines").click()
        page.wait_for_url("**before=*")
        assert 'timestamp<"2026-11-21T03:05:00.5' in site.queries[-1]
