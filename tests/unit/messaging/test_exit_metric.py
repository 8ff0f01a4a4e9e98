"""The metric in an agent's exit message: its last value, and those before it."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.release_corpus import MESSAGES
from trainmaster.core.model.tuning import Measurement, Point
from trainmaster.messaging.agent_messages import EARLIER_MAX, decode_replica_exit


def decode(metric: dict[str, Any]) -> Measurement | None:
    message = {**MESSAGES["replica_exit"][0], "metric": metric}
    return decode_replica_exit(json.dumps(message).encode()).measurement


def test_earlier_measurements_are_read_in_their_order() -> None:
    metric = {
        "value": 0.9,
        "step": 30,
        "earlier": [{"value": 0.1, "step": 10}, {"value": 0.5, "step": 20}],
    }
    assert decode(metric) == Measurement(
        value=0.9, step=30, earlier=(Point(value=0.1, step=10), Point(value=0.5, step=20))
    )


def test_more_earlier_measurements_than_an_agent_sends_are_cut_off() -> None:
    earlier = [{"value": 1.0, "step": step} for step in range(100)]
    measurement = decode({"value": 0.9, "step": 100, "earlier": earlier})
    assert measurement is not None
    assert [point.step for point in measurement.earlier] == list(range(100 - EARLIER_MAX, 100))


def test_earlier_measurement_without_a_value_is_left_out() -> None:
    assert decode({"value": 0.9, "step": 2, "earlier": [{"step": 1}]}) == Measurement(
        value=0.9, step=2
    )


def test_metric_that_is_not_a_number_is_left_out() -> None:
    assert decode({"value": "high", "step": 2}) is None
