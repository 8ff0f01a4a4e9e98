"""Reading the resource metrics that the agents write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from trainmaster.errors import PermanentError


class Metric(StrEnum):
    """Name of a metric, without its prefix (`trainmaster.agent.utilization.time_series`)."""

    CPU = "cpu/utilization"
    MEMORY = "memory/utilization"
    GPU = "accelerator/utilization"
    GPU_MEMORY = "accelerator/memory/utilization"
    RECEIVED = "network/received_bytes_count"
    SENT = "network/sent_bytes_count"
    PROGRESS = "progress"
    """Progress of the primary's program. The label `name` identifies what a series measures."""

    QUIET = "program/quiet"
    """Quiet time of a program that will be ended as hung, and the time until then. The label `name`
    is `for` or `left`; both are in seconds.
    """

    ALIVE = "agent/alive"
    """A sign of life: each agent writes it every 30 seconds. Each host of a TPU node has an agent.
    """

    @property
    def is_counter(self) -> bool:
        """Whether points are bytes since a start; other resources are shares from 0 to 1."""
        return self in (Metric.RECEIVED, Metric.SENT)


RESOURCES: Final = tuple(
    metric for metric in Metric if metric not in (Metric.PROGRESS, Metric.QUIET, Metric.ALIVE)
)


class Label(StrEnum):
    """The labels that distinguish the series of a metric."""

    JOB = "job"
    TASK_ID = "task_id"
    """Replica id: `worker-0`."""
    TASK_TYPE = "task_type"
    GPU = "gpu"
    """Index of a GPU in its machine."""
    HOST = "host"
    """Number of a host in its TPU slice; missing for VMs."""
    ATTEMPT = "attempt"
    GENERATION = "generation"
    """VM generation."""
    INCARNATION = "incarnation"
    """Only series of PROGRESS have this label and the next two."""
    NAME = "name"
    """`share`, `step`, `steps`, or `metric/` and the name of a metric of the program."""
    SOURCE = "source"
    """`reported`, `printed` or `events`."""


class Reducer(StrEnum):
    """How series of one group become one."""

    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    COUNT = "count"
    """The number of series with a point in the period."""


class MetricsDeniedError(PermanentError):
    """The caller may not read metrics, or the API is disabled.

    The text names the role that is missing.
    """


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """Points of one metric of a job in (start, end]."""

    job_id: str
    """Empty: of all jobs."""
    metric: Metric
    start: datetime
    end: datetime
    replica: str = ""
    """Replica id; empty: all replicas."""
    period_s: int = 0
    """Length of the periods whose means are returned, 60 s or more; 0: the points as they were
    written.
    """
    reducer: Reducer = Reducer.MEAN
    """How the means of a group's series become one value. It has no effect without a period."""
    group_by: tuple[Label, ...] = ()
    """Series that agree in all of these labels are one group. It has no effect without a period."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of a time series."""

    at: datetime
    """End of the interval or period that the value is about."""
    value: float
    """A share; of a counter, bytes per second with a period, and bytes since `since` without one.
    """
    since: datetime | None = None
    """Start of the counter, in points as they were written; None for shares."""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One time series of a metric."""

    labels: Mapping[Label, str]
    """With a period: those of `group_by`. A label that the agent did not write is missing."""
    points: tuple[MetricPoint, ...]
    """The oldest first."""


class MetricReader(Protocol):
    """The time series of the agents. A job without any has no series, which is no error."""

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        """Return the series that have points. Raises MetricsDeniedError or TemporaryError."""
        ...
