"""axe-core finds no barriers (WCAG 2.2 A and AA) on any page, in light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from playwright.sync_api import Browser

from tests.support.console_browser import (
    COLOURS,
    JOB_PATHS,
    barriers,
    failed_world,
    large_world,
    log_entry,
    opened,
    running_world,
    tuning_world,
)
from tests.support.console_site import Site
from tests.support.world import World
from tests.unit.flows.test_kept_machines import run_job, succeed
from trainmaster.ports.metrics import Metric

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


REPEATED = ("?replica=worker-0", "/cancel", "/resubmit", "/delete")
"""Ends of the paths of pages that look like another page: charts of one replica, and questions like
that for labels.
"""
HEAVY = pytest.mark.heavy(
    fact="pages have no barriers",
    quick="the same test with the pages of a failed job; the colours of the dark scheme",
)
"""axe-core takes a second of CPU for each page."""


def queued_world() -> World:
    world = World(limits={"vcpus": 12})
    for number in (1, 2):
        world.job_id = f"digits_{number}"
        world.submit(source=f"gs://b/jobs/{number}.yaml#1")
    world.deliver()
    return world


def add_metrics(site: Site) -> None:
    """Let two workers with two GPUs each, the first of them idle, have used their machines for the
    last 20 minutes.
    """
    first = site.world.now.replace(second=0) - timedelta(minutes=20)
    for number in (0, 1):
        replica = f"worker-{number}"
        waves = [0.5 + number / 5 + 0.2 * math.sin(minute) for minute in range(20)]
        site.metrics.add(Metric.CPU, replica, first, waves)
        site.metrics.add(
            Metric.MEMORY, replica, first, [0.3 + 0.02 * minute for minute in range(20)]
        )
        site.metrics.add(Metric.SENT, replica, first, [2e6 * wave for wave in waves])
        for gpu in ("0", "1"):
            site.metrics.add(Metric.GPU, replica, first, [0.9 * int(gpu) + 0.01] * 20, gpu)
            site.metrics.add(Metric.GPU_MEMORY, replica, first, [0.6] * 20, gpu)
    site.metrics.add(Metric.CPU, "chief-0", first, [0.2] * 20)


CASES: dict[str, tuple[Callable[[], World], tuple[str, ...]]] = {
    "empty": (World, ("/jobs", "/installation")),
    "running": (running_world, JOB_PATHS),
    "failed": (failed_world, tuple(path for path in JOB_PATHS if not path.endswith(REPEATED))),
    "actions of a failed job": (
        failed_world,
        tuple(path for path in JOB_PATHS if path.endswith(REPEATED)),
    ),
    "1,000 replicas": (large_world, ("/jobs/digits_1",)),
    "tuning": (tuning_world, ("/jobs", "/jobs/digits_1", "/jobs/digits_1?brush=layers~0~0.5")),
    "queued, with limits": (queued_world, ("/jobs", "/jobs/digits_2", "/installation")),
}


@pytest.mark.parametrize(
    "case", ["failed", *(pytest.param(name, marks=HEAVY) for name in CASES if name != "failed")]
)
def test_pages_have_no_barriers(browser: Browser, case: str) -> None:
    make_world, paths = CASES[case]
    with opened(browser, make_world()) as (page, site):
        site.entries = [log_entry("ERROR", "worker-replica-0"), log_entry("WARNING", "service")]
        add_metrics(site)
        for path in paths:
            page.goto(path)
            assert [(path, *found) for found in barriers(page, "light")] == []
            assert [(path, "dark", *found) for found in barriers(page, "dark", COLOURS)] == []


def test_page_of_a_read_only_console_and_a_form_with_problems_have_no_barriers(
    browser: Browser,
) -> None:
    with opened(browser, running_world(), is_read_only=True) as (page, _):
        for path in ("/jobs/digits_1", "/jobs/digits_1/clone"):
            page.goto(path)
            assert [(path, *found) for found in barriers(page, "dark")] == []
    with opened(browser, running_world(), expected=("422",)) as (page, _):
        page.goto("/jobs/digits_1/clone")
        page.locator("#spec").fill("trainingInput: {region: nowhere}")
        page.get_by_role("button", name="Submit the job").click()
        page.locator("#problems").wait_for()
        assert barriers(page, "light") == []


@pytest.mark.parametrize("path", ["/installation", "/jobs/digits_1/release"])
def test_kept_machines_have_no_barriers(browser: Browser, path: str) -> None:
    world = World()
    run_job(world)
    succeed(world)
    with opened(browser, world) as (page, _):
        page.goto(path)
        assert page.get_by_text("n1-standard-4").count() >= 1
        assert barriers(page, "light") == []
        assert barriers(page, "dark", COLOURS) == []
