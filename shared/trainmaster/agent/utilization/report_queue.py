"""Reports that Cloud Monitoring has not accepted yet: repeated in order, and counted if dropped."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable

from trainmaster.agent.google_http.http_call import HttpError

REPORTS_MAX = 60
"""Reports that are kept: those of an hour. Source: Cloud Monitoring accepts points of the last 25
hours.
"""
REFUSALS_MAX = 3
"""Refusals in a row after which metrics are off: a new permission takes a minute or two to be known
everywhere.
"""


class ReportQueue:
    """The reports of one machine, for the utilization monitor."""

    def __init__(
        self,
        post: Callable[[bytes], object],
        log: Callable[[str], None],
        log_missing: Callable[[int, str], None],
    ) -> None:
        """`post` sends the body of one ``timeSeries.create`` and raises HttpError.

        `log_missing` logs a number of reports that are missing, and the sentence about them.
        """
        self._post = post
        self._log = log
        self._log_missing = log_missing
        self._bodies: deque[bytes] = deque()
        self._dropped = 0
        """Number of reports that were given up since `count_missing` was called last."""
        self._counted = 0
        """Number of the reports in `_bodies`, from the oldest on, that `count_missing` has logged
        as missing. They are not logged again.
        """
        self._problem = ""
        """Why a request failed last; empty: none did."""
        self._refusals = 0  # in a row
        self._has_logged_reason = False

    @property
    def is_refused(self) -> bool:
        """Whether Cloud Monitoring refuses all reports. The caller then sends no more."""
        return self._refusals >= REFUSALS_MAX

    def send(self, body: bytes) -> None:
        """Send this report after those that failed before; keep all from the first that fails."""
        self._bodies.append(body)
        while self._bodies:
            try:
                self._post(self._bodies[0])
            except HttpError as error:
                self._problem = " ".join(str(error).split())
                if error.transient:
                    break
                self._on_refused(error)
            else:
                self._refusals = 0
            self._remove_oldest()
        while len(self._bodies) > REPORTS_MAX:
            self._note_oldest_as_dropped()
            self._remove_oldest()
        if self.is_refused:
            self.count_missing()

    def count_missing(self) -> None:
        """Log how many reports Cloud Monitoring does not have, each report once. Call it at the end
        of a program: the VM may be deleted before Cloud Monitoring accepts those that are kept.
        """
        missing = self._dropped + len(self._bodies) - self._counted
        self._dropped = 0
        self._counted = len(self._bodies)
        if missing:
            which = "Missing reports of this machine's use in Cloud Monitoring"
            more = "; no more are sent" if self.is_refused else ""
            self._log_missing(missing, f"{which}: {missing}, because of {self._problem}{more}.")

    def _note_oldest_as_dropped(self) -> None:
        """Count the oldest report among those that are given up, unless it was counted before."""
        if not self._counted:
            self._dropped += 1

    def _remove_oldest(self) -> None:
        self._bodies.popleft()
        self._counted = max(self._counted - 1, 0)

    def _on_refused(self, error: HttpError) -> None:
        """Log the reason once. If only some series are refused, all others are stored."""
        is_partial = has_stored_points(error)
        if is_partial:
            self._refusals = 0
        else:
            self._refusals += 1
            self._note_oldest_as_dropped()
        if not self._has_logged_reason:
            self._has_logged_reason = True
            what = "series of this machine" if is_partial else "this machine's resource metrics"
            self._log(f"Cloud Monitoring refuses {what}: {self._problem}")


def has_stored_points(error: HttpError) -> bool:
    """Whether the answer to a refused request says that some of its points are stored.

    Source: CreateTimeSeriesSummary of the API.
    """
    try:
        details = json.loads(error.body)["error"]["details"]
        return any(int(detail.get("successPointCount", 0)) > 0 for detail in details)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
