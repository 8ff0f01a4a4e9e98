"""The checks of one time series in `timeSeries.create`, except those that need earlier writes
(`series_store`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from trainmaster_emulators.monitoring.series import (
    VALUE_FIELDS,
    Point,
    SeriesKey,
    sorted_labels,
)
from trainmaster_emulators.rest.api_errors import Json, StatusError, invalid
from trainmaster_emulators.rest.times import SECOND, nanoseconds

PAST_MAX_NS: Final = 25 * 3600 * SECOND
FUTURE_MAX_NS: Final = 300 * SECOND
"""Source of both: TimeInterval in the API's discovery document."""
LABELS_MAX: Final = 30
LABEL_CHARS_MAX: Final = 1024
"""Source of both: Cloud Monitoring's quotas page, "user-defined metrics"."""
RESOURCES: Final = {
    "generic_task": {"project_id", "location", "namespace", "job", "task_id"},
    "generic_node": {"project_id", "location", "namespace", "node_id"},
    "gce_instance": {"project_id", "instance_id", "zone"},
    "global": {"project_id"},
}
"""Labels of the resource types that this emulator accepts.

Source: the list of monitored resource types.
"""
KINDS: Final = ("GAUGE", "CUMULATIVE")
_TYPE: Final = re.compile(
    r"(custom\.googleapis\.com|external\.googleapis\.com)/[A-Za-z0-9_/.-]{1,200}"
)
_LABEL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class NewPoint:
    """A valid time series of a write, with its point."""

    key: SeriesKey
    kind: str
    value_type: str
    unit: str
    point: Point


def parse_series(series: Json, project: str, now_ns: int) -> NewPoint:
    """Check one series of a write. Raises ApiError (400)."""
    metric, labels = _metric(series)
    resource, resource_labels = _resource(series, project)
    points = series.get("points")
    if not isinstance(points, list) or len(points) != 1:
        count = len(points) if isinstance(points, list) else 0
        raise invalid(
            f"Field points had an invalid value: must contain exactly one point, not {count}."
        )
    value_type, value = _value(points[0], metric)
    if series.get("valueType", value_type) != value_type:
        raise invalid(
            f"Field valueType is {series['valueType']}, but the point's value is of the type"
            f" {value_type}."
        )
    kind = series.get("metricKind", "GAUGE")
    if kind not in KINDS:
        raise invalid(
            f"Field metricKind had an invalid value {kind!r}: a user-defined metric is"
            f" {' or '.join(KINDS)}."
        )
    point = _interval(points[0], kind, now_ns)
    key = SeriesKey(metric, sorted_labels(labels), resource, sorted_labels(resource_labels))
    return NewPoint(key, kind, value_type, str(series.get("unit", "")), Point(*point, value))


def _metric(series: Json) -> tuple[str, dict[str, str]]:
    """Return type and labels of the metric."""
    metric = series.get("metric") or {}
    name = metric.get("type")
    if not isinstance(name, str) or not _TYPE.fullmatch(name):
        raise invalid(
            f"Field metric.type had an invalid value {name!r}: must start with"
            " custom.googleapis.com/."
        )
    labels = metric.get("labels", {})
    if len(labels) > LABELS_MAX:
        raise invalid(f"Metric {name} has {len(labels)} labels; at most {LABELS_MAX} are allowed.")
    for label, value in labels.items():
        is_valid_value = isinstance(value, str) and len(value) <= LABEL_CHARS_MAX
        if not _LABEL.fullmatch(label) or not is_valid_value:
            raise invalid(f"Field metric.labels[{label}] had an invalid value {value!r}.")
    return name, labels


def _resource(series: Json, project: str) -> tuple[str, dict[str, str]]:
    """Return type and labels of the monitored resource."""
    resource = series.get("resource") or {"type": "global"}
    kind = resource.get("type")
    labels = {"project_id": project, **resource.get("labels", {})}
    if kind not in RESOURCES:
        raise invalid(f"Field resource.type had an invalid value {kind!r}.")
    unknown = sorted(set(labels) - RESOURCES[kind])
    if unknown:
        raise invalid(f"Unrecognized resource label for {kind}: {', '.join(unknown)}.")
    missing = sorted(RESOURCES[kind] - {name for name, value in labels.items() if value})
    if missing:
        raise invalid(
            f"Field resource.labels had an invalid value: {kind} needs {', '.join(missing)}."
        )
    if labels["project_id"] != project:
        raise invalid(
            f"Field resource.labels[project_id] is {labels['project_id']}, but the request is for"
            f" {project}."
        )
    return kind, labels


def _value(point: Json, metric: str) -> tuple[str, float]:
    """Return type and number of the point's value."""
    values: dict[str, Any] = point.get("value") or {}
    types = [name for name, field in VALUE_FIELDS.items() if field in values]
    if len(types) != 1 or len(values) != 1:
        raise invalid(
            f"Field points[0].value of {metric} must have one of"
            f" {', '.join(VALUE_FIELDS.values())}."
        )
    (value_type,) = types
    raw = values[VALUE_FIELDS[value_type]]
    try:
        value = float(int(raw)) if value_type == "INT64" else float(raw)
    except (TypeError, ValueError):
        raise invalid(
            f"Invalid value at 'time_series.points[0].value.{VALUE_FIELDS[value_type]}': {raw!r}."
        ) from None
    if not math.isfinite(value):
        raise invalid(f"Field points[0].value of {metric} must be a finite number.")
    return value_type, value


def _interval(point: Json, kind: str, now_ns: int) -> tuple[int, int]:
    """Return start and end of the point, in nanoseconds since 1970."""
    interval = point.get("interval") or {}
    if "endTime" not in interval:
        raise invalid("Field points[0].interval.endTime is required.")
    end = nanoseconds(interval["endTime"])
    start = nanoseconds(interval["startTime"]) if "startTime" in interval else end
    if end > now_ns + FUTURE_MAX_NS:
        raise invalid(
            "Field points[0].interval.end_time had an invalid value: more than five minutes in the"
            " future."
        )
    if end < now_ns - PAST_MAX_NS:
        raise invalid(
            "Field points[0].interval.end_time had an invalid value: more than 25 hours in the"
            " past."
        )
    if kind == "GAUGE" and start != end:
        raise invalid(
            "Field points[0].interval.start_time had an invalid value: a gauge's equals its end"
            " time."
        )
    if kind == "CUMULATIVE" and start >= end:
        raise invalid(
            "Field points[0].interval.start_time had an invalid value: the start time must be"
            " before the end time for the non-gauge metric."
        )
    return start, end


def frequency_error() -> StatusError:
    """Return the error of a point that follows the last one too soon."""
    text = (
        "One or more points were written more frequently than the maximum sampling period"
        " configured for the metric."
    )
    return StatusError("FAILED_PRECONDITION", text)
