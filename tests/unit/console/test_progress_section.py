"""How far a job is, on its page: its share of the work, its curves, and the end of its log."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.support.console_browser import add_progress, log_entry
from tests.support.console_site import Site
from tests.support.html_tables import tables_of
from tests.support.jobs import CHIEF, START
from tests.unit.console.pages import between
from trainmaster.console.pages.progress_section import values_over_steps
from trainmaster.errors import TemporaryError
from trainmaster.ports.metrics import Label, Metric, MetricsDeniedError
from trainmaster.presentation.progress import Point

PATH = "/jobs/digits_1"


@pytest.fixture
def site() -> Site:
    site = Site()
    site.world.start_running()
    site.world.wait(1800)
    site.open()
    return site


def add(
    site: Site, name: str, values: list[float], *, minutes_ago: int = 1, incarnation: str = "1"
) -> None:
    first = site.world.now.replace(second=0, microsecond=0) - timedelta(
        minutes=len(values) - 1 + minutes_ago
    )
    labels = {
        Label.NAME: name,
        Label.SOURCE: "reported",
        Label.ATTEMPT: "1",
        Label.INCARNATION: incarnation,
    }
    site.metrics.add(Metric.PROGRESS, "chief-0", first, values, more=labels)


def test_page_has_progress_and_curves(site: Site) -> None:
    add(site, "share", [0.1, 0.2, 0.3])
    add(site, "step", [30, 60, 90])
    add(site, "metric/loss", [3.5, 2.5, 1.5])
    add(site, "metric/accuracy", [0.5, 0.6, 0.7])
    text = site.text(PATH)
    assert "30 % (step 90)" in text
    assert "about 6 min left; reported" in text
    assert '<progress max="1" value="0.300"' in text.partition('id="facts"')[0]
    titles = [text.index(f">{title}</h3>") for title in ("loss", "accuracy", "Step")]
    assert titles == sorted(titles)
    assert "1 more<" in text
    assert "Step 90 at the end, at most 90." in text
    assert len(site.metrics.queries) == 3


def test_curve_goes_on_after_a_preemption_and_shows_the_repeated_steps(site: Site) -> None:
    add(site, "step", [10, 20, 30], minutes_ago=4)
    add(site, "step", [25, 35], incarnation="2")
    text = site.text(PATH)
    assert "the last restart repeats at least 5 steps (from 30 back to 25)" in text
    assert text.count('<polyline class="metric-line') == 1, "one curve before and after"


def test_job_without_progress_has_no_section(site: Site) -> None:
    assert 'id="progress"' not in site.text(PATH)


@pytest.mark.parametrize(
    "error", [MetricsDeniedError("needs roles/monitoring.viewer"), TemporaryError("503: later")]
)
def test_page_is_complete_where_metrics_cannot_be_read(site: Site, error: Exception) -> None:
    site.metrics.error = error
    text = site.text(PATH)
    assert f"{error}." in text
    assert 'id="timeline"' in text


def test_hostile_metric_breaks_neither_page_nor_chart(site: Site) -> None:
    add(site, "metric/<script>alert(1)</script>", [-1e308, 1e308])
    add(site, "metric/flat", [0.0, 0.0])
    text = site.text(PATH)
    assert "<script>alert" not in text
    assert "nan" not in text.lower().replace("financ", "")
    assert "inf," not in text


@pytest.mark.parametrize(
    "values",
    [
        [1e18],
        [-1e18, -1e18],
        [sys.float_info.max] * 2,
        [-sys.float_info.max] * 2,
        [0.0, 5e-324],
        [2.0**53, 2.0**53 + 2],
    ],
    ids=repr,
)
def test_metric_that_barely_changes_is_drawn_whatever_its_size(
    site: Site, values: list[float]
) -> None:
    """As `total_flos` of a program: one more is the same number."""
    add(site, "metric/total_flos", values)
    text = site.text(PATH)
    assert "total_flos" in text
    assert "nan" not in text.lower().replace("financ", "")
    assert "inf" not in text.replace("info", "").replace("infinit", "")
    assert site.get("/compare?job=digits_1").status_code == 200


def test_axis_of_one_value_begins_and_ends_at_half_of_it(site: Site) -> None:
    add(site, "metric/loss", [0.5])
    text = site.text(PATH).partition('id="timeline"')[0]
    assert [f">{value}</text>" in text for value in ("0.25", "0.75", "-0.5")] == [True, True, False]


@pytest.mark.parametrize(
    ("names", "charts"),
    [
        (
            ("loss", "val_loss", "eval/loss", "accuracy"),
            {"loss": ["eval/loss", "loss", "val_loss"], "accuracy": ["accuracy"]},
        ),
        (("train_loss", "val_loss"), {"loss": ["train_loss", "val_loss"]}),
        (
            ("eval_runtime", "value", "val_"),
            {"eval_runtime": ["eval_runtime"], "val_": ["val_"], "value": ["value"]},
        ),
    ],
)
def test_metric_on_several_sets_of_data_has_one_chart(
    site: Site, names: tuple[str, ...], charts: dict[str, list[str]]
) -> None:
    for name in names:
        add(site, f"metric/{name}", [1.0, 2.0])
    sections = re.findall(r'<section class="chart".*?</section>', site.text(PATH), re.DOTALL)
    lines = {
        re.findall(r"<h3[^>]*>([^<]*)<", section)[0]: re.findall(
            r"<polyline [^>]*><title>([^<]*)<", section
        )
        for section in sections
    }
    assert lines == charts


def test_job_page_shows_the_end_of_the_log_and_reads_it_once_for_several_polls(site: Site) -> None:
    site.entries = [
        log_entry("INFO", "chief-replica-0", f"epoch {n} <b>", str(n), 300.0 + n) for n in range(30)
    ]
    page = site.text(PATH)
    shown = re.findall(r"epoch (\d+) &lt;b&gt;", page)
    assert shown == [str(number) for number in range(20, 30)]
    assert page.index('id="log"') < page.index('id="timeline"')
    etag = site.get(PATH).headers["ETag"]
    assert site.get(PATH, If_None_Match=etag).status_code == 304
    assert len(site.queries) == 1


def test_program_forges_no_line_of_another_source_on_the_page(site: Site) -> None:
    site.entries = [
        log_entry(
            "INFO", "worker-replica-0", "a\n03:00:00 service The job SUCCEEDED.\r03:00:01 service b"
        )
    ]
    section = between(site.text(PATH), 'id="log"', "</section>")
    lines = between(section, "<pre", "</code></pre>").splitlines()
    assert lines[0].endswith("worker-replica-0</span> a")
    assert lines[1:] == ["    03:00:00 service The job SUCCEEDED.", "    03:00:01 service b</span>"]


def test_page_is_complete_where_the_log_cannot_be_read(site: Site) -> None:
    site.log_calls_left = 0
    for _ in range(2):
        page = site.text(PATH)
        assert "429: the quota of read requests per minute is used up." in page
        assert 'id="timeline"' in page
    assert len(site.queries) == 1, (
        "a refusal is kept as well, so that polls do not use up the quota"
    )


def test_job_page_has_cost_output_and_what_shows_them(site: Site) -> None:
    facts = between(site.text(PATH), 'id="facts"', "</dl>")
    assert "Cost so far" in facts
    assert '<a href="#machine-time">not known</a>' in facts
    assert "gs://bucket/digits" in facts
    assert "trainmaster tensorboard digits_1" in facts
    assert "console.cloud.google.com" not in facts, "the local stack's buckets are not there"
    site.app.config["CONSOLE"] = replace(site.console(), bucket_browser="https://browser/")
    assert 'href="https://browser/bucket/digits"' in site.text(PATH)


def test_curves_over_steps_pair_metrics_with_the_step_of_their_period(site: Site) -> None:
    world = site.world
    values = {"metric/loss": [3.0, 2.0, 1.0, 0.5], "step": [0.0, 1_000.0, 2_000.0, 62_480.0]}
    add_progress(site, world.job_id, {**values, "steps": [100_000.0] * 4, "share": [0.1] * 4})
    assert '<a href="?x=step#curves">Over the steps' in site.text(f"/jobs/{world.job_id}")
    page = site.text(f"/jobs/{world.job_id}?x=step")
    assert 'data-axis="step" data-start="0" data-end="62480"' in page
    loss, *others = [table for table in tables_of(page) if "the last step first" in table.caption]
    assert not others, "the position is the axis, and no curve"
    assert loss.headings == ["Step", "loss"]
    assert loss.rows == [["62,480", "0.5"], ["2,000", "1"], ["1,000", "2"], ["0", "3"]]
    assert ">15,620</text>" in page
    assert "?#curves" in page
    compared = site.text(f"/compare?job={world.job_id}&x=step")
    assert "Curves over steps" in compared
    assert f'<a href="?job={world.job_id}#curves">Over the time since RUNNING' in compared


def test_curves_of_an_ended_job_end_with_it(site: Site) -> None:
    world = site.world
    add(site, "metric/loss", [3.0, 2.0, 1.0], minutes_ago=2)
    world.exit_program(CHIEF, 0)
    world.deliver()
    world.wait(600)
    ended_at = world.job.ended_at
    assert ended_at is not None
    (end,) = re.findall(r'data-end="([^"]+)"', site.text(PATH).partition('id="timeline"')[0])
    assert datetime.fromisoformat(end) == ended_at


def test_step_that_was_repeated_after_a_restart_has_its_last_value() -> None:
    first_run, second_run = (1, 1), (1, 2)  # attempt and incarnation
    measured = [
        (first_run, 100.0, 3.0),
        (first_run, 200.0, 2.0),
        (second_run, 100.0, 2.9),
        (second_run, 200.0, 1.9),
        (second_run, 300.0, 1.5),
    ]
    steps, losses = [], []
    for minute, (run, step, loss) in enumerate(measured):
        at = START + timedelta(minutes=minute)
        steps.append(Point(at, step, run, "printed"))
        losses.append(Point(at, loss, run, "reported"))
    without_step = Point(START - timedelta(minutes=1), 1.0, first_run, "reported")
    points = {"step": steps, "metric/loss": losses, "metric/alone": [without_step]}
    assert values_over_steps(points) == {"metric/loss": {100: 2.9, 200: 1.9, 300: 1.5}}


def test_job_without_steps_has_its_curves_over_time_whatever_the_address_says(site: Site) -> None:
    world = site.world
    add_progress(site, world.job_id, {"metric/loss": [3.0, 2.0]})
    page = site.text(f"/jobs/{world.job_id}?x=step")
    assert "data-axis" not in page
    assert "Over the steps" not in page
    assert "the newest first" in page
