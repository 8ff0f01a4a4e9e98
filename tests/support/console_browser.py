"""The console in a real Chromium: served from adapters in memory, signed in, and watched for
errors.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import resources
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright
from werkzeug.serving import BaseWSGIServer, make_server

from tests.support.console_site import Site
from tests.support.jobs import WORKER_0, a_spec
from tests.support.serving import serving
from tests.support.study import Study
from tests.support.world import World
from trainmaster.console.rendering import asset
from trainmaster.core.model.job import JobState
from trainmaster.ports.metrics import Label, Metric

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first one, a package of Debian, has no windows and takes 40% less CPU time."""
UPDATE_MS = 60_000
"""Longest wait for a poll on a busy machine; the pages poll every 5 or 10 seconds."""
AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe-core that depend on the colour scheme.

The others read elements, which are the same in both.
"""
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
JOB_PATHS = (
    "/jobs",
    "/jobs/digits_1",
    "/jobs/digits_1/logs",
    "/compare?job=digits_1",
    "/jobs/digits_1/resources",
    "/jobs/digits_1/resources?replica=worker-0",
    "/jobs/digits_1/replicas/worker-0",
    "/jobs/digits_1/cancel",
    "/jobs/digits_1/clone",
    "/jobs/digits_1/resubmit",
    "/jobs/digits_1/labels",
    "/jobs/digits_1/delete",
    "/installation",
    "/help",
)
Scheme = Literal["light", "dark"]
DISABLED = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
)
"""Features of Chromium: the address bar's own pages, which cost a second of CPU time per window,
and those of Playwright's list that concern our pages, because this list replaces it.
"""
FEW_PROCESSES = ("--in-process-gpu", "--renderer-process-limit=1")
"""Each process of Chromium takes a tenth of a second of CPU time for its start, and compiles the
pages' scripts.
"""
PROMPT_POLLS = """
const later = window.setTimeout;
window.setTimeout = (callback, ms, ...rest) => later(callback, Math.min(ms, 300), ...rest);
"""
"""Lets polls happen after 0.3 s, so that a test of several polls does not wait for minutes."""


@dataclass(frozen=True)
class SharedPages:
    """A server that serves one console after another, and the contexts of their pages.

    Pages of one context and one origin have one process, which lives as long as the first of them.
    """

    server: BaseWSGIServer
    origin: str
    contexts: dict[bool, BrowserContext] = field(default_factory=dict)
    """By whether their pages run scripts."""

    def new_page(self, chromium: Browser, *, has_script: bool) -> Page:
        """Open a page without cookies."""
        if has_script not in self.contexts:
            context = chromium.new_context(  # smooth scrolling paints many frames
                java_script_enabled=has_script, base_url=self.origin, reduced_motion="reduce"
            )
            context.set_default_timeout(UPDATE_MS)
            context.new_page().goto(asset("icon.svg"))
            self.contexts[has_script] = context
        self.contexts[has_script].clear_cookies()
        return self.contexts[has_script].new_page()


_SHARED: Final[dict[Browser, SharedPages]] = {}


def installed_chromium() -> str:
    """Return the path of Chromium. Skips the test if it is not installed."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install --no-install-recommends chromium")
    return path


@contextmanager
def chromium_browser() -> Iterator[Browser]:
    """Run Chromium. Skips the test if it is not installed."""
    path = installed_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            chromium_sandbox=os.getuid() != 0,
            args=[
                "--no-proxy-server",
                f"--disable-features={','.join(DISABLED)}",
                *FEW_PROCESSES,
                "--disable-gpu",
            ],
            timeout=300_000,
        )
        server = make_server("127.0.0.1", 0, Site(World()).app, threaded=True)
        with serving(server) as origin:
            _SHARED[browser] = SharedPages(server, origin)
            yield browser
            del _SHARED[browser]
            browser.close()


@contextmanager
def opened(
    chromium: Browser,
    world: World,
    *,
    has_script: bool = True,
    has_prompt_polls: bool = False,
    is_read_only: bool = False,
    is_signed_in: bool = True,
    expected: tuple[str, ...] = (),
) -> Iterator[tuple[Page, Site]]:
    """Serve the console of a world, and yield an empty page of a signed-in user.

    Fail on any error or foreign request.

    `expected`: parts of error messages that the test causes on purpose.
    """
    site = Site(world, is_read_only=is_read_only)
    shared = _SHARED[chromium]
    site.sign_in.hosts = (shared.origin.removeprefix("http://"),)
    shared.server.app = site.app
    page = shared.new_page(chromium, has_script=has_script)
    if is_signed_in:
        cookie = site.sign_in.exchange(site.sign_in.token)
        assert cookie is not None
        page.context.add_cookies(
            [{"name": cookie.name, "value": cookie.value, "url": shared.origin}]
        )
    if has_prompt_polls:
        page.add_init_script(PROMPT_POLLS)
    with _without_problems(page, shared.origin, expected):
        yield page, site


