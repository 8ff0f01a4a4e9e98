"""The Monitoring emulator inside the test process: called directly, or behind a port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from werkzeug.test import Client

from tests.support.serving import serving
from trainmaster_emulators.monitoring.series_store import SeriesStore
from trainmaster_emulators.monitoring.server import MonitoringServer
from trainmaster_emulators.rest.server import listen
from trainmaster_emulators.rest.times import SECOND, rfc3339

PROJECT = "my-project"
START = datetime(2026, 11, 21, 3, tzinfo=UTC)
START_NS = int(START.timestamp()) * SECOND
CPU = "custom.googleapis.com/trainmaster/training/cpu/utilization"
BYTES = "custom.googleapis.com/trainmaster/training/network/sent_bytes_count"


class Cloud:
    """The emulator with a clock of its own, which stands at `now_s` after 03:00."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.store = SeriesStore(folder / "series.sqlite")
        self.server = MonitoringServer(
            self.store, clock_ns=lambda: START_NS + round(self.now_s * SECOND)
        )
        self._client = Client(self.server)

    def create(self, *series: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        response = self._client.post(
            f"/v3/projects/{PROJECT}/timeSeries", data=json.dumps({"timeSeries": series})
        )
        return response.status_code, json.loads(response.get_data(as_text=True))

    def write(self, *series: dict[str, Any]) -> None:
        """Write as the agent does. Raises AssertionError for an error."""
        status, body = self.create(*series)
        assert (status, body) == (200, {})

    def refusal(self, *series: dict[str, Any]) -> str:
        """Return the message of a refused write."""
        status, body = self.create(*series)
        assert status == 400, body
        return str(body["error"]["message"])

    def get(self, **parameters: Any) -> tuple[int, dict[str, Any]]:
        """List; `_` stands for the dot in names of parameters."""
        query = urlencode(
            [(name.replace("_", "."), value) for name, value in parameters.items()], doseq=True
        )
        response = self._client.get(f"/v3/projects/{PROJECT}/timeSeries?{query}")
        return response.status_code, json.loads(response.get_data(as_text=True))

    def list(
        self, filter: str, start_s: float, end_s: float, **parameters: Any
    ) -> list[dict[str, Any]]:
        interval = {"interval_startTime": at(start_s), "interval_endTime": at(end_s)}
        status, body = self.get(filter=filter, **interval, **parameters)
        assert status == 200, body
        return list(body.get("timeSeries", []))

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on a loopback port during the block. The value is `http://host:port`."""
        with serving(listen("127.0.0.1", 0, self.server)) as address:
            yield address


def at(seconds: float) -> str:
    return rfc3339(START_NS + round(seconds * SECOND))


def a_gauge(
    value: float = 0.5, end_s: float = 0.0, task: str = "worker-0", **labels: str
) -> dict[str, Any]:
    """Return a series of the CPU with one point."""
    return {
        "metric": {
            "type": CPU,
            "labels": {"task_type": task.partition("-")[0], "attempt": "1", **labels},
        },
        "resource": {"type": "generic_task", "labels": resource_labels(task)},
        "metricKind": "GAUGE",
        "valueType": "DOUBLE",
        "unit": "1",
        "points": [{"interval": {"endTime": at(end_s)}, "value": {"doubleValue": value}}],
    }


def a_counter(
    count: int, end_s: float, start_s: float = 0.0, task: str = "worker-0"
) -> dict[str, Any]:
    """Return a series of sent bytes with one point."""
    return {
        "metric": {"type": BYTES, "labels": {"task_type": task.partition("-")[0]}},
        "resource": {"type": "generic_task", "labels": resource_labels(task)},
        "metricKind": "CUMULATIVE",
        "valueType": "INT64",
        "unit": "By",
        "points": [
            {
                "interval": {"startTime": at(start_s), "endTime": at(end_s)},
                "value": {"int64Value": str(count)},
            }
        ],
    }


def resource_labels(task: str) -> dict[str, str]:
    """Return the labels of the monitored resource `generic_task` for this task."""
    names = {
        "project_id": PROJECT,
        "location": "us-central1",
        "namespace": "trainmaster",
        "job": "digits_1",
    }
    return {**names, "task_id": task}


def values(series: dict[str, Any]) -> list[tuple[float, float]]:
    """Return seconds since 03:00 and value of each point, the oldest first."""
    return [
        (
            (datetime.fromisoformat(point["interval"]["endTime"]) - START).total_seconds(),
            float(next(iter(point["value"].values()))),
        )
        for point in reversed(series["points"])
    ]
