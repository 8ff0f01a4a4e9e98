"""Time series and their points, as the modules of this package pass them to each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster_emulators.rest.api_errors import Json
from trainmaster_emulators.rest.times import rfc3339

VALUE_FIELDS: Final = {"DOUBLE": "doubleValue", "INT64": "int64Value", "BOOL": "boolValue"}
"""Value type → field of TypedValue."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value, and the interval it is about, in nanoseconds since the epoch."""

    start_ns: int
    """Equals the end for a gauge."""
    end_ns: int
    value: float


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Identifies a time series."""

    metric: str
    labels: tuple[tuple[str, str], ...]
    """Labels of the metric, sorted."""
    resource: str
    resource_labels: tuple[tuple[str, str], ...]

    def field(self, path: str) -> str | None:
        """Return the value of `metric.labels.x`, `resource.type` and the like; None for a label
        that is not set.
        """
        owner, _, name = path.partition(".")
        if name == "type":
            return self.metric if owner == "metric" else self.resource
        labels = self.labels if owner == "metric" else self.resource_labels
        return dict(labels).get(name.partition(".")[2])

    def text(self) -> str:
        return json.dumps([self.metric, self.labels, self.resource, self.resource_labels])

    @staticmethod
    def from_text(text: str) -> SeriesKey:
        metric, labels, resource, resource_labels = json.loads(text)
        return SeriesKey(metric, _pairs(labels), resource, _pairs(resource_labels))


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one time series."""

    key: SeriesKey
    kind: str
    """GAUGE or CUMULATIVE; GAUGE for a rate."""
    value_type: str
    points: tuple[Point, ...]
    """The oldest first."""

    def to_json(self, unit: str, *, with_points: bool = True) -> Json:
        """Return the series as the API returns it, the newest point first."""
        points = [self._point(point) for point in reversed(self.points)] if with_points else []
        answer: Json = {
            "metric": _with_labels(self.key.metric, self.key.labels),
            "resource": _with_labels(self.key.resource, self.key.resource_labels),
            "metricKind": self.kind,
            "valueType": self.value_type,
        }
        if points:
            answer["points"] = points
        if unit:
            answer["unit"] = unit
        return answer

    def _point(self, point: Point) -> Json:
        value: str | bool | float = point.value
        if self.value_type == "INT64":
            value = str(int(point.value))
        elif self.value_type == "BOOL":
            value = bool(point.value)
        interval = {"startTime": rfc3339(point.start_ns), "endTime": rfc3339(point.end_ns)}
        return {"interval": interval, "value": {VALUE_FIELDS[self.value_type]: value}}


def sorted_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _with_labels(kind: str, labels: tuple[tuple[str, str], ...]) -> Json:
    if not labels:
        return {"type": kind}
    return {"type": kind, "labels": dict(labels)}


def _pairs(rows: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in rows)
