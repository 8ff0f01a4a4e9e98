"""Reports that Cloud Monitoring refuses, in whole or in part, and those that it misses."""

from __future__ import annotations

import json

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.utilization.report_queue import REFUSALS_MAX, REPORTS_MAX, ReportQueue

REFUSED = HttpError(400, "the whole request is wrong")
IN_PART = HttpError(
    400,
    "one series is wrong",
    json.dumps({"error": {"details": [{"totalPointCount": 5, "successPointCount": 4}]}}),
)


DOWN = HttpError(503, "down")


def send_all(*answers: HttpError | None) -> ReportQueue:
    """Send a report for each answer of Cloud Monitoring."""
    return a_queue(list(answers), [], reports=len(answers))


def a_queue(
    left: list[HttpError | None], missing: list[tuple[int, str]], reports: int
) -> ReportQueue:
    """Return a queue that has sent this number of reports.

    `left`: the next answers of Cloud Monitoring; None: the report is stored. `missing` gets what is
    counted.
    """

    def post(_: bytes) -> None:
        answer = left.pop(0)
        if answer is not None:
            raise answer

    queue = ReportQueue(post, lambda _: None, lambda count, text: missing.append((count, text)))
    for _ in range(reports):
        queue.send(b"{}")
    return queue


def test_reports_that_are_refused_as_a_whole_are_given_up() -> None:
    assert send_all(*[REFUSED] * REFUSALS_MAX).is_refused
    assert not send_all(*[REFUSED] * (REFUSALS_MAX - 1)).is_refused


def test_report_that_is_stored_in_part_shows_that_not_all_are_refused() -> None:
    for stored in (IN_PART, None):
        refused = [REFUSED] * (REFUSALS_MAX - 1)
        assert not send_all(*refused, stored, *refused).is_refused


def test_missing_reports_are_counted_once_with_the_reason() -> None:
    missing: list[tuple[int, str]] = []
    left: list[HttpError | None] = [DOWN] * (REPORTS_MAX + 7)
    queue = a_queue(left, missing, REPORTS_MAX + 7)
    queue.count_missing()
    queue.count_missing()
    text = (
        "Missing reports of this machine's use in Cloud Monitoring: {}, because of HTTP 503: down."
    )
    assert missing == [(REPORTS_MAX + 7, text.format(REPORTS_MAX + 7))]
    left += [None, DOWN, DOWN]
    for _ in range(2):
        queue.send(b"{}")
    queue.count_missing()
    assert missing[1:] == [(2, text.format(2))], "those that were counted are not counted again"


def test_reports_that_are_refused_for_good_are_counted_at_once() -> None:
    missing: list[tuple[int, str]] = []
    a_queue([REFUSED] * REFUSALS_MAX, missing, REFUSALS_MAX)
    ((count, text),) = missing
    assert count == REFUSALS_MAX
    assert text.endswith(" because of HTTP 400: the whole request is wrong; no more are sent.")


def test_reports_that_arrive_are_not_counted() -> None:
    missing: list[tuple[int, str]] = []
    a_queue([DOWN, None, None, IN_PART], missing, reports=3).count_missing()
    assert missing == []
