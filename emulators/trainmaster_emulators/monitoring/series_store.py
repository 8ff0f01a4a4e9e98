"""Descriptors and points of Cloud Monitoring's emulator in a SQLite file, with the checks that
depend on earlier writes: kind, type, order, rate.

Series belong to a project. Descriptors are those of all projects.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainmaster_emulators.monitoring.series import Point, Series, SeriesKey
from trainmaster_emulators.monitoring.write_checks import NewPoint, frequency_error
from trainmaster_emulators.rest.api_errors import ApiError, Json, invalid
from trainmaster_emulators.rest.times import SECOND

SAMPLING_NS: Final = 5 * SECOND
"""Shortest time between two points of a series. Source: quotas page, "user-defined metrics"."""
RESET_NS: Final = 1_000_000
"""Shortest time from the last end to a new start.

Source: TimeInterval in the API's discovery document.
"""

_SCHEMA: Final = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS descriptors (
        type TEXT PRIMARY KEY, kind TEXT, value_type TEXT, unit TEXT, labels TEXT
    );
    CREATE TABLE IF NOT EXISTS series (
        id INTEGER PRIMARY KEY, project TEXT, metric TEXT, key TEXT, UNIQUE (project, key)
    );
    CREATE TABLE IF NOT EXISTS points (
        series INTEGER, end INTEGER, start INTEGER, value REAL, PRIMARY KEY (series, end)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS series_by_metric ON series (project, metric);
"""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A metric: the fields of Google's MetricDescriptor."""

    metric: str
    """Its type, such as `custom.googleapis.com/…`."""
    kind: str
    value_type: str
    unit: str
    labels: tuple[str, ...]

    def to_json(self, project: str) -> Json:
        descriptor: Json = {
            "name": f"projects/{project}/metricDescriptors/{self.metric}",
            "type": self.metric,
            "metricKind": self.kind,
            "valueType": self.value_type,
            "labels": [{"key": label, "valueType": "STRING"} for label in self.labels],
        }
        if self.unit:
            descriptor["unit"] = self.unit
        return descriptor


class SeriesStore:
    """The descriptors and points that `server` writes and reads.

    Thread-safe; statements run one at a time.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.executescript(_SCHEMA)

    def add(self, project: str, new: NewPoint) -> None:
        """Store a point.

        Raises ApiError (400) if it contradicts the descriptor or earlier points.
        """
        with self._lock:
            self._check_descriptor(new)
            series_id = self._series_id(project, new.key)
            self._check_order(series_id, new)
            row = (series_id, new.point.end_ns, new.point.start_ns, new.point.value)
            self._database.execute("INSERT INTO points VALUES (?, ?, ?, ?)", row)

    def descriptors(self) -> list[Descriptor]:
        with self._lock:
            rows = self._database.execute("SELECT * FROM descriptors ORDER BY type").fetchall()
        return [
            Descriptor(metric, kind, value_type, unit, tuple(json.loads(labels)))
            for metric, kind, value_type, unit, labels in rows
        ]

    def read(
        self,
        project: str,
        metric: str,
        accepts: Callable[[SeriesKey], bool],
        start_ns: int,
        end_ns: int,
    ) -> Iterator[Series]:
        """Yield the matching series with points in (start, end], and the last point before
        `start_ns`.

        An aligner needs that point for a rate. Series without a point after `start_ns` are left
        out.
        """
        with self._lock:
            found = self._database.execute(
                "SELECT id, key FROM series WHERE project = ? AND metric = ? ORDER BY key",
                (project, metric),
            ).fetchall()
            described = self._database.execute(
                "SELECT kind, value_type FROM descriptors WHERE type = ?", (metric,)
            ).fetchone()
        for series_id, text in found:
            key = SeriesKey.from_text(text)
            points = self._points(series_id, start_ns, end_ns) if accepts(key) else ()
            if points:
                kind, value_type = described
                yield Series(key, kind, value_type, points)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _points(self, series_id: int, start_ns: int, end_ns: int) -> tuple[Point, ...]:
        query = (
            "SELECT start, end, value FROM points WHERE series = ? AND end > ? AND end <= ? ORDER"
            " BY end"
        )
        with self._lock:
            rows = self._database.execute(query, (series_id, start_ns, end_ns)).fetchall()
            if not rows:
                return ()
            before = self._database.execute(
                "SELECT start, end, value FROM points WHERE series = ? AND end <= ? ORDER BY end"
                " DESC LIMIT 1",
                (series_id, start_ns),
            ).fetchall()
        return tuple(Point(*row) for row in (*before, *rows))

    def _check_descriptor(self, new: NewPoint) -> None:
        """Create the metric's descriptor at its first write, and add labels that it does not have
        yet.
        """
        metric = new.key.metric
        labels = {name for name, _ in new.key.labels}
        row = self._database.execute(
            "SELECT * FROM descriptors WHERE type = ?", (metric,)
        ).fetchone()
        if row is None:
            created = (metric, new.kind, new.value_type, new.unit, json.dumps(sorted(labels)))
            self._database.execute("INSERT INTO descriptors VALUES (?, ?, ?, ?, ?)", created)
            return
        _, kind, value_type, _, known_labels = row
        if kind != new.kind:
            raise invalid(f"Metric kind for metric {metric} must be {kind}, but is {new.kind}.")
        if value_type != new.value_type:
            raise invalid(
                f"Value type for metric {metric} must be {value_type}, but is {new.value_type}."
            )
        known = set(json.loads(known_labels))
        if not labels <= known:
            merged = json.dumps(sorted(labels | known))
            self._database.execute(
                "UPDATE descriptors SET labels = ? WHERE type = ?", (merged, metric)
            )

    def _series_id(self, project: str, key: SeriesKey) -> int:
        self._database.execute(
            "INSERT OR IGNORE INTO series (project, metric, key) VALUES (?, ?, ?)",
            (project, key.metric, key.text()),
        )
        row = self._database.execute(
            "SELECT id FROM series WHERE project = ? AND key = ?", (project, key.text())
        ).fetchone()
        return int(row[0])

    def _check_order(self, series_id: int, new: NewPoint) -> None:
        last: Sequence[int] | None = self._database.execute(
            "SELECT start, end FROM points WHERE series = ? ORDER BY end DESC LIMIT 1", (series_id,)
        ).fetchone()
        if last is None:
            return
        last_start_ns, last_end_ns = last
        if new.point.end_ns <= last_end_ns:
            raise _order_error()
        is_reset = new.kind == "CUMULATIVE" and new.point.start_ns != last_start_ns
        if is_reset and new.point.start_ns < last_end_ns + RESET_NS:
            raise _order_error()
        if new.point.end_ns < last_end_ns + SAMPLING_NS:
            raise frequency_error()


def _order_error() -> ApiError:
    return invalid(
        "Points must be written in order. One or more of the points specified had an older start"
        " time than the most recent point."
    )
