"""The use of a job's machines: the latest values of each replica, and GPUs that are idle."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.model.job import Job, JobState
from trainmaster.ports.metrics import (
    RESOURCES,
    Label,
    Metric,
    MetricPoint,
    MetricQuery,
    MetricReader,
    MetricSeries,
)

THREADS: Final = 6
"""Calls at the same time: one for each metric of a machine."""
LATEST_S: Final = 660.0
"""How old the latest values may be: two long intervals between reports, and a delay of a minute."""
SETTLE: Final = timedelta(minutes=2)
"""Reports may be that much later than the end of a job."""
IDLE_SHARE: Final = 0.05
"""A GPU is idle while a kernel runs for less than this share of the time."""
IDLE_S: Final = 600.0
"""How long a GPU is not in use until a sentence names it."""
WITH_TENTHS: Final = 0.1
"""Below this share, tenths of a percent are shown."""
IDLE_NAMED_MAX: Final = 3
"""Idle GPUs that a sentence names."""

Answers = Mapping[MetricQuery, Sequence[MetricSeries]]


@dataclass(slots=True)
class GpuUse:
    """The latest values of one GPU, as shares from 0 to 1. None: no value."""

    index: int
    utilization: float | None = None
    """Share of the time in which a kernel ran."""
    memory: float | None = None


@dataclass(slots=True)
class ReplicaUse:
    """The latest values of one replica; of a TPU slice, means of its hosts. None: no value."""

    replica: str
    """Replica id."""
    cpu: float | None = None
    """Share from 0 to 1, as `memory`."""
    memory: float | None = None
    received_bps: float | None = None
    """Bytes per second."""
    sent_bps: float | None = None
    gpus: dict[int, GpuUse] = field(default_factory=dict)
    """By the index of the GPU."""
    sampled_at: datetime | None = None
    """End of the latest interval."""


def read_all(reader: MetricReader, queries: Iterable[MetricQuery]) -> Answers:
    """Run queries side by side. Raises the error of the first that failed."""
    query_list = tuple(queries)
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(query_list, pool.map(reader.read, query_list), strict=True))


def metrics_end(job: Job, now: datetime) -> datetime:
    """Return the time after which a job's agents write nothing."""
    return now if job.ended_at is None else min(now, job.ended_at + SETTLE)


def read_latest(reader: MetricReader, job: Job, now: datetime) -> tuple[ReplicaUse, ...]:
    """Return the latest values of each replica of the job's plan, in its order.

    Raises as `MetricReader.read`.
    """
    end = metrics_end(job, now)
    start = end - timedelta(seconds=LATEST_S)
    queries = {metric: MetricQuery(job.job_id, metric, start, end) for metric in RESOURCES}
    answers = read_all(reader, queries.values())
    uses = {str(replica_id): ReplicaUse(str(replica_id)) for replica_id in job.plan.replica_ids}
    for metric, query in queries.items():
        for replica, series in _by_replica(answers[query]).items():
            if replica in uses:
                _apply(uses[replica], metric, series)
    return tuple(uses.values())


def read_gpu_use_jobs(reader: MetricReader, jobs: Iterable[Job], now: datetime) -> dict[str, float]:
    """Return the mean use of the GPUs of running jobs in the last minutes, by job id, with one
    call.

    Jobs without GPUs, or without a value, are left out. Raises as `MetricReader.read`.
    """
    running_with_gpus = {
        job.job_id
        for job in jobs
        if job.state is JobState.RUNNING and any(group.accelerator for group in job.plan.groups)
    }
    if not running_with_gpus:
        return {}
    period_s = int(LATEST_S)
    query = MetricQuery(
        job_id="",  # of all jobs
        metric=Metric.GPU,
        start=now - timedelta(seconds=period_s),
        end=now,
        period_s=period_s,
        group_by=(Label.JOB,),
    )
    use = {
        series.labels.get(Label.JOB, ""): series.points[-1].value for series in reader.read(query)
    }
    return {
        job_id: min(max(share, 0.0), 1.0)
        for job_id, share in use.items()
        if job_id in running_with_gpus
    }


def read_idle_gpus(reader: MetricReader, job: Job, now: datetime) -> str:
    """Return a sentence about GPUs that are idle; empty if there are none.

    Raises as `MetricReader.read`.
    """
    end = metrics_end(job, now)
    start = end - timedelta(seconds=IDLE_S + LATEST_S)
    replicas = {str(replica_id) for replica_id in job.plan.replica_ids}
    all_series = reader.read(MetricQuery(job.job_id, Metric.GPU, start, end))
    return idle_sentence(
        [series for series in all_series if series.labels.get(Label.TASK_ID) in replicas], end
    )


