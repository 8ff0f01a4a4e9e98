"""Every page: no errors, no foreign requests, exact headers, and texts of programs that
never run.
"""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import (
    JOB_PATHS,
    failed_world,
    large_world,
    log_entry,
    opened,
    running_world,
    tuning_world,
)
from tests.support.world import World

HEAVY = pytest.mark.heavy(
    fact="each page has its exact headers and no error",
    quick="headers of four pages in the same module, `unit/console/test_web_security.py`",
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "private, no-cache",
}
ATTACKS: Final = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "'-document.title='owned'-'",
    "\x1b[31mred\x1b[0m \x07bell",
    "user\u202egnp.exe \u2066hidden\u2069",
)
"""Texts that change the title of a page that runs them, and texts that a page must not show as they
are: an escape sequence of a terminal, and characters that change the direction of the text.
"""
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visit(page: Page, path: str) -> None:
    response = page.goto(path)
    assert response is not None
    assert response.status == 200, path
    assert {name: response.headers.get(name) for name in HEADERS} == HEADERS, path
    page.wait_for_load_state("networkidle")
    assert "owned" not in page.title()


@HEAVY
@pytest.mark.parametrize("make_world", [running_world, failed_world])
def test_pages_of_a_job_show_no_error_and_have_exact_headers(
    browser: Browser, make_world: type[World]
) -> None:
    with opened(browser, make_world()) as (page, _):
        for path in JOB_PATHS:
            visit(page, path)


@HEAVY
def test_pages_of_a_large_and_of_a_tuning_job_show_no_error(browser: Browser) -> None:
    with opened(browser, large_world()) as (page, _):
        for path in ("/jobs/digits_1", "/jobs/digits_1?replicas=1", "/jobs/digits_1?table=1&all=1"):
            visit(page, path)
    with opened(browser, tuning_world()) as (page, _):
        for path in ("/jobs", "/jobs/digits_1", "/jobs/digits_1-trial-1", "/jobs/digits_1/logs"):
            visit(page, path)


def test_texts_of_programs_are_shown_as_text_and_never_run(browser: Browser) -> None:
    world = running_world()
    replica = world.replicas[1].replica_id
    error = {"type": "ImportError", "message": f"{ATTACKS[0]} {ATTACKS[1]}", "frame": ATTACKS[2]}
    world.exit_program(replica, 1, error=error, tail="\n".join(ATTACKS))
    world.deliver()
    with opened(browser, world) as (page, site):
        site.entries = [
            log_entry("ERROR", "worker-replica-0", text, f"id-{n}", 300 - n)
            for n, text in enumerate(ATTACKS)
        ]
        for path in ("/jobs", "/jobs/digits_1", "/jobs/digits_1/logs", "/jobs/digits_1?all=1"):
            visit(page, path)
            assert page.locator("main script, main img").count() == 0
            assert CONTROL.search(page.locator("main").inner_text()) is None, path
        page.goto("/jobs/digits_1")
        assert ATTACKS[0] in page.locator("pre.tail").inner_text()
        page.goto("/jobs/digits_1/logs")
        texts = page.locator("table.log td.text").all_inner_texts()
        newest, second_newest = ATTACKS[:2]
        assert texts[-2:] == [second_newest, newest]


def test_texts_in_addresses_and_forms_are_shown_as_text(browser: Browser) -> None:
    with opened(browser, running_world(), expected=("400", "404", "422")) as (page, _):
        for text in ATTACKS[:3]:
            page.goto("/jobs")
            for label in ("Job id or name", "User", "Label"):
                page.get_by_label(label).fill(text)
            page.get_by_role("button", name="Filter").click()
            page.wait_for_url("**q=*")
            assert page.get_by_label("Job id or name").input_value() == text
            page.goto("/jobs/digits_1/clone")
            page.get_by_label("Id of the new job").fill(text)
            page.locator("#spec").fill(text)
            page.get_by_role("button", name="Submit the job").click()
            page.locator("#problems").wait_for()
            assert page.locator("#spec").input_value() == text
            assert page.locator("main script, main img").count() == 0, text
            assert "owned" not in page.title(), text
