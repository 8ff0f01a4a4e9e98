"""A report as the body of Cloud Monitoring's `timeSeries.create`. docs/interfaces.md, section 9.

The metric types follow those of AI Platform Training (`ml.googleapis.com/training/…`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.agent.control.stall_watch import Quiet
from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
from trainmaster.agent.progress.collector import ProgressPoint
from trainmaster.agent.reporting.log_entry import rfc3339
from trainmaster.agent.utilization.averages import Report

PREFIX = "custom.googleapis.com/trainmaster/training"
CPU = f"{PREFIX}/cpu/utilization"
MEMORY = f"{PREFIX}/memory/utilization"
GPU = f"{PREFIX}/accelerator/utilization"
GPU_MEMORY = f"{PREFIX}/accelerator/memory/utilization"
RECEIVED = f"{PREFIX}/network/received_bytes_count"
SENT = f"{PREFIX}/network/sent_bytes_count"
PROGRESS = f"{PREFIX}/progress"
QUIET = f"{PREFIX}/program/quiet"
ALIVE = f"{PREFIX}/agent/alive"
SHARE_DIGITS = 6  # decimal places of a share


@dataclass(frozen=True)
class SeriesOrigin:
    """The machine whose time series these are."""

    resource: Mapping[str, str]
    """Labels of the monitored resource, of type `generic_task`."""
    labels: Mapping[str, str]
    """Labels of all series, except for the attempt."""

    @staticmethod
    def of(identity: AgentIdentity) -> SeriesOrigin:
        """Return the origin of this machine's series."""
        config = identity.config
        # The last part of the log's name is that of the installation.
        namespace = config.log["name"].rpartition("/")[2] if config.log else "trainmaster"
        labels = {"task_type": config.task_type, "generation": str(config.vm_generation)}
        if identity.host is not None:  # the hosts of a slice are machines of one replica
            labels["host"] = str(identity.host.number)
        return SeriesOrigin(
            {
                "project_id": config.project,
                "location": identity.vm.zone.rpartition("-")[0],
                "namespace": namespace,
                "job": config.job_id,
                "task_id": f"{config.task_type}-{identity.index}",
            },
            labels,
        )


def request_body(
    origin: SeriesOrigin,
    key: IncarnationKey,
    report: Report,
    start_ns: int,
    end_ns: int,
    progress: Sequence[ProgressPoint] = (),
    quiet: Quiet | None = None,
) -> dict[str, Any]:
    """Return the body: one point for each series.

    `key`: the incarnation (execution of the program) that was started last. `start_ns` is the time
    of the first sample, from which bytes are counted, and `end_ns` the time of the report, both in
    nanoseconds since 1970. `quiet`: how long the program has been quiet, if it will be ended for
    that.
    """
    gauge = {"endTime": rfc3339(end_ns)}
    since_start = {"startTime": rfc3339(start_ns), **gauge}
    labels = {**origin.labels, "attempt": str(key.attempt)}

    def series(
        metric: str, value: Mapping[str, object], interval: Mapping[str, str], **own_labels: str
    ) -> dict[str, Any]:
        is_gauge = interval is gauge
        return {
            "metric": {"type": metric, "labels": {**labels, **own_labels}},
            "resource": {"type": "generic_task", "labels": origin.resource},
            "metricKind": "GAUGE" if is_gauge else "CUMULATIVE",
            "valueType": "DOUBLE" if is_gauge else "INT64",
            "unit": "1" if is_gauge else "By",
            "points": [{"interval": interval, "value": value}],
        }

    def all_series() -> Iterator[dict[str, Any]]:
        yield series(CPU, _share(report.cpu), gauge)
        yield series(MEMORY, _share(report.memory), gauge)
        for index, share in report.gpus.items():
            yield series(GPU, _share(share), gauge, gpu=str(index))
        for index, share in report.gpu_memory.items():
            yield series(GPU_MEMORY, _share(share), gauge, gpu=str(index))
        for metric, count in ((RECEIVED, report.received), (SENT, report.sent)):
            if count is not None:
                yield series(metric, {"int64Value": str(count)}, since_start)

        for point in progress:
            yield series(
                PROGRESS,
                {"doubleValue": point.value},
                gauge,
                name=point.name,
                source=point.source,
                incarnation=str(key.incarnation),
            )

        if quiet is not None:
            yield series(QUIET, {"doubleValue": quiet.for_s}, gauge, name="for")
            yield series(QUIET, {"doubleValue": quiet.left_s}, gauge, name="left")

    return {"timeSeries": list(all_series())}


def alive_body(origin: SeriesOrigin, at: str) -> dict[str, Any]:
    """Return the body that says that this machine's agent works.

    `at` is Google's time in RFC 3339.
    """
    point = {"interval": {"endTime": at.replace("+00:00", "Z")}, "value": {"int64Value": "1"}}
    metric = {"type": ALIVE, "labels": origin.labels}
    resource = {"type": "generic_task", "labels": origin.resource}
    series = {
        "metric": metric,
        "resource": resource,
        "metricKind": "GAUGE",
        "valueType": "INT64",
        "points": [point],
    }
    return {"timeSeries": [series]}


def _share(value: float) -> dict[str, float]:
    return {"doubleValue": round(value, SHARE_DIGITS)}
