"""The console in a real Chromium, on adapters in memory: no errors, no other origins, updates, and keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from werkzeug.serving import make_server

from shared.core.model.job import JobState
from tests.support.console_site import Site
from tests.support.jobs import WORKER_0, a_spec
from tests.support.serving import serving
from tests.support.study import Study
from tests.support.world import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
UPDATE_MS = 60_000
"""Longest wait for a poll on a busy machine; the pages poll every 5 or 10 seconds."""
JOB_PATHS = (
    "/jobs",
    "/jobs/digits_1",
    "/jobs/digits_1/logs",
    "/jobs/digits_1/replicas/worker-0",
    "/jobs/digits_1/cancel",
    "/installation",
    "/help",
)
AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install --no-install-recommends chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, chromium_sandbox=os.getuid() != 0, args=["--no-proxy-server"], timeout=300_000
        )
        yield browser
        browser.close()


@contextmanager
def opened(chromium: Browser, world: World, *, has_script: bool = True) -> Iterator[tuple[Page, Site]]:
    """Serve the console of a world, sign in, and fail on any error or foreign request of the pages."""
    site = Site(world)
    problems: list[str] = []
    with serving(make_server("127.0.0.1", 0, site.app, threaded=True)) as origin:
        site.sign_in.hosts = (origin.removeprefix("http://"),)
        context: BrowserContext = chromium.new_context(java_script_enabled=has_script, base_url=origin)
        context.set_default_timeout(UPDATE_MS)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(origin) else problems.append(request.url))
        page.goto(f"/?token={site.sign_in.token}")
        yield page, site
        context.close()
    assert problems == []


def failed_world() -> World:
    world = World()
    world.start_running()
    world.wait(600)
    error = {"type": "ImportError", "message": "<img src=x onerror=document.title='owned'>", "frame": "task.py:3 in f"}
    world.exit_program(WORKER_0, 1, error=error, tail="<script>document.title='owned'</script>")
    world.deliver()
    assert world.state == JobState.FAILED
    return world


def test_pages_of_a_failed_job_show_no_error_and_run_no_text_of_programs(chromium: Browser) -> None:
    with opened(chromium, failed_world()) as (page, _):
        assert "token" not in page.url
        for path in JOB_PATHS:
            page.goto(path)
            assert "owned" not in page.title()
        page.goto("/jobs/digits_1")
        assert page.locator("#failure script, #failure img").count() == 0
        assert "<script>" in page.locator("pre.tail").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_barriers_that_axe_finds(chromium: Browser, scheme: Literal["light", "dark"]) -> None:
    study = Study()
    study.start_tuning()
    study.report_ready(1)
    study.complete_trial(1, 0.75)
    for world, paths in ((failed_world(), JOB_PATHS), (study, ("/jobs/digits_1",))):
        with opened(chromium, world) as (page, site):
            site.entries = [log_entry("ERROR", "worker-replica-0"), log_entry("WARNING", "service")]
            page.emulate_media(color_scheme=scheme)
            for path in paths:
                page.goto(path)
                page.evaluate(AXE)
                violations = page.evaluate("tags => axe.run(document, { runOnly: tags }).then(r => r.violations)", WCAG)
                assert [(path, found["id"], found["nodes"][0]["html"]) for found in violations] == []


def log_entry(severity: str, task: str) -> dict[str, object]:
    labels = {"ml.googleapis.com/task_name": task}
    time = "2026-11-21T03:05:00.000000001Z"
    return {"timestamp": time, "insertId": task, "severity": severity, "labels": labels, "textPayload": "a line"}


def test_pages_of_a_tuning_job_show_no_error(chromium: Browser) -> None:
    study = Study()
    study.start_tuning()
    study.report_ready(1)
    study.complete_trial(1, 0.75)
    with opened(chromium, study) as (page, _):
        page.goto("/jobs/digits_1")
        assert page.locator("svg.plot").count() == 2
        page.locator("svg.plot a").first.click()
        page.wait_for_url("**/digits_1-trial-1")


def test_pages_work_without_a_script_and_cancel_the_job(chromium: Browser) -> None:
    world = World()
    world.start_running()
    with opened(chromium, world, has_script=False) as (page, _):
        page.get_by_label("Job id or name").fill("nothing")
        page.get_by_role("button", name="Filter").click()
        assert "matches these filters" in page.locator("#empty").inner_text()
        page.get_by_role("link", name="Remove all filters").click()
        page.get_by_role("link", name="digits_1").click()
        assert page.locator("svg.timeline .lane").count() == 4
        page.get_by_role("link", name="Cancel…").click()
        page.get_by_role("button", name="Cancel the job").click()
        page.wait_for_url("**/jobs/digits_1")
        assert page.locator("#job-state").inner_text() == "CANCELLED"
    assert world.state == JobState.CANCELLED


def test_open_page_shows_a_killed_worker_and_the_rule_without_reload(chromium: Browser) -> None:
    world = World()
    world.start_running()
    world.wait(60)
    with opened(chromium, world) as (page, _):
        page.goto("/jobs/digits_1")
        assert page.locator("svg.timeline .mark").count() == 0
        page.evaluate("window.isSamePage = true")
        world.kill(WORKER_0)
        world.deliver()
        page.locator("svg.timeline .mark-exit").wait_for(state="attached", timeout=UPDATE_MS)
        assert page.evaluate("window.isSamePage")
        assert page.locator(f"[id='decision-{world.ledger[-1].key}']").count() == 1


def test_open_list_shows_a_new_job_at_its_place_and_keeps_the_other_rows(chromium: Browser) -> None:
    world = World()
    world.start_running()
    with opened(chromium, world) as (page, _):
        page.goto("/jobs")
        page.evaluate("document.getElementById('job-digits_1').isKept = true")
        page.get_by_role("link", name="digits_1").focus()
        world.job_id = "digits_2"
        world.wait(20)
        world.submit(a_spec(), source="gs://b/jobs/2.yaml#1")
        page.locator("#job-digits_2").wait_for(timeout=UPDATE_MS)
        assert page.locator("tbody tr").first.get_attribute("id") == "job-digits_2"
        assert page.evaluate("document.getElementById('job-digits_1').isKept")
        assert page.evaluate("document.activeElement.textContent") == "digits_1"


def test_keys_lead_from_the_list_to_a_job_and_are_dead_while_typing(chromium: Browser) -> None:
    with opened(chromium, failed_world()) as (page, _):
        page.keyboard.press("/")
        page.keyboard.type("j?k")
        assert page.locator("#search").input_value() == "j?k"
        assert page.url.endswith("/jobs")
        page.locator("#search").evaluate("element => element.blur()")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/digits_1")
        page.keyboard.press("?")
        page.wait_for_url("**/help")
        page.keyboard.press("g")
        page.keyboard.press("j")
        page.wait_for_url("**/jobs")
