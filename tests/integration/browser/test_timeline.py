"""The timeline: its spans and marks equal the ledger; gaps, ranges, and 1,000 replicas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import (
    has_only_rows_in_tables,
    large_world,
    opened,
    running_world,
)
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.console.svg import LABEL_WIDTH, RIGHT_MARGIN, WIDTH
from trainmaster.console.timeline import LANES_MAX, MarkKind, read_timeline
from trainmaster.core.reporting.phases import Span, replica_spans
from trainmaster.presentation.durations import duration_words

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECOND = timedelta(seconds=1)
HATCHED = ("held", "replacing", "queued")
"""Phases without work."""


def scripted() -> World:
    """Return a running job after a crash, a preemption, a maintenance, a hold and a rerun."""
    world = running_world()
    world.kill(WORKER_0)
    world.deliver()
    world.wait(20)
    world.send("vm-ready", WORKER_0)
    world.wait(120)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.exit_program(WORKER_0, 1)
    world.deliver()
    world.wait(60)
    world.send("vm-ready", WORKER_1)
    world.deliver()
    world.send("vm-ready", WORKER_0)
    world.wait(90)
    world.send("maintenance", WORKER_1, cause="maintenance")
    world.deliver()
    world.wait(45)
    world.send("vm-ready", WORKER_1)
    world.wait(200)
    world.kill(CHIEF)
    world.deliver()
    world.wait(30)
    world.report_all_ready()
    world.wait(15)
    return world


def lanes(page: Page) -> dict[str, list[dict[str, str]]]:
    """Return the bars of each lane: name → attributes and title of each bar."""
    found: dict[str, list[dict[str, str]]] = page.evaluate(
        """() => {
            const attributes = bar => ({
                kind: bar.getAttribute('class'),
                x: bar.getAttribute('x'),
                width: bar.getAttribute('width'),
                title: bar.textContent,
            });
            const lanes = [...document.querySelectorAll('svg.timeline .lane')];
            return Object.fromEntries(lanes.map(lane => [
                lane.querySelector('.lane-name').textContent,
                [...lane.querySelectorAll('rect.bar')].map(attributes),
            ]));
        }"""
    )
    return found


def lasting(spans: list[Span], now: datetime) -> list[Span]:
    return [span for span in spans if (span.end or now) > span.start]


def test_spans_equal_a_fold_of_the_ledger_to_the_second(browser: Browser) -> None:
    world = scripted()
    history = world.history
    with opened(browser, world) as (page, site):
        page.goto("/jobs/digits_1?gaps=1")
        shown = lanes(page)
        now = site.console().now
    timeline = read_timeline(history, now)
    by_replica: Mapping[str, list[Span]] = {
        replica.replica_id.words: [] for replica in world.replicas
    }
    for span in replica_spans(history):
        by_replica[span.replica_id.words].append(span)
    assert set(shown) == {"job", *by_replica}
    scale = (timeline.end - timeline.start) / (WIDTH - LABEL_WIDTH - RIGHT_MARGIN)

    def at(x: float) -> datetime:
        return timeline.start + scale * (x - LABEL_WIDTH)

    for name, all_spans in by_replica.items():
        spans, bars = lasting(all_spans, timeline.end), shown[name]
        assert len(bars) == len(spans) > 0, name
        for bar, span in zip(bars, spans, strict=True):
            x, width = float(bar["x"]), float(bar["width"])
            look = "hatched" if span.phase in HATCHED else "phase"
            assert bar["kind"] == f"bar {look}-{span.phase}"
            assert abs(at(x) - span.start) <= SECOND
            assert abs(at(x + width) - (span.end or timeline.end)) <= 2 * SECOND, (
                "1.5 units is the narrowest bar"
            )
            lasted = duration_words(timedelta(seconds=span.seconds(timeline.end)))
            generation = f"VM generation {span.vm_generation}"
            words = (
                f"{name}, attempt {span.attempt}, incarnation {span.incarnation}: {span.phase} for"
                f" {lasted}, "
            )
            assert bar["title"] == words + generation


def test_marks_and_attempts_equal_a_fold_of_the_ledger(browser: Browser) -> None:
    world = scripted()
    history = world.history
    timeline = read_timeline(history, world.now)
    marks = [mark for lane in timeline.lanes for mark in lane.marks]
    kinds = {mark.kind for mark in marks}
    assert {MarkKind.EXIT, MarkKind.PREEMPTION, MarkKind.MAINTENANCE} <= kinds
    with opened(browser, world) as (page, _):
        page.goto("/jobs/digits_1?table=1")
        assert has_only_rows_in_tables(page)
        page.goto("/jobs/digits_1")
        names = page.locator("svg.timeline a").evaluate_all(
            "marks => marks.map(m => m.getAttribute('aria-label'))"
        )
        keys = page.locator("svg.timeline a").evaluate_all(
            "marks => marks.map(m => m.getAttribute('href'))"
        )
        assert sorted(names) == sorted(
            f"{mark.at:%H:%M:%S} {mark.kind}: {mark.text}"
            + (f" (rule {mark.rule})" if mark.rule else "")
            for mark in marks
        )
        assert sorted(keys) == sorted(f"#decision-{mark.key}" for mark in marks)
        attempts = page.locator("svg.timeline .attempt-name").all_inner_texts()
        assert (
            len(attempts)
            == page.locator("svg.timeline line.attempt").count()
            == len(timeline.attempts)
        )
        target = page.locator("svg.timeline a").first
        target.click()
        key = (target.get_attribute("href") or "").removeprefix("#")
        page.wait_for_url(f"**#{key}")
        assert page.locator(f"[id='{key}']").bounding_box() is not None


def test_idle_gap_collapses_and_expands(browser: Browser) -> None:
    world = running_world()
    world.kill(WORKER_0)
    world.deliver()
    world.wait(10)
    world.send("vm-ready", WORKER_0)
    world.wait(3 * 3600)
    world.kill(WORKER_0)
    world.deliver()
    world.wait(300)
    with opened(browser, world) as (page, _):
        page.goto("/jobs/digits_1")
        gap = page.locator("svg.timeline rect.gap")
        assert re.match(
            r"[23] h .* without a change, drawn shorter", gap.locator("title").text_content() or ""
        )
        page.get_by_role("link", name="Draw them in full").click()
        page.wait_for_url("**gaps=1*")
        assert gap.count() == 0
        page.get_by_role("link", name="Draw stretches without a change shorter").click()
        page.wait_for_url(re.compile(r"digits_1\?#timeline"))
        assert gap.count() == 1


def test_range_of_the_timeline_survives_a_reload_and_hides_what_is_outside(
    browser: Browser,
) -> None:
    world = scripted()
    with opened(browser, world, expected=("400",)) as (page, _):
        page.goto("/jobs/digits_1")
        all_marks = page.locator("svg.timeline .mark").count()
        page.locator(".zoom summary").click()
        page.get_by_label("From (UTC)").fill("2026-11-21T03:09:00Z")
        page.get_by_label("To (UTC)").fill("2026-11-21T03:11:00Z")
        page.get_by_role("button", name="Zoom").click()
        page.wait_for_url("**from=2026*")
        shown = page.locator("svg.timeline .mark").count()
        assert 0 < shown < all_marks
        bars = lanes(page)
        page.reload()
        assert lanes(page) == bars
        widths = [float(bar["x"]) + float(bar["width"]) for lane in bars.values() for bar in lane]
        assert max(widths) <= WIDTH
        page.get_by_role("link", name="The whole job").click()
        page.wait_for_url(re.compile(r"digits_1\?#timeline"))
        assert page.locator("svg.timeline .mark").count() == all_marks
        page.goto("/jobs/digits_1?from=2026-11-21T03:11:00Z&to=2026-11-21T03:09:00Z")
        assert "from, to: must be a range" in page.locator("main").inner_text()


@pytest.mark.heavy(
    fact="the timeline of a large job hides replicas without incidents",
    quick="`unit/console/test_timeline.py`",
)
def test_large_job_shows_replicas_with_incidents_first_and_counts_the_hidden_ones(
    browser: Browser,
) -> None:
    with opened(browser, large_world()) as (page, _):
        page.goto("/jobs/digits_1")
        assert list(lanes(page)) == ["job", "worker 3", "worker 5", "worker 7"]
        assert "997 replicas without incidents are hidden" in page.locator("#timeline").inner_text()
        rows = page.locator("#replicas tbody th").all_inner_texts()
        assert rows[:3] == ["worker 3", "worker 5", "worker 7"]
        assert len(rows) == LANES_MAX
        page.get_by_role("link", name="Show all replicas").click()
        page.wait_for_url("**replicas=1*")
        assert len(lanes(page)) == 1_001
        assert page.evaluate("document.querySelectorAll('*').length") <= 25_000
