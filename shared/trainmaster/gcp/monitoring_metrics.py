"""The MetricReader on Cloud Monitoring.

google-cloud-monitoring is not used: it supports only gRPC, and the local stack's emulator supports
only HTTP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from google.api_core import exceptions

from trainmaster.core.model.installation import name_in_installation
from trainmaster.gcp.errors import google_errors, is_refusal, translate
from trainmaster.gcp.rest_api import RestApi
from trainmaster.ports.metrics import (
    Label,
    MetricPoint,
    MetricQuery,
    MetricsDeniedError,
    MetricSeries,
    Reducer,
)

GOOGLE: Final = "https://monitoring.googleapis.com"
TIMEOUT_S: Final = 30.0
PREFIX: Final = "custom.googleapis.com/trainmaster/training"
NAMESPACE: Final = "trainmaster"
ROLE: Final = "roles/monitoring.viewer"
REDUCERS: Final = {reducer: f"REDUCE_{reducer.name}" for reducer in Reducer}
RESOURCE_LABELS: Final = (Label.JOB, Label.TASK_ID)
"""Labels of the monitored resource `generic_task`; all others are the metric's own."""

Json = Mapping[str, Any]


class MonitoringMetrics:
    """The time series of the agents in Cloud Monitoring. Thread-safe.

    Adapter of `trainmaster.ports.MetricReader`. `endpoint`: an emulator's; empty: Google's.
    """

    def __init__(self, project: str, endpoint: str, timeout_s: float = TIMEOUT_S) -> None:
        self._project = project
        self._api = RestApi(GOOGLE, endpoint, timeout_s)

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        """Return the series that have points. Several pages cost a call each; a page has 100,000
        points.

        Raises MetricsDeniedError if the caller may not read metrics, and TemporaryError.
        """
        series: list[MetricSeries] = []
        parameters = _parameters(query)
        while True:
            with google_errors("read Cloud Monitoring", self._translate):
                try:
                    page = self._api.get(f"/v3/projects/{self._project}/timeSeries", **parameters)
                except exceptions.NotFound:  # no agent of this project has written the metric yet
                    return series
            listed = map(_series, page.get("timeSeries", ()))
            series += [one_series for one_series in listed if one_series.points]
            if not page.get("nextPageToken"):
                return series
            parameters["pageToken"] = page["nextPageToken"]

    def close(self) -> None:
        self._api.close()

    def _translate(self, error: exceptions.GoogleAPICallError) -> Exception | None:
        if is_refusal(error):
            reason = str(error.message).rstrip(".")
            return MetricsDeniedError(
                f"{reason}. Reading metrics needs {ROLE} on the project {self._project}"
            )
        return translate(error)


def metric_filter(query: MetricQuery) -> str:
    """Return the filter, in Cloud Monitoring's language, of the series that a query asks for."""
    parts = [
        f'metric.type = "{PREFIX}/{query.metric}"',
        'resource.type = "generic_task"',
        f'resource.labels.namespace = "{name_in_installation(NAMESPACE)}"',
    ]
    if query.job_id:
        parts.append(f'resource.labels.job = "{query.job_id}"')
    if query.replica:
        parts.append(f'resource.labels.task_id = "{query.replica}"')
    return " AND ".join(parts)


def _parameters(query: MetricQuery) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "filter": metric_filter(query),
        "interval.startTime": _time(query.start),
        "interval.endTime": _time(query.end),
    }
    if query.period_s:  # else the points as they were written
        parameters |= {
            "aggregation.alignmentPeriod": f"{query.period_s}s",
            "aggregation.perSeriesAligner": _aligner(query),
            "aggregation.crossSeriesReducer": REDUCERS[query.reducer],
            "aggregation.groupByFields": [_field(label) for label in query.group_by],
        }
    return parameters


def _aligner(query: MetricQuery) -> str:
    """Return how the points of each series become one per period.

    A count asks which series have a point in the period: REDUCE_COUNT then counts these series. The
    rate of a counter is a gauge.
    """
    if query.reducer is Reducer.COUNT:
        return "ALIGN_COUNT"
    return "ALIGN_RATE" if query.metric.is_counter else "ALIGN_MEAN"


def _field(label: Label) -> str:
    owner = "resource" if label in RESOURCE_LABELS else "metric"
    return f"{owner}.labels.{label}"


def _series(body: Json) -> MetricSeries:
    labels = {
        **body.get("metric", {}).get("labels", {}),
        **body.get("resource", {}).get("labels", {}),
    }
    is_counter = body.get("metricKind") == "CUMULATIVE"
    # Cloud Monitoring lists the newest point first.
    points = [_point(point, is_counter=is_counter) for point in reversed(body.get("points", ()))]
    finite = tuple(point for point in points if math.isfinite(point.value))
    return MetricSeries({label: labels[label] for label in Label if labels.get(label)}, finite)


def _point(point: Json, *, is_counter: bool) -> MetricPoint:
    interval = point["interval"]
    typed_value = point["value"]
    # Programs may write series of other types, which are no numbers.
    value = float(typed_value.get("doubleValue", typed_value.get("int64Value", "nan")))
    since = datetime.fromisoformat(interval["startTime"]) if is_counter else None
    return MetricPoint(datetime.fromisoformat(interval["endTime"]), value, since)


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
