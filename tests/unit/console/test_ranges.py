"""Ranges in addresses: of the timeline's time, and of the axes of a tuning job."""

from __future__ import annotations

import html
import re

import pytest

from tests.support.console_site import Site
from tests.support.jobs import WORKER_0
from tests.support.study import Study
from trainmaster.console.tuning_brush import Brush, read_brushes, selected_trials
from trainmaster.core.model.job import tuning_of
from trainmaster.errors import PermanentError


@pytest.mark.parametrize(
    "query",
    [
        "from=now",
        "to=2026-11-21",
        "from=2026-11-21T03:00:10",
        "from=2027-01-01T00:00:00Z",
        "from=2026-11-21T03:05:00Z&to=2026-11-21T03:04:00Z",
    ],
)
def test_wrong_range_of_time_is_400_and_names_the_parameter(site: Site, query: str) -> None:
    site.world.start_running()
    site.world.wait(600)
    response = site.get(f"/jobs/digits_1?{query}")
    assert response.status_code == 400
    assert re.search(r"(from|to): must be|from, to: must be", response.text)


def test_range_of_time_cuts_bars_and_leaves_out_marks(site: Site) -> None:
    site.world.start_running()
    site.world.wait(600)
    site.world.kill(WORKER_0)
    site.world.deliver()
    site.world.wait(600)
    whole = site.text("/jobs/digits_1")
    part = site.text("/jobs/digits_1?from=2026-11-21T03:02:00Z&to=2026-11-21T03:05:00Z")
    assert whole.count('class="hit"') == 1
    assert part.count('class="hit"') == 0
    widths = [
        float(x) + float(width)
        for x, width in re.findall(
            r'<rect class="bar[^"]*" x="([\d.]+)"[^>]*width="([\d.]+)"', part
        )
    ]
    assert widths
    assert max(widths) <= 1_000


def test_links_of_the_page_keep_the_range(site: Site) -> None:
    site.world.start_running()
    site.world.wait(600)
    page = html.unescape(site.text("/jobs/digits_1?from=2026-11-21T03:02:00Z&replica=worker-0"))
    link = next(link for link in re.findall(r'href="(\?[^"]*)"', page) if "all=1" in link)
    assert "from=2026-11-21T03%3A02%3A00Z" in link
    assert "replica=worker-0" in link


@pytest.fixture
def study() -> Study:
    study = Study()
    study.start_tuning(maxTrials=4, maxParallelTrials=1)
    for number, value in ((1, 0.1), (2, 0.9), (3, float("nan"))):
        study.report_ready(number)
        study.complete_trial(number, value)
    return study


def test_trials_within_all_ranges_are_selected(study: Study) -> None:
    tuning = tuning_of(study.job)
    assert selected_trials(tuning, ()) == {trial.number for trial in tuning.trials}
    assert selected_trials(tuning, [Brush("accuracy", low=0.5, high=1.0)]) == {2}
    assert selected_trials(tuning, [Brush("accuracy", low=0.0, high=1.0)]) == {1, 2}, (
        "a trial without a value is in no range"
    )
    widths = {trial.number for trial in tuning.trials if trial.values[1] == "32"}
    assert selected_trials(tuning, [Brush("width", low=0.9, high=1.0)]) == widths
    assert (
        selected_trials(
            tuning, [Brush("accuracy", low=0.0, high=0.4), Brush("width", low=0.9, high=1.0)]
        )
        == {1} & widths
    )


@pytest.mark.parametrize(
    "text",
    [
        "layers",
        "layers~a~b",
        "layers~0.8~0.2",
        "layers~-1~2",
        "layers~nan~1",
        "depth~0~1",
        "~~",
        "layers~0~0.5~1",
    ],
)
def test_wrong_range_of_an_axis_is_refused(study: Study, text: str) -> None:
    with pytest.raises(PermanentError, match=r"^brush: "):
        read_brushes([text], tuning_of(study.job))


def test_range_is_written_as_it_is_read(study: Study) -> None:
    (brush,) = read_brushes(["layers~0.25~1"], tuning_of(study.job))
    assert read_brushes([brush.text], tuning_of(study.job)) == (brush,)
