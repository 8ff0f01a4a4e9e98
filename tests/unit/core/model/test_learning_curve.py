"""Curves of measurements: merged with each report, and thinned out."""

from __future__ import annotations

import pytest

from trainmaster.core.model.learning_curve import (
    CURVES_BYTES_MAX,
    POINT_BYTES,
    POINTS_MAX,
    best_until,
    mean_until,
    merge_measurements,
    points_max,
)
from trainmaster.core.model.tuning import TRIALS_MAX, Measurement

LIMIT = 8


def curve(*points: tuple[int, float]) -> tuple[Measurement, ...]:
    return tuple(Measurement(value, step) for step, value in points)


@pytest.mark.parametrize(
    ("known", "reported", "merged"),
    [
        pytest.param((), ((1, 0.1), (2, 0.2)), ((1, 0.1), (2, 0.2)), id="first report"),
        pytest.param(((1, 0.1),), (), ((1, 0.1),), id="nothing reported"),
        pytest.param(((1, 0.1),), ((1, 0.1), (2, 0.2)), ((1, 0.1), (2, 0.2)), id="one more step"),
        pytest.param(
            ((1, 0.1), (9, 0.9)), ((4, 0.4), (9, 0.8)), ((1, 0.1), (9, 0.8)), id="last step again"
        ),
        pytest.param(
            ((1, 0.1), (9, 0.9)),
            ((4, 0.5), (5, 0.6)),
            ((1, 0.1), (4, 0.5), (5, 0.6)),
            id="back to a checkpoint",
        ),
        pytest.param(
            (),
            ((5, 0.5), (1, 0.1), (2, 0.2)),
            ((1, 0.1), (2, 0.2)),
            id="restarted within one report",
        ),
        pytest.param(((0, 0.1),), ((0, 0.1), (0, 0.7)), ((0, 0.7),), id="no steps"),
    ],
)
def test_report_is_merged_into_the_curve(
    known: tuple[tuple[int, float], ...],
    reported: tuple[tuple[int, float], ...],
    merged: tuple[tuple[int, float], ...],
) -> None:
    assert merge_measurements(curve(*known), curve(*reported), LIMIT) == curve(*merged)


def test_thinned_curve_keeps_its_last_point_and_does_not_change_with_the_same_report() -> None:
    report = curve(*((step, step / 100) for step in range(1, 31)))
    thinned = merge_measurements((), report, LIMIT)
    assert len(thinned) <= LIMIT
    assert thinned[-1] == report[-1]
    assert merge_measurements(thinned, report, LIMIT) == thinned


def test_curve_of_many_reports_stays_within_its_limit_and_in_order() -> None:
    known: tuple[Measurement, ...] = ()
    for last in range(10, 2000, 7):
        known = merge_measurements(
            known, curve(*((step, 1.0) for step in range(last - 9, last + 1))), LIMIT
        )
        assert len(known) <= LIMIT
        assert [point.step for point in known] == sorted({point.step for point in known})
        assert known[-1].step == last
    assert (known[0].step, len(known)) == (1, LIMIT)
    assert any(500 < point.step < 1500 for point in known), "points are spread over the curve"


@pytest.mark.parametrize("trials", [1, 100, 148, 149, TRIALS_MAX])
def test_curves_of_all_trials_fit_the_document(trials: int) -> None:
    assert 4 <= points_max(trials) <= POINTS_MAX
    assert points_max(trials) * trials * POINT_BYTES <= CURVES_BYTES_MAX


def test_best_and_mean_value_count_up_to_a_step() -> None:
    points = curve((1, 0.5), (2, 0.9), (3, 0.1))
    assert best_until(points, 2, maximize=True) == 0.9
    assert best_until(points, 3, maximize=False) == 0.1
    assert best_until(points, 0, maximize=True) is None
    assert mean_until(points, 2) == pytest.approx(0.7)
    assert mean_until(points, 0) is None
