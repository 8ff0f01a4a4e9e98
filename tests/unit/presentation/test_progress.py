"""What views show of series that agents, or hostile programs, wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.jobs import a_job
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.last_progress import LastMetric, LastProgress
from trainmaster.ports.metrics import Label, MetricPoint, MetricQuery, MetricSeries
from trainmaster.presentation.progress import (
    METRICS_MAX,
    REMAINING_S_MAX,
    Progress,
    progress_of,
    read_progress,
)

NOW = datetime(2026, 11, 26, 12, 0, 12, tzinfo=UTC)
START = NOW - timedelta(seconds=12, minutes=40)


def series(
    name: str,
    values: Sequence[float],
    *,
    first: int = 0,
    incarnation: str = "1",
    source: str = "reported",
) -> MetricSeries:
    """A value for each minute from minute `first` on; minute 40 is twelve seconds ago."""
    labels = {
        Label.NAME: name,
        Label.ATTEMPT: "1",
        Label.INCARNATION: incarnation,
        Label.SOURCE: source,
    }
    return MetricSeries(
        labels,
        tuple(
            MetricPoint(START + timedelta(minutes=first + n), value)
            for n, value in enumerate(values)
        ),
    )


def shown(*all_series: MetricSeries, job: Job | None = None) -> Progress | None:
    return progress_of(job or a_job(), all_series, NOW)


def test_reported_values_are_a_sentence_and_json() -> None:
    progress = shown(
        series("share", [0.21, 0.31, 0.41], first=38),
        series("step", [63, 93, 123], first=38),
        series("steps", [300, 300, 300], first=38),
        series("metric/loss", [3, 2, 1.71], first=38),
    )
    assert progress
    assert (
        progress.words(NOW)
        == "41 % (step 123 of 300), loss 1.71, about 6 min left; reported 12 s ago"
    )
    assert progress.view() == {
        "share": 0.41,
        "step": 123,
        "steps": 300,
        "remainingSeconds": 342,
        "metrics": {"loss": 1.71},
        "reportedAt": "2026-11-26T12:00:00Z",
    }


def test_preemption_counts_from_the_restart_and_names_repeated_steps() -> None:
    progress = shown(
        series("share", [0.1, 0.2, 0.3, 0.4], first=30),
        series("step", [100, 200, 300, 400], first=30),
        series("share", [0.35, 0.36], first=39, incarnation="2"),
        series("step", [350, 360], first=39, incarnation="2"),
        series("steps", [1000], first=40, incarnation="2"),
    )
    assert progress
    minutes_left = (1 - 0.36) / 0.01
    assert progress.remaining_s == pytest.approx(minutes_left * 60 - 12)
    assert progress.repeated == (400, 350)
    assert "the last restart repeats at least 50 steps (from 400 back to 350)" in progress.words(
        NOW
    )


def test_restart_that_goes_on_repeats_nothing() -> None:
    progress = shown(
        series("step", [1, 2], first=30), series("step", [3], first=40, incarnation="2")
    )
    assert progress
    assert progress.repeated is None


@pytest.mark.parametrize(
    ("values", "first"),
    [([0.5], 40), ([0.5, 0.5], 39), ([0.5, 0.4], 39), ([0.2, 0.3], 20)],
    ids=["one point", "standstill", "backwards", "long ago"],
)
def test_time_left_is_unknown_without_a_present_slope(values: list[float], first: int) -> None:
    progress = shown(series("share", values, first=first))
    assert progress
    assert progress.remaining_s is None


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState.RUNNING, "99 %; reported 12 s ago"),
        (JobState.FAILED, "ended at 99 %"),
        (JobState.SUCCEEDED, "100 %"),
    ],
)
def test_only_success_is_everything(state: JobState, words: str) -> None:
    progress = shown(series("share", [1.0], first=40), job=a_job(state))
    assert progress
    assert progress.words(NOW) == words


def test_bar_that_begins_again_is_a_part_of_the_work() -> None:
    progress = shown(series("share", [0.2, 0.7, 0.1, 0.6], first=37, source="printed"))
    assert progress
    assert progress.words(NOW) == "60 % of the current bar; printed 12 s ago"
    assert progress.remaining_s is None


def test_older_steps_are_not_shown_beside_a_newer_share() -> None:
    progress = shown(
        series("step", [7], first=30),
        series("steps", [9], first=30),
        series("share", [0.5], first=40),
    )
    assert progress
    assert (progress.share, progress.step, progress.steps) == (0.5, None, None)


@pytest.mark.parametrize(
    "hostile",
    [
        series("share", [1.5], first=40),
        series("share", [-0.5], first=40),
        series("step", [-1], first=40),
        series("step", [1e300], first=40),
        series("metric/\x1b[2Jloss", [1], first=40),
        series("metric/\u202eloss", [1], first=40),
        series("metric/" + "x" * 101, [1], first=40),
        series("other", [1], first=40),
        series("step", [1], first=40, incarnation="-1"),
        series("step", [1], first=40, incarnation="9" * 5000),
    ],
)
def test_series_that_no_agent_writes_are_not_shown(hostile: MetricSeries) -> None:
    assert shown(hostile) is None


@pytest.mark.parametrize("name", ["share", "step", "metric/loss"])
def test_values_that_are_no_numbers_are_not_shown(name: str) -> None:
    assert shown(series(name, [float("nan"), float("inf"), float("-inf")], first=38)) is None


def test_number_of_metrics_is_limited() -> None:
    progress = shown(*(series(f"metric/{number}", [1e308], first=40) for number in range(100)))
    assert progress
    assert len(progress.metrics) == METRICS_MAX
    assert len(progress.words(NOW)) < 200


def test_metric_that_became_nan_is_shown_as_such() -> None:
    progress = shown(
        series("metric/loss", [0.5, 0.4], first=36), series("not_finite/loss", [1.0], first=40)
    )
    assert progress
    assert progress.words(NOW) == "loss is NaN or infinite; reported 12 s ago"
    assert progress.view()["notFinite"] == ["loss"]
    assert "metrics" not in progress.view()


def test_metric_that_is_finite_again_is_shown_with_its_value() -> None:
    progress = shown(
        series("not_finite/loss", [1.0], first=36), series("metric/loss", [0.4], first=40)
    )
    assert progress
    assert progress.words(NOW) == "loss 0.4; reported 12 s ago"


@pytest.mark.parametrize(
    ("last", "words"),
    [
        pytest.param(
            LastProgress(share=0.25, epoch=2, epochs=8, not_finite=("loss",)),
            "ended at 25 % (epoch 2 of 8), loss is NaN or infinite",
            id="before its end",
        ),
        pytest.param(
            LastProgress(share=1.0, step=300, steps=300, metrics=(LastMetric("loss", 0.31),)),
            "100 % (step 300 of 300), loss 0.31",
            id="complete",
        ),
        pytest.param(
            LastProgress(metrics=(LastMetric("loss", 0.31),)), "loss 0.31", id="metrics alone"
        ),
    ],
)
def test_ended_job_shows_what_its_agent_reported_with_the_exit(
    last: LastProgress, words: str
) -> None:
    job = replace(a_job(JobState.SUCCEEDED), started_at=START, ended_at=NOW, last_progress=last)
    progress = read_progress(NoMetrics(), job, NOW)
    assert progress
    assert progress.words(NOW + timedelta(hours=1)) == words


def test_failed_job_shows_its_last_report_and_never_the_whole_work() -> None:
    last = LastProgress(share=1.0, step=300, steps=300)
    job = replace(a_job(JobState.FAILED), started_at=START, ended_at=NOW, last_progress=last)
    progress = read_progress(NoMetrics(), job, NOW)
    assert progress
    assert progress.words(NOW) == "ended at 99 % (step 300 of 300)"


class NoMetrics:
    """A reader that must not be used."""

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        raise AssertionError(query)


@pytest.mark.parametrize(
    "shares", [[0.0, 5e-324], [0.0, 1e-12], [0.5, 0.5 + 2e-16], [0.0, 5e-324, 1e-323]]
)
def test_time_left_by_a_tiny_slope_is_limited(shares: list[float]) -> None:
    progress = shown(series("share", shares, first=41 - len(shares)))
    assert progress
    assert progress.remaining_s == REMAINING_S_MAX
    assert "about 366 d left" in progress.words(NOW)