def idle_sentence(all_series: Sequence[MetricSeries], end: datetime) -> str:
    """Return which GPUs of raw series were idle for the last `IDLE_S`; empty if none was."""
    begin = end - timedelta(seconds=IDLE_S)
    gpus = [series for series in _latest_generation(all_series) if series.points[-1].at > begin]
    idle = sorted(_name(series) for series in gpus if is_idle(series.points, end))
    if not idle:
        return ""
    named = ", ".join(idle[:IDLE_NAMED_MAX]) + (", …" if len(idle) > IDLE_NAMED_MAX else "")
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    verb = "was" if len(idle) == 1 else "were"
    return (
        f"{len(idle)} of {len(gpus)} {noun} {verb} idle for the last {IDLE_S / 60:.0f} minutes"
        f" (in use for less than {IDLE_SHARE:.0%} of the time): {named}"
    )


def is_idle(points: Sequence[MetricPoint], end: datetime) -> bool:
    """Return whether the GPU was idle, and measured, for the whole of the last `IDLE_S`."""
    begin = end - timedelta(seconds=IDLE_S)
    recent = [point for point in points if point.at > begin]
    is_covered = bool(recent) and any(point.at <= begin for point in points)
    return is_covered and all(point.value < IDLE_SHARE for point in recent)


def _by_replica(all_series: Sequence[MetricSeries]) -> dict[str, list[MetricSeries]]:
    """Return the series by replica id, only those of the latest VM and attempt."""
    by_replica: dict[str, list[MetricSeries]] = defaultdict(list)
    for series in _latest_generation(all_series):
        by_replica[series.labels.get(Label.TASK_ID, "")].append(series)
    return by_replica


def _latest_generation(all_series: Sequence[MetricSeries]) -> list[MetricSeries]:
    """Return one series for each machine and GPU: that of the latest VM and attempt."""
    latest: dict[tuple[str, ...], MetricSeries] = {}
    for series in filter(has_valid_gpu, all_series):
        key = tuple(
            series.labels.get(label, "") for label in (Label.TASK_ID, Label.HOST, Label.GPU)
        )
        if key not in latest or series.points[-1].at > latest[key].points[-1].at:
            latest[key] = series
    return list(latest.values())


def _apply(use: ReplicaUse, metric: Metric, all_series: Sequence[MetricSeries]) -> None:
    """Set the value of one metric from the series of one replica, of each of its hosts."""
    newest = max(series.points[-1].at for series in all_series)
    use.sampled_at = max(use.sampled_at or newest, newest)
    last = [series.points[-1].value for series in all_series]
    match metric:
        case Metric.CPU:
            use.cpu = sum(last) / len(last)
        case Metric.MEMORY:
            use.memory = sum(last) / len(last)
        case Metric.RECEIVED:
            use.received_bps = _rate(all_series)
        case Metric.SENT:
            use.sent_bps = _rate(all_series)
        case Metric.GPU | Metric.GPU_MEMORY:
            for series in all_series:
                index = int(series.labels.get(Label.GPU, "0"))
                gpu = use.gpus.setdefault(index, GpuUse(index))
                if metric is Metric.GPU:
                    gpu.utilization = series.points[-1].value
                else:
                    gpu.memory = series.points[-1].value


def _rate(all_series: Sequence[MetricSeries]) -> float | None:
    """Return the bytes per second of the last interval, of all hosts together."""
    rates = [_rate_of(series.points) for series in all_series]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _rate_of(points: Sequence[MetricPoint]) -> float | None:
    """Return the bytes per second of the last interval of a counter; None: it has no length."""
    last = points[-1]
    begin = last.since
    count = 0.0
    if len(points) > 1 and points[-2].since == last.since:  # else the counter began again
        begin = points[-2].at
        count = points[-2].value
    if begin is None:
        return None
    seconds = (last.at - begin).total_seconds()
    return (last.value - count) / seconds if seconds > 0 else None


def has_valid_gpu(series: MetricSeries) -> bool:
    """Return whether the label of the GPU is a number or absent.

    Any program on a VM can write series with other labels.
    """
    return re.fullmatch(r"[0-9]{0,3}", series.labels.get(Label.GPU, "")) is not None


def _name(series: MetricSeries) -> str:
    replica = series.labels.get(Label.TASK_ID, "").replace("-", " ")
    return f"GPU {series.labels.get(Label.GPU, '0')} of {replica}"


def share_words(share: float) -> str:
    """Return `42%`, or `0.4%` for a small share."""
    return f"{share:.0%}" if share >= WITH_TENTHS or share == 0 else f"{share:.1%}"


def bytes_words(bytes_per_s: float) -> str:
    """Return `1.2 MB/s`."""
    value = bytes_per_s
    for unit in ("B/s", "kB/s", "MB/s"):
        if value < 1000:  # noqa: PLR2004 - what the units are made of
            return f"{value:.0f} {unit}" if unit == "B/s" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB/s"
