"""The guest attribute that the agent of a trial writes, and that any program on its VM
may write.
"""

from __future__ import annotations

import json

import pytest

from trainmaster.agent.metric import metric_report
from trainmaster.core.model.tuning import Measurement
from trainmaster.messaging.reported_metric import MEASUREMENTS_MAX, TEXT_MAX, decode_reported_metric


def test_measurements_are_decoded_in_their_order() -> None:
    metric = decode_reported_metric('{"attempt": 2, "measurements": [[100, 0.5], [200, 1]]}')
    assert metric is not None
    assert (metric.attempt, metric.measurements) == (
        2,
        (Measurement(value=0.5, step=100), Measurement(value=1.0, step=200)),
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("much", id="not JSON"),
        pytest.param("[]", id="list"),
        pytest.param('{"attempt": 0, "measurements": []}', id="attempt 0"),
        pytest.param('{"attempt": 1, "measurements": [[1]]}', id="no value"),
        pytest.param('{"attempt": 1, "measurements": [[-1, 0.5]]}', id="negative step"),
        pytest.param('{"attempt": 1, "measurements": [[1, NaN]]}', id="not a number"),
        pytest.param('{"attempt": 1, "measurements": [[1, 1e999]]}', id="infinite"),
        pytest.param(f'{{"attempt": 1, "measurements": [[{2**60}, 1]]}}', id="huge step"),
        pytest.param(json.dumps({"attempt": 1, "measurements": [[1, 0.5]] * 9000}), id="too long"),
    ],
)
def test_text_that_no_agent_writes_is_ignored(text: str) -> None:
    assert decode_reported_metric(text) is None


def test_report_of_the_agent_fits_the_limits() -> None:
    points = [[2**53, -1.2345678901234567e-300]] * metric_report.MEASUREMENTS_MAX
    assert len(json.dumps({"attempt": 1, "measurements": points})) < TEXT_MAX
    assert metric_report.MEASUREMENTS_MAX == MEASUREMENTS_MAX
