"""Reports that Cloud Monitoring refuses: all of them, or some of their series."""

from __future__ import annotations

import json

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.utilization.report_queue import REFUSALS_MAX, ReportQueue

REFUSED = HttpError(400, "the whole request is wrong")
IN_PART = HttpError(
    400,
    "one series is wrong",
    json.dumps({"error": {"details": [{"totalPointCount": 5, "successPointCount": 4}]}}),
)


def send_all(*answers: HttpError | None) -> ReportQueue:
    """Send a report for each answer of Cloud Monitoring."""
    left = list(answers)

    def post(_: bytes) -> None:
        answer = left.pop(0)
        if answer is not None:
            raise answer

    queue = ReportQueue(post, lambda _: None)
    for _ in answers:
        queue.send(b"{}")
    return queue


def test_reports_that_are_refused_as_a_whole_are_given_up() -> None:
    assert send_all(*[REFUSED] * REFUSALS_MAX).is_refused
    assert not send_all(*[REFUSED] * (REFUSALS_MAX - 1)).is_refused


def test_report_that_is_stored_in_part_shows_that_not_all_are_refused() -> None:
    for stored in (IN_PART, None):
        refused = [REFUSED] * (REFUSALS_MAX - 1)
        assert not send_all(*refused, stored, *refused).is_refused