@contextmanager
def watched(chromium: Browser, origin: str) -> Iterator[Page]:
    """Open a page in a context of its own, and fail on any error and on any request to another
    origin.
    """
    context = chromium.new_context(base_url=origin)
    context.set_default_timeout(UPDATE_MS)
    with _without_problems(context.new_page(), origin) as page:
        yield page
    context.close()


@contextmanager
def _without_problems(page: Page, origin: str, expected: tuple[str, ...] = ()) -> Iterator[Page]:
    """Close the page after the block.

    Fail on any other error of the page, and on any request to another origin.
    """
    problems: list[str] = []
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(origin) else problems.append(request.url),
    )
    try:
        yield page
    finally:
        page.close()
    assert [text for text in problems if not any(part in text for part in expected)] == []


def follow(page: Page, target: Locator) -> None:
    """Click a link or a button, and wait until the page to which it leads is loaded.

    A click alone returns before that, and `count()` and its kin do not wait.
    """
    with page.expect_navigation():
        target.click()


def barriers(page: Page, scheme: Scheme, checks: Sequence[str] = WCAG) -> list[tuple[str, str]]:
    """Return what axe-core finds on the page: rule and element."""
    page.emulate_media(color_scheme=scheme)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    violations = page.evaluate(
        "checks => axe.run(document, { runOnly: checks }).then(r => r.violations)", checks
    )
    return [(found["id"], found["nodes"][0]["html"]) for found in violations]


def running_world() -> World:
    """Return a world whose job `digits_1`, a chief and two workers, has run for ten minutes."""
    world = World()
    world.start_running()
    world.wait(600)
    return world


def failed_world() -> World:
    """Return a world whose job failed with an error and an output that would run as a script."""
    world = running_world()
    error = {
        "type": "ImportError",
        "message": "<img src=x onerror=document.title='owned'>",
        "frame": "task.py:3 in f",
    }
    world.exit_program(WORKER_0, 1, error=error, tail="<script>document.title='owned'</script>")
    world.deliver()
    assert world.state == JobState.FAILED
    return world


def add_progress(site: Site, job_id: str, values: Mapping[str, Sequence[float]]) -> None:
    """Let the job's program have reported these values, one each minute since its start: name →
    values.
    """
    loaded = site.world.store.load(job_id)
    assert loaded is not None
    assert loaded.state.job.started_at is not None
    first = loaded.state.job.started_at.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for name, series in values.items():
        labels = {Label.JOB: job_id, Label.NAME: name, Label.SOURCE: "reported", Label.ATTEMPT: "1"}
        site.metrics.add(
            Metric.PROGRESS, "chief-0", first, series, more={**labels, Label.INCARNATION: "1"}
        )


def compared_world() -> World:
    """Return a world whose job digits_1 has failed, and whose job digits_2, with other arguments,
    runs.
    """
    world = failed_world()
    world.job_id = "digits_2"
    world.submit(
        a_spec(args=["--epochs", "9", "--name=<b>"], workerCount=3),
        source="gs://b/jobs/digits_2.yaml#1",
    )
    world.deliver()
    world.report_all_ready()
    world.wait(600)
    return world


def tuning_world() -> Study:
    """Return a tuning job with a completed, a failed and running trials."""
    study = Study()
    study.start_tuning(maxTrials=4, maxParallelTrials=2)
    study.report_ready(1)
    study.complete_trial(1, 0.75)
    study.report_ready(2)
    study.fail_trial(2)
    return study


def large_world() -> World:
    """Return a running job with 1,000 replicas, of which three ended a round."""
    world = World()
    world.submit(a_spec(workerCount=999))
    world.deliver()
    world.report_all_ready()
    for number in (3, 5, 7):
        world.wait(600)
        world.kill(
            next(
                replica for replica in world.replicas if replica.replica_id.index == number
            ).replica_id
        )
        world.deliver()
    return world


def log_entry(
    severity: str, task: str, text: str = "a line", insert_id: str = "", second: float = 300.0
) -> dict[str, object]:
    """Return an entry of Cloud Logging; `second` counts from 03:00:00."""
    minutes, seconds = divmod(second, 60)
    return {
        "timestamp": f"2026-11-21T03:{int(minutes):02d}:{seconds:012.9f}Z",
        "insertId": insert_id or task,
        "severity": severity,
        "labels": {"ml.googleapis.com/task_name": task},
        "textPayload": text,
    }


def has_only_rows_in_tables(page: Page) -> bool:
    """Return whether the bodies of the page's tables have rows, and no text between them.

    Idiomorph compares each such text with all later rows: a new row among 1,000 took a task of 385
    ms.
    """
    nodes = "[...document.querySelectorAll('tbody')].flatMap(body => [...body.childNodes])"
    return set(page.evaluate(f"{nodes}.map(node => node.nodeName)")) == {"TR"}
