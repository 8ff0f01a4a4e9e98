"""HTTP: the calls, page tokens, and errors in Google's format.

POST /v3/projects/P/timeSeries              stores the valid points, even if it refuses others
GET  /v3/projects/P/timeSeries              pages of series, with alignment and reduction
GET  /v3/projects/P/metricDescriptors       one for each metric that was written
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from werkzeug.wrappers import Request

from trainmaster_emulators.monitoring.aggregation import parse_aggregation
from trainmaster_emulators.monitoring.series import Series, SeriesKey
from trainmaster_emulators.monitoring.series_filter import parse
from trainmaster_emulators.monitoring.series_store import SeriesStore
from trainmaster_emulators.monitoring.write_checks import parse_series
from trainmaster_emulators.rest import pages
from trainmaster_emulators.rest.api_errors import Json, StatusError, invalid
from trainmaster_emulators.rest.server import RestServer, json_body
from trainmaster_emulators.rest.times import nanoseconds

SERIES_MAX: Final = 200
"""Source: CreateTimeSeriesRequest."""
POINTS_MAX: Final = 100_000
"""Points of a page. Source: ListTimeSeriesRequest.page_size."""
CREATE: Final = "monitoring.timeSeries.create"
LIST: Final = "monitoring.timeSeries.list"
LIST_DESCRIPTORS: Final = "monitoring.metricDescriptors.list"
_PROJECT: Final = "/v3/projects/<project>"


class MonitoringServer(RestServer):
    """The WSGI application. `denied`: permissions that no caller has."""

    def __init__(
        self,
        store: SeriesStore,
        denied: frozenset[str] = frozenset(),
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self.denied = denied
        self._clock_ns = clock_ns
        super().__init__(
            (
                "POST",
                f"{_PROJECT}/timeSeries",
                lambda request, project: self._create(project, json_body(request)),
            ),
            ("GET", f"{_PROJECT}/timeSeries", self._list),
            ("GET", f"{_PROJECT}/metricDescriptors", self._descriptors),
        )

    def _check_permission(self, permission: str) -> None:
        if permission in self.denied:
            text = f"Permission {permission} denied (or the resource may not exist)."
            raise StatusError("PERMISSION_DENIED", text)

    def _create(self, project: str, request: Json) -> Json:
        self._check_permission(CREATE)
        written = request.get("timeSeries", [])
        if not isinstance(written, list) or not 1 <= len(written) <= SERIES_MAX:
            raise invalid(
                f"Field timeSeries had an invalid value: a request has 1 to {SERIES_MAX} time"
                " series."
            )
        now_ns = self._clock_ns()
        seen: set[SeriesKey] = set()
        errors: dict[int, StatusError] = {}
        for index, series in enumerate(written):
            try:
                new = parse_series(series, project, now_ns)
                if new.key in seen:
                    raise invalid(
                        f"Field timeSeries[{index}] had an invalid value: Duplicate TimeSeries"
                        " encountered. Only one point can be written per TimeSeries per request."
                    )
                seen.add(new.key)
                self._store.add(project, new)
            except StatusError as error:
                errors[index] = error
        if errors:
            raise _partial_error(errors, len(written))
        return {}

    def _descriptors(self, _: Request, project: str) -> Json:
        self._check_permission(LIST_DESCRIPTORS)
        return {
            "metricDescriptors": [found.to_json(project) for found in self._store.descriptors()]
        }

    def _list(self, request: Request, project: str) -> Json:
        self._check_permission(LIST)
        arguments = request.args
        condition = parse(arguments.get("filter", ""))
        start_ns, end_ns = _interval(
            arguments.get("interval.startTime"), arguments.get("interval.endTime")
        )
        aggregation = parse_aggregation(
            arguments.get("aggregation.perSeriesAligner", ""),
            arguments.get("aggregation.alignmentPeriod", ""),
            arguments.get("aggregation.crossSeriesReducer", ""),
            arguments.getlist("aggregation.groupByFields"),
        )
        descriptor = next(
            (known for known in self._store.descriptors() if known.metric == condition.metric), None
        )
        if descriptor is None:
            text = (
                "The metric referenced by the provided filter is unknown. Check the metric name and"
                " labels."
            )
            raise StatusError("NOT_FOUND", text)
        matches = self._store.read(project, condition.metric, condition.accepts, start_ns, end_ns)
        if aggregation.is_raw:
            series = [_within(match, start_ns) for match in matches]
        else:
            series = aggregation.apply(matches, start_ns, end_ns)
        unit = f"{descriptor.unit}/s" if aggregation.aligner == "ALIGN_RATE" else descriptor.unit
        return _page(
            series,
            unit,
            arguments.get("pageSize", ""),
            arguments.get("pageToken", ""),
            arguments.get("view"),
        )


def _page(series: list[Series], unit: str, page_size: str, token: str, view: str | None) -> Json:
    """Return a page of whole series. Its size counts points, or series with the view HEADERS."""
    error = invalid("Field pageSize or pageToken had an invalid value.")
    limit = pages.page_size(page_size, POINTS_MAX, error)
    first = pages.page_start(token, error)
    with_points = view != "HEADERS"
    shown: list[Json] = []
    count = 0
    for member in series[first:]:
        size = len(member.points) if with_points else 1
        if shown and count + size > limit:
            break
        count += size
        shown.append(member.to_json(unit, with_points=with_points))
    following = first + len(shown)
    page: Json = {}
    if shown:
        page["timeSeries"] = shown
    if following < len(series):
        page["nextPageToken"] = str(following)
    if unit:
        page["unit"] = unit
    return page


def _within(series: Series, start_ns: int) -> Series:
    """Leave out the point before the interval, which only aligners need."""
    points = tuple(point for point in series.points if point.end_ns > start_ns)
    return Series(series.key, series.kind, series.value_type, points)


def _interval(start: str | None, end: str | None) -> tuple[int, int]:
    if not end:
        raise invalid("Field interval.endTime is required.")
    end_ns = nanoseconds(end)
    start_ns = nanoseconds(start) if start else end_ns - 1
    if start_ns >= end_ns:
        raise invalid(
            "Field interval.startTime had an invalid value: it must be before the end time."
        )
    return start_ns, end_ns


def _partial_error(errors: dict[int, StatusError], total: int) -> StatusError:
    """Return the error of a write.

    Source: CreateTimeSeriesSummary in the API's discovery document.
    """
    texts = "; ".join(f"{error.message}: timeSeries[{index}]" for index, error in errors.items())
    counts = Counter(error.number for error in errors.values())
    summary: Json = {
        "@type": "type.googleapis.com/google.monitoring.v3.CreateTimeSeriesSummary",
        "totalPointCount": total,
        "errors": [
            {"status": {"code": code}, "pointCount": count} for code, count in counts.items()
        ],
    }
    successes = total - len(errors)
    if successes:
        summary["successPointCount"] = successes
    return invalid(f"One or more TimeSeries could not be written: {texts}", summary)
