"""The page of a tuning job: the best trial, the order of the table, the line of the best value, and
ranges.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page

from tests.support.console_browser import follow, has_only_rows_in_tables, opened
from tests.support.study import Study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VALUES = (0.5, 0.9, 0.2, 0.7)


def study_of(goal: str) -> Study:
    """Return a study with four values, a failed trial and one that runs."""
    study = Study()
    study.start_tuning(goal=goal, maxTrials=6, maxParallelTrials=1)
    for number, value in enumerate(VALUES, start=1):
        study.report_ready(number)
        study.complete_trial(number, value)
    study.report_ready(5)
    study.fail_trial(5)
    return study


def trials(page: Page) -> list[int]:
    return [int(text) for text in page.locator("#trials tbody th").all_inner_texts()]


def test_lines_outside_the_range_are_dimmed_while_it_is_dragged(browser: Browser) -> None:
    study = study_of("MAXIMIZE")
    outside = {
        trial.number
        for trial in study.tuning.trials
        if not trial.measurement or trial.measurement.value <= 0.6
    }
    with opened(browser, study) as (page, _):
        page.goto("/jobs/digits_1")
        hold(page, "accuracy", low=0.55, high=1.0)
        dimmed = page.locator("polyline.dimmed title").all_text_contents()
        assert {int(title.split()[1]) for title in dimmed} == outside
        assert page.locator("rect.brush").count() == 1
        page.evaluate(
            "document.querySelector('rect.brush-area[data-axis=accuracy]').dispatchEvent(new"
            " Event('pointercancel'))"
        )
        assert page.locator("polyline.dimmed").count() == 0
        assert page.locator("rect.brush").count() == 0


def test_axes_of_a_single_value_have_different_labels_around_it(browser: Browser) -> None:
    study = Study()
    study.start_tuning()
    study.report_ready(1)
    study.complete_trial(1, 0.75)
    with opened(browser, study) as (page, _):
        page.goto("/jobs/digits_1")
        high, low = page.locator("#objective .tick").all_text_contents()[:2]
        top, bottom = page.locator("#parallel .tick").all_text_contents()[-2:]
        assert float(high) > 0.75 > float(low)
        assert (top, bottom) == (high, low)


@pytest.mark.parametrize(
    ("goal", "order", "best"),
    [
        ("MAXIMIZE", [2, 4, 1, 3], [0.5, 0.9, 0.9, 0.9]),
        ("MINIMIZE", [3, 1, 4, 2], [0.5, 0.5, 0.2, 0.2]),
    ],
)
def test_best_trial_order_and_line_of_the_best_value_follow_the_goal(
    browser: Browser, goal: str, order: list[int], best: list[float]
) -> None:
    study = study_of(goal)
    with opened(browser, study) as (page, _):
        page.goto("/jobs/digits_1")
        assert (
            f"Trial {order[0]}: accuracy = {VALUES[order[0] - 1]:g}"
            in page.locator("#best").inner_text()
        )
        assert trials(page)[:4] == order
        assert set(trials(page)) == {trial.number for trial in study.tuning.trials}
        assert "FAILED" in page.locator("#trial-5").inner_text()
        titles = page.locator("polyline.no-value title").all_text_contents()
        assert any(title.startswith("trial 5 FAILED") for title in titles), "a dashed line"
        assert has_only_rows_in_tables(page)
        points = page.locator("polyline.best-line").get_attribute("points") or ""
        dots = {
            float(dot.get_attribute("cx") or 0): float(dot.get_attribute("cy") or 0)
            for dot in page.locator("circle.dot").all()
        }
        line = {float(x): float(y) for x, y in (point.split(",") for point in points.split())}
        height_of = dict(zip(VALUES, dots.values(), strict=True))
        assert [line[x] for x in dots] == [height_of[value] for value in best]


def drag(page: Page, axis: str, low: float, high: float) -> None:
    """Drag over a range of an axis; 0 is its lower end."""
    hold(page, axis, low, high)
    page.mouse.up()


def hold(page: Page, axis: str, low: float, high: float) -> None:
    """Drag over a range of an axis without releasing the button."""
    area = page.locator(f"rect.brush-area[data-axis='{axis}']")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + box["height"] * (1 - low))
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * (1 - high))


def test_range_on_an_axis_filters_table_and_address(browser: Browser) -> None:
    study = study_of("MAXIMIZE")
    in_range = [
        trial.number
        for trial in study.tuning.trials
        if trial.measurement and trial.measurement.value > 0.6
    ]
    with opened(browser, study) as (page, _):
        page.goto("/jobs/digits_1")
        drag(page, "accuracy", low=0.55, high=1.0)
        page.wait_for_url("**brush=accuracy*")
        assert sorted(trials(page)) == in_range
        assert (
            f"{len(in_range)} of {len(study.tuning.trials)}"
            in page.locator("#brushes").inner_text()
        )
        assert page.locator("polyline.left-out").count() == len(study.tuning.trials) - len(in_range)
        drag(page, "width", low=0.0, high=0.3)
        page.wait_for_url("**brush=width*")
        narrow = [
            trial.number
            for trial in study.tuning.trials
            if trial.number in in_range and "16" in trial.values
        ]
        assert sorted(trials(page)) == narrow
        address = page.url
        page.goto("about:blank")
        page.goto(address)
        assert sorted(trials(page)) == narrow
        page.get_by_role("link", name="All trials").click()
        page.wait_for_url(re.compile(r"digits_1\?#parallel"))
        assert len(trials(page)) == len(study.tuning.trials)


def test_table_is_sorted_by_links_without_a_script_and_keeps_the_range(browser: Browser) -> None:
    study = study_of("MINIMIZE")
    by_value = sorted(range(1, len(VALUES) + 1), key=lambda number: VALUES[number - 1])
    with opened(browser, study, has_script=False) as (page, _):
        page.goto("/jobs/digits_1")
        assert trials(page)[:4] == [3, 1, 4, 2]
        follow(page, page.locator("#trials thead").get_by_role("link", name="accuracy"))
        assert trials(page)[:4] == by_value
        assert "sort=value&order=asc" in page.url
        assert set(trials(page)) == {trial.number for trial in study.tuning.trials}, (
            "failed trials stay, at the end"
        )
        follow(page, page.locator("#trials thead").get_by_role("link", name="accuracy"))
        assert trials(page)[:4] == by_value[::-1]
        page.goto("/jobs/digits_1?brush=accuracy~0.55~1")
        follow(page, page.locator("#trials thead").get_by_role("link", name="Trial", exact=True))
        assert trials(page) == [2, 4]
        assert "brush=accuracy~0.55~1" in page.url.replace("%7E", "~")
        page.reload()
        assert trials(page) == [2, 4]
        assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Trial")
