"""The console on a phone (390 px): only charts and tables in their boxes scroll sideways, and lines
are readable.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import (
    JOB_PATHS,
    add_progress,
    compared_world,
    failed_world,
    log_entry,
    opened,
    running_world,
    tuning_world,
)
from tests.support.jobs import CHIEF, a_spec
from tests.support.kept_jobs import a_keeping_job, beat_all, succeed
from tests.support.screenshots import WORKER_JOB, add_metrics, incident_world
from tests.support.world import World
from trainmaster.ports import Orphan, Rejection

pytestmark = pytest.mark.slow

WIDTH = 390
SHOTS = os.environ.get("TRAINMASTER_TEST_SCREENSHOTS", "")
"""The folder in which a developer wants screenshots of the pages; empty: none are made."""


def look_at(page: Page, path: str, name: str) -> None:
    page.set_viewport_size({"width": WIDTH, "height": 844})
    page.goto(path)
    if SHOTS:
        page.screenshot(path=Path(SHOTS, f"{name}.png"), full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH, path


CHARTS_DO_NOT_FIT = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg.plot, svg.timeline")) {
    const box = svg.parentElement;
    if (svg.getBoundingClientRect().width === 0) continue;  // in a closed part of the page
    if (box.scrollWidth > box.clientWidth) found.push(`${box.ariaLabel} scrolls`);
    const rows = new Map();
    for (const text of svg.querySelectorAll("text")) {
      const place = text.getBoundingClientRect();
      const ends = box.getBoundingClientRect();
      if (place.left < ends.left - 1 || place.right > ends.right + 1) {
        found.push(`"${text.textContent}" is cut off`);
      }
      if (place.height < 9) found.push(`"${text.textContent}" is too small`);
      if (text.matches(".lane-name, .bar-name")) {
        const bars = [...svg.querySelectorAll("rect.bar")];
        const left = Math.min(...bars.map(bar => bar.getBoundingClientRect().left));
        if (place.right > left) found.push(`"${text.textContent}" is over its bar`);
      }
      const row = Math.round(place.top);
      rows.set(row, [...(rows.get(row) || []), place]);
    }
    for (const places of rows.values()) {
      places.sort((a, b) => a.left - b.left);
      places.slice(1).forEach((place, number) => {
        if (place.left < places[number].right) found.push(`labels of ${box.ariaLabel} overlap`);
      });
    }
  }
  return found;
}"""
"""Sentences about the charts whose texts are cut off, too small, or over something else."""


def test_charts_fit_a_phone_with_readable_labels_that_do_not_overlap(browser: Browser) -> None:
    with opened(browser, incident_world()) as (page, site):
        add_metrics(site)
        for path in (f"/jobs/{WORKER_JOB}", f"/jobs/{WORKER_JOB}/resources"):
            look_at(page, path, f"charts{path.replace('/', '_')}")
            assert page.evaluate(CHARTS_DO_NOT_FIT) == [], path
    with opened(browser, compared_world()) as (page, site):
        for job_id in ("digits_1", "digits_2"):
            add_progress(site, job_id, {"metric/loss": [26554.0, 2.0, 1.0], "share": [0.1, 0.3]})
        for path in ("/jobs/digits_2", "/compare?job=digits_1&job=digits_2"):
            look_at(page, path, f"charts{path.replace('/', '_')}")
            assert page.evaluate(CHARTS_DO_NOT_FIT) == [], path
    with opened(browser, tuning_world()) as (page, _):
        look_at(page, "/jobs/digits_1", "charts_of_a_study")
        assert page.evaluate(CHARTS_DO_NOT_FIT) == []


TABLES_THAT_SCROLL = """() => {
  const tables = [...document.querySelectorAll("table")].filter(table => !table.closest("details"));
  const scrolling = tables.filter(table => {
    const box = table.closest(".scroll") || table;
    return box.scrollWidth > box.clientWidth;
  });
  return scrolling.map(table => table.caption?.textContent.trim() || table.className);
}"""
"""Tables of values in closed parts of the page are below charts, and may be as wide as they are."""
NUMBERS_WITHOUT_A_NAME = """() => {
  const cells = document.querySelectorAll("table.cards tbody td:not([data-name])");
  const texts = [...cells].map(cell => cell.textContent.trim());
  return texts.filter(text => text !== "" && !isNaN(text));
}"""
"""Numbers that a card shows without the name of their column."""


