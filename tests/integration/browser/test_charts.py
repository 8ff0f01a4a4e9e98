"""The charts of resource metrics: one cursor over all of them, by pointer and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import (
    add_progress,
    barriers,
    compared_world,
    opened,
    running_world,
)
from tests.support.console_site import Site
from tests.support.jobs import WORKER_0
from trainmaster.console.chart_axis import RIGHT, WIDTH
from trainmaster.ports.metrics import Metric

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VALUES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@contextmanager
def charts(
    browser: Browser, *, has_script: bool = True, has_prompt_polls: bool = False
) -> Iterator[tuple[Page, Site]]:
    """Open the resources of a job whose worker 0 was restarted, and whose CPU and memory have a
    value each minute.
    """
    world = running_world()
    world.kill(WORKER_0)
    world.deliver()
    world.wait(120)
    world.send("vm-ready", WORKER_0)
    world.wait(300)
    with opened(browser, world, has_script=has_script, has_prompt_polls=has_prompt_polls) as (
        page,
        site,
    ):
        first = world.now.replace(second=0, microsecond=0) - timedelta(minutes=len(VALUES))
        site.metrics.add(Metric.CPU, "worker-0", first, VALUES)
        site.metrics.add(Metric.MEMORY, "worker-0", first, VALUES[::-1])
        page.goto("/jobs/digits_1/resources?replica=worker-0")
        yield page, site


def shown(page: Page) -> list[str]:
    return page.locator(".value").all_inner_texts()


def test_pointer_on_one_chart_shows_time_and_values_on_all(browser: Browser) -> None:
    with charts(browser) as (page, _):
        assert shown(page) == ["", ""]
        box = page.locator("svg.metric").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.97, box["y"] + 40)
        assert shown(page) == ["80%", "10%"]
        labels = page.locator("g.cursor text").all_text_contents()
        assert len(labels) == 2
        assert len(set(labels)) == 1
        lines = [line.get_attribute("x1") for line in page.locator("g.cursor line").all()]
        assert len(set(lines)) == 1
        assert labels[0] in (page.locator("section.chart tbody time").first.text_content() or "")
        assert page.locator("rect.band").count() == 2 * len(("incarnation 1", "incarnation 2"))
        assert barriers(page, "dark") == []


def test_arrow_keys_on_a_chart_move_the_cursor_of_all_and_are_announced(browser: Browser) -> None:
    with charts(browser, has_prompt_polls=True) as (page, site):
        page.locator(".chart .drawing").first.focus()
        page.keyboard.press("ArrowLeft")
        assert shown(page) == ["80%", "10%"]
        page.keyboard.press("ArrowLeft")
        assert shown(page) == ["70%", "20%"]
        assert "CPU: worker 0 70%" in page.locator("#announcer").inner_text()
        page.keyboard.press("Home")
        assert shown(page) == ["10%", "80%"]
        at = page.locator("g.cursor text").first.text_content()
        site.world.wait(60)
        site.metrics.add(
            Metric.CPU, "worker-0", site.world.now.replace(second=0, microsecond=0), [0.9]
        )
        page.locator("td.number", has_text="90%").wait_for(state="attached")
        assert (shown(page), page.locator("g.cursor text").first.text_content()) == (
            ["10%", "80%"],
            at,
        )
        page.keyboard.press("Escape")
        assert (shown(page), page.locator("g.cursor").count()) == (["", ""], 0)


def test_cursor_on_curves_of_two_jobs_shows_values_at_the_same_time_since_their_start(
    browser: Browser,
) -> None:
    with opened(browser, compared_world()) as (page, site):
        add_progress(site, "digits_1", {"metric/loss": [4.0, 3.0, 2.0]})
        add_progress(site, "digits_2", {"metric/loss": [40.0, 30.0, 20.0, 10.0]})
        page.goto("/compare?job=digits_1&job=digits_2")
        page.locator(".chart .drawing").first.focus()
        page.keyboard.press("Home")
        assert shown(page) == ["4", "40"]
        page.keyboard.press("End")
        assert shown(page) == ["-", "10"]
        assert page.locator("g.cursor text").text_content() == "00:04:00"
        assert barriers(page, "dark") == []


def test_cursor_on_curves_over_steps_shows_a_step_and_the_values_of_all_jobs(
    browser: Browser,
) -> None:
    with opened(browser, compared_world()) as (page, site):
        add_progress(site, "digits_1", {"metric/loss": [4.0, 3.0], "step": [0.0, 1_500.0]})
        add_progress(site, "digits_2", {"metric/loss": [40.0, 30.0], "step": [0.0, 2_500.0]})
        page.goto("/compare?job=digits_1&job=digits_2")
        page.get_by_role("link", name="Over the steps of the programs").click()
        page.wait_for_url("**x=step*")
        page.locator(".chart .drawing").first.focus()
        page.keyboard.press("Home")
        assert shown(page) == ["4", "40"]
        page.keyboard.press("ArrowRight")
        assert shown(page) == ["3", "-"]
        assert page.locator("g.cursor text").text_content() == "step 1,500"
        page.keyboard.press("End")
        at_the_right_end = WIDTH - RIGHT
        assert float(page.locator("g.cursor line").get_attribute("x1") or 0) == at_the_right_end
        assert barriers(page, "light") == []


def test_charts_and_bands_are_complete_without_a_script(browser: Browser) -> None:
    with charts(browser, has_script=False) as (page, _):
        assert page.locator("svg.metric").count() == 2
        titles = page.locator("svg.metric").first.locator("rect.band title").all_text_contents()
        assert [title.partition(", VM")[0] for title in titles] == [
            "attempt 1, incarnation 1",
            "attempt 1, incarnation 2",
        ]
