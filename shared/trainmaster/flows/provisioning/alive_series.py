"""Reading the series `agent/alive`, to which each agent writes a point every 30 seconds.

Any program on a VM may write points of other jobs. They can hide a VM that hangs for as long as
they arrive. They cannot end a VM: of several series with a VM's labels, the latest point counts. Of
a slice, whose hosts have a series each, the oldest point counts, but it is lost only with an old
heartbeat as well: the time that the agent writes to its VM's guest attributes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from trainmaster.core.model.job import State
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reconcile.heartbeat import Points
from trainmaster.core.timeouts import OLD_POINT, SERIES_MEMORY
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports.metrics import (
    Label,
    Metric,
    MetricQuery,
    MetricReader,
    MetricSeries,
    Reducer,
)

_log = logging.getLogger(__name__)


def last_points(state: State, metrics: MetricReader | None, now: datetime) -> Points:
    """Return the last points of the job's current VMs, with one call. Empty: unknown."""
    if metrics is None:
        return {}
    times: dict[tuple[str, str], list[datetime]] = {}
    for series in _read(
        metrics, MetricQuery(state.job.job_id, Metric.ALIVE, now - SERIES_MEMORY, now)
    ):
        key = (series.labels.get(Label.TASK_ID, ""), series.labels.get(Label.GENERATION, ""))
        times.setdefault(key, []).append(series.points[-1].at)
    points: dict[ReplicaId, datetime] = {}
    for replica in state.replicas:
        of_vm = times.get((str(replica.replica_id), str(replica.vm_generation)))
        if of_vm:
            group = state.job.plan.group(replica.replica_id.task_type)
            points[replica.replica_id] = max(of_vm) if group.tpu is None else min(of_vm)
    return points


def count_alive(
    metrics: MetricReader, now: datetime, age: timedelta = OLD_POINT
) -> Mapping[str, int]:
    """Return by job id how many series have a point that is not older than `age`, with one call for
    all jobs.
    """
    query = MetricQuery(
        job_id="",
        metric=Metric.ALIVE,
        start=now - age,
        end=now,
        period_s=round(age.total_seconds()),
        reducer=Reducer.COUNT,
        group_by=(Label.JOB,),
    )
    return {
        series.labels.get(Label.JOB, ""): round(series.points[-1].value)
        for series in _read(metrics, query)
    }


def _read(metrics: MetricReader, query: MetricQuery) -> tuple[MetricSeries, ...]:
    """Return the series; none if they cannot be read, which is no evidence about any VM."""
    try:
        return tuple(series for series in metrics.read(query) if series.points)
    except (TemporaryError, PermanentError) as error:
        _log.warning("VMs that hang are found later: their series cannot be read: %s", error)
        return ()
