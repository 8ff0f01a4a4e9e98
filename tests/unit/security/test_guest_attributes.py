"""Guest attributes: every program on a VM can write any text there, and the control
plane reads it.

An attempt is one execution of the whole job.
"""

from __future__ import annotations

import pytest

from trainmaster.gcp.vm_labels import parse_heartbeat
from trainmaster.messaging.reported_metric import MEASUREMENTS_MAX, TEXT_MAX, decode_reported_metric

TEXTS = [
    "",
    "yesterday",
    "2026-11-21T03:00:00",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-12:00",
    "9" * 10_000,
    "[" * TEXT_MAX,
    '{"attempt":1,"measurements":[[1,1e400]]}',
    '{"attempt":1,"measurements":[[1,NaN]]}',
    '{"attempt":1,"measurements":[[-1,0.5]]}',
    '{"attempt":1,"measurements":[[%s,0.5]]}' % ("9" * 30),
    '{"attempt":%s,"measurements":[[1,0.5]]}' % ("9" * 30),
    '{"attempt":1,"measurements":[[1,0.5]]}' + " " * TEXT_MAX,
    "\ud800",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_no_agent_writes_is_ignored_as_a_heartbeat(text: str) -> None:
    assert parse_heartbeat(text) is None


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_no_agent_writes_is_ignored_as_a_measurement(text: str) -> None:
    assert decode_reported_metric(text) is None


def test_only_the_latest_of_many_measurements_are_read() -> None:
    points = ",".join(f"[{step},0]" for step in range(1_000))
    metric = decode_reported_metric(f'{{"attempt":1,"measurements":[{points}]}}')
    assert metric is not None
    assert [measurement.step for measurement in metric.measurements] == list(
        range(1_000 - MEASUREMENTS_MAX, 1_000)
    )
