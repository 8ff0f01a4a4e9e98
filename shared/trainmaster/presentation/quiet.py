"""Programs that print nothing, before they are ended as hung.

Agents write to Cloud Monitoring how long they are quiet, and when that ends them. Programs can
write any series with their VM's token, so no decision uses these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from trainmaster.core.model.job import Job, JobState
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.ports.metrics import Label, Metric, MetricQuery, MetricReader, MetricSeries
from trainmaster.presentation.job_view import View, timestamp
from trainmaster.presentation.progress import rough_words

FRESH: Final = timedelta(seconds=150)
"""A program that is quiet has a point a minute. An older point is about a time that has ended."""
LEFT_S_MAX: Final = 366 * 86400.0
"""A year: programs can write any number."""
_QUIET_S: Final = "for"
"""Name of the series of how long a program has printed nothing, in seconds."""
_LEFT_S: Final = "left"
"""Name of the series of the time left until the agent ends it, in seconds."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """A program that will be ended as hung if it stays quiet."""

    who: str
    """The replica, as `worker 1`; empty: the whole job."""
    since: datetime
    ends_at: datetime

    def words(self, now: datetime) -> str:
        """Return `has printed nothing for 6 min and is ended at 17:06 UTC if it stays so`."""
        quiet_s = max((now - self.since).total_seconds(), 0.0)
        who = f"{self.who} " if self.who else ""
        return (
            f"{who}has printed nothing for {rough_words(quiet_s)} and is ended at"
            f" {self.ends_at:%H:%M} UTC if it stays so"
        )

    def view(self) -> View:
        """Return the notice as JSON."""
        replica = {"replica": self.who} if self.who else {}
        return {**replica, "since": timestamp(self.since), "endsAt": timestamp(self.ends_at)}


def read_quiet(reader: MetricReader, job: Job, now: datetime) -> Quiet | None:
    """Return the notice about a running job; None: there is none.

    Raises as `MetricReader.read`.
    """
    if job.state is not JobState.RUNNING:
        return None
    return _notice(job, reader.read(MetricQuery(job.job_id, Metric.QUIET, now - FRESH, now)))


def read_quiet_jobs(reader: MetricReader, jobs: Iterable[Job], now: datetime) -> dict[str, Quiet]:
    """Return the notices about these jobs, by job id, with one call.

    Raises as `MetricReader.read`.
    """
    running = [job for job in jobs if job.state is JobState.RUNNING]
    if not running:
        return {}
    by_job: dict[str, list[MetricSeries]] = {job.job_id: [] for job in running}
    for series in reader.read(
        MetricQuery(job_id="", metric=Metric.QUIET, start=now - FRESH, end=now)
    ):
        by_job.get(series.labels.get(Label.JOB, ""), []).append(series)
    notices = {job.job_id: _notice(job, by_job[job.job_id]) for job in running}
    return {job_id: notice for job_id, notice in notices.items() if notice is not None}


def with_quiet(view: View, quiet: Quiet | None) -> View:
    """Return the view of a job (`job_view`), with the notice if there is one."""
    if quiet is None:
        return view
    return {**view, EXTENSION: {**view[EXTENSION], "quiet": quiet.view()}}


def _notice(job: Job, all_series: Sequence[MetricSeries]) -> Quiet | None:
    """Return the notice of the replica that decides.

    With a time as `stallTimeout`, the first replica that has printed nothing for that time ends
    all. By default all replicas must be still (print nothing, move no bytes and compute hardly
    anything): the primary, whose success is the job's, stands for them.
    """
    # Replica id → name of a series → its latest point.
    by_replica: dict[str, dict[str, Any]] = {}
    for series in all_series:
        if series.points and series.labels.get(Label.ATTEMPT) == str(job.attempt):
            values = by_replica.setdefault(series.labels.get(Label.TASK_ID, ""), {})
            values[series.labels.get(Label.NAME, "")] = series.points[-1]
    is_alone = len(job.plan.replica_ids) == 1
    notices: dict[str, Quiet] = {}
    for replica, values in by_replica.items():
        notice = _quiet("" if is_alone else replica, values)
        if notice is not None:
            notices[replica] = notice
    if job.plan.watching.stall_timeout_s is None:
        primary = notices.get(str(job.plan.primary))
        return Quiet(who="", since=primary.since, ends_at=primary.ends_at) if primary else None
    return min(notices.values(), key=lambda notice: notice.ends_at, default=None)


def _quiet(replica: str, values: Mapping[str, Any]) -> Quiet | None:
    """Return the notice that the latest points of a replica make; None: they make none."""
    if _QUIET_S not in values or _LEFT_S not in values:
        return None
    at = values[_LEFT_S].at
    quiet_s = min(max(values[_QUIET_S].value, 0.0), LEFT_S_MAX)
    left_s = min(max(values[_LEFT_S].value, 0.0), LEFT_S_MAX)
    words = replica.replace("-", " ")
    return Quiet(words, at - timedelta(seconds=quiet_s), at + timedelta(seconds=left_s))
