"""How far a job is, on its page."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.console_site import Site
from trainmaster.errors import TemporaryError
from trainmaster.ports.metrics import Label, Metric, MetricsDeniedError

PATH = "/jobs/digits_1"


@pytest.fixture
def site() -> Site:
    site = Site()
    site.world.start_running()
    site.world.wait(1800)
    site.open()
    return site


def add(site: Site, name: str, values: list[float], *, minutes_ago: int = 1, incarnation: str = "1") -> None:
    first = site.world.now.replace(second=0, microsecond=0) - timedelta(minutes=len(values) - 1 + minutes_ago)
    labels = {Label.NAME: name, Label.SOURCE: "reported", Label.ATTEMPT: "1", Label.INCARNATION: incarnation}
    site.metrics.add(Metric.PROGRESS, "chief-0", first, values, more=labels)


def test_page_has_progress_and_curves(site: Site) -> None:
    add(site, "share", [0.1, 0.2, 0.3])
    add(site, "step", [30, 60, 90])
    add(site, "metric/loss", [3.5, 2.5, 1.5])
    add(site, "metric/accuracy", [0.5, 0.6, 0.7])
    text = site.text(PATH)
    assert "30 % (step 90)" in text
    assert "about 6 min left; reported" in text
    titles = [text.index(f">{title}</h3>") for title in ("Step", "loss", "accuracy")]
    assert titles == sorted(titles)
    assert "1 more curves" in text
    assert "Step 90 at the end, at most 90." in text
    assert len(site.metrics.queries) == 2


def test_curve_goes_on_after_a_preemption_and_shows_the_repeated_steps(site: Site) -> None:
    add(site, "step", [10, 20, 30], minutes_ago=4)
    add(site, "step", [25, 35], incarnation="2")
    text = site.text(PATH)
    assert "the last restart repeats at least 5 steps (from 30 back to 25)" in text
    assert text.count('<polyline class="metric-line') == 1, "one curve before and after"


def test_job_without_progress_has_no_section(site: Site) -> None:
    assert 'id="progress"' not in site.text(PATH)


@pytest.mark.parametrize("error", [MetricsDeniedError("needs roles/monitoring.viewer"), TemporaryError("503: later")])
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
