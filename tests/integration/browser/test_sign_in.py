"""Signing in, as the browser sees it, and what an open page costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from bench.counting import Counts, counting_store
from tests.support.console_browser import failed_world, opened, running_world
from tests.support.console_site import Site
from trainmaster.console.caches import LedgerCache
from trainmaster.console.job_counter import JobCounter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEVERAL_POLLS_MS = 1_500
"""With `has_prompt_polls`, a page polls after 300 ms."""
CALLS_MAX = 2
"""Requests of a poll: the job, and its new entries. tests/unit/console/test_ledger_cache.py counts
the documents.
"""


def test_token_is_neither_in_the_address_nor_in_the_history_nor_in_a_referer(
    browser: Browser,
) -> None:
    with opened(browser, running_world(), is_signed_in=False) as (page, site):
        referers: list[str] = []
        page.on("request", lambda request: referers.append(request.headers.get("referer", "")))
        token = site.sign_in.token
        page.goto(f"/?token={token}")
        assert token not in page.url
        page.get_by_role("link", name="digits_1").click()
        page.wait_for_url("**/jobs/digits_1")
        assert page.evaluate("document.cookie") == ""
        page.go_back()
        page.go_back()
        assert token not in page.url
        assert page.evaluate("document.referrer") == "" or token not in page.evaluate(
            "document.referrer"
        )
        assert not [referer for referer in referers if token in referer]


def test_page_without_a_token_or_with_a_used_one_is_401(browser: Browser) -> None:
    with opened(browser, running_world()) as (page, site):
        origin = f"http://{site.sign_in.hosts[0]}"
        stranger = browser.new_context(base_url=origin)
        for path in (
            "/jobs",
            f"/?token={site.sign_in.token}",
            "/?token=guess",
            "/jobs/digits_1.json",
        ):
            response = stranger.new_page().goto(path)
            assert response is not None
            assert response.status == 401, path
        stranger.close()
        assert page.goto("/jobs").status == 200  # type: ignore[union-attr]


def test_page_under_a_foreign_name_is_403(browser: Browser) -> None:
    with opened(browser, running_world(), expected=("403", "foreign.localhost")) as (page, site):
        port = site.sign_in.hosts[0].rpartition(":")[2]
        response = page.goto(f"http://foreign.localhost:{port}/jobs")
        assert response is not None
        assert response.status == 403


def counted(site: Site, counts: Counts) -> None:
    """Count the reads of the site's store."""
    store = counting_store(site.world.store, counts)
    site.app.config["CONSOLE"] = replace(
        site.console(), store=store, ledgers=LedgerCache(store), counter=JobCounter(store)
    )


def test_idle_page_of_a_job_reads_twice_per_poll_and_a_hidden_page_never(browser: Browser) -> None:
    with opened(browser, running_world(), has_prompt_polls=True) as (page, site):
        counts = Counts()
        counted(site, counts)
        page.goto("/jobs/digits_1")
        polls: list[int] = []
        page.on(
            "response",
            lambda response: polls.append(response.status) if "digits_1" in response.url else None,
        )
        page.wait_for_timeout(1)
        counts.calls.clear()
        while len(polls) < 6:
            page.wait_for_event("response")
        assert set(polls[2:]) == {304}, (
            "after the page itself and the first poll, which has no tag yet"
        )
        under_way = 1
        assert counts.calls.total() <= CALLS_MAX * (len(polls) + under_way)
        page.evaluate(
            """() => { Object.defineProperty(document, 'visibilityState', {value: 'hidden'});
            document.dispatchEvent(new Event('visibilitychange')); }"""
        )
        page.wait_for_timeout(600)  # a poll that was under way
        before = counts.reads
        page.wait_for_timeout(SEVERAL_POLLS_MS)
        assert counts.reads == before


def test_page_of_an_ended_job_has_no_timer(browser: Browser) -> None:
    with opened(browser, failed_world(), has_prompt_polls=True) as (page, site):
        counts = Counts()
        counted(site, counts)
        page.goto("/jobs/digits_1")
        before = counts.reads
        page.wait_for_timeout(SEVERAL_POLLS_MS)
        assert counts.reads == before
        assert page.locator("#live").inner_text() == ""