def test_tables_of_every_page_are_cards_on_a_phone_and_do_not_scroll(browser: Browser) -> None:
    worlds: dict[str, World] = {
        "failed": failed_world(),
        "compared": compared_world(),
        "tuning": tuning_world(),
        "incident": incident_world(),
        "kept": kept_world(),
    }
    for name, world in worlds.items():
        with opened(browser, world) as (page, _):
            job = f"/jobs/{world.job_id}"
            paths = [job, "/jobs", "/installation"]
            if name == "compared":
                paths.append("/compare?job=digits_1&job=digits_2")
            for path in paths:
                look_at(page, path, f"cards_{name}{path.replace('/', '_')}")
                assert page.evaluate(TABLES_THAT_SCROLL) == [], path
                assert page.evaluate(NUMBERS_WITHOUT_A_NAME) == [], path


def kept_world() -> World:
    world = a_keeping_job()
    beat_all(world)
    succeed(world)
    world.store.reject(
        Rejection("1", "cli:1/anna", job_id=None, problems=("a: b", "c: d"), at=world.now)
    )
    world.store.report_orphan(Orphan("1", "o" * 63, "us-central1-a", "j" * 63, world.now))
    return world


def width(page: Page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    return box["width"]


def test_page_of_a_job_its_logs_and_the_list_fit_a_phone(browser: Browser) -> None:
    with opened(browser, running_world()) as (page, site):
        site.entries = [log_entry("ERROR", "worker-replica-0", "a longer line than fits " * 9)]
        for path in (
            "/jobs/digits_1",
            "/jobs/digits_1/resources",
            "/installation",
            "/reasons",
            "/jobs/digits_1/clone",
        ):
            look_at(page, path, path.replace("/", "_"))
        look_at(page, "/jobs/digits_1/logs", "logs")
        assert width(page, "table.log td.text") > 0.8 * WIDTH
        look_at(page, "/jobs", "jobs")
        page.goto("/jobs/digits_1")
        decisions = page.locator("table.decisions")
        assert decisions.evaluate("table => table.scrollWidth <= table.clientWidth")
        assert width(page, "table.decisions tbody .decision") > 0.8 * WIDTH
        page.goto("/jobs")
        machines = page.locator("table.jobs td[data-name=Machines]").first
        assert machines.bounding_box() is not None
        assert page.locator("table.jobs").evaluate("table => table.scrollWidth") <= WIDTH


def test_comparison_and_curves_fit_a_phone(browser: Browser) -> None:
    with opened(browser, compared_world()) as (page, site):
        site.entries = [log_entry("INFO", "worker-replica-0", "a longer line than fits " * 9)]
        for job_id in ("digits_1", "digits_2"):
            add_progress(site, job_id, {"metric/loss": [3.0, 2.0, 1.0], "share": [0.1, 0.2, 0.3]})
        look_at(page, "/jobs/digits_2", "curves")
        assert page.locator("progress").evaluate("bar => bar.value") == 0.3
        assert width(page, "progress") > 0.8 * WIDTH
        look_at(page, "/compare?job=digits_1&job=digits_2", "compare")


def test_words_that_do_not_break_fit_a_phone_on_every_page(browser: Browser) -> None:
    word = "d" * 120
    world = World()
    spec = a_spec(
        args=[f"--{word}", word],
        jobDir=f"gs://bucket/{word}",
        runtimeVersion="2.1",
        pythonVersion="3.7",
    )
    world.submit({**spec, "labels": {"k" * 63: "v" * 63}}, source=f"cli:{word}/{word}")
    world.deliver()
    world.report_all_ready()
    world.store.reject(
        Rejection("1", f"cli:{word}/root", job_id=None, problems=(f"{word}: {word}",), at=world.now)
    )
    world.store.report_orphan(Orphan("1", "o" * 63, "us-central1-a", "j" * 63, world.now))
    error = {"type": word, "message": word, "frame": f"{word}.py:3 in f"}
    world.exit_program(CHIEF, 1, error=error, tail=word)
    world.deliver()
    with opened(browser, world) as (page, site):
        site.entries = [log_entry("INFO", "worker-replica-0", word)]
        for path in JOB_PATHS:
            look_at(page, path, f"words{path.replace('/', '_')}")


def test_page_of_a_failed_job_fits_a_phone(browser: Browser) -> None:
    with opened(browser, failed_world()) as (page, _):
        look_at(page, "/jobs/digits_1", "failed")


def test_plots_of_trials_scroll_in_their_boxes_and_show_whole_labels(browser: Browser) -> None:
    with opened(browser, tuning_world()) as (page, _):
        look_at(page, "/jobs/digits_1", "tuning")
        left = page.locator("#objective svg").evaluate("svg => svg.getBoundingClientRect().x")
        for label in page.locator("#objective .tick").all():
            box = label.bounding_box()
            assert box is not None
            assert box["x"] >= left
