"""The runs of a schedule: the times that follow from its cron expression, and the job of a run.

The job id of a run is derived from the time of its message, in UTC. Two runs with one id are one
job: the second one is refused, because ids are never used again.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from trainmaster.core.intake.job_id_template import at_time
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError
from trainmaster.jobspec.job_document import job_id_of
from trainmaster.ports import Store

RUNS_CHECKED: Final = 3_000
"""Runs of a schedule whose ids are compared: at least a year of up to eight runs a day. A schedule
with more runs a day has two with one id among the first ones, if any.
"""
HORIZON: Final = timedelta(days=366)
"""A year, in which the clock is set forward once and back once."""
_INTERVAL: Final = "every "
"""Begins an interval, Cloud Scheduler's other form: `every 24 hours`."""
PUBLICATION_S_MAX: Final = 5
"""Seconds within which the message of a run is published, mostly within the same second."""
REJECTIONS_READ: Final = 100
"""Rejections of a schedule's messages that are read, the newest."""
_SKEW: Final = timedelta(seconds=2)
"""Largest difference between the clocks of Cloud Scheduler and the functions."""


def upcoming_runs(cron: str, time_zone: str, after: datetime) -> Iterator[datetime]:
    """Yield the times of a cron expression, in UTC. Raises PermanentError for a wrong one."""
    try:
        times = CronSim(cron, after.astimezone(ZoneInfo(time_zone)))
    except CronSimError as error:
        raise PermanentError(
            f"--cron: {cron!r} is not a cron expression ({error}): minute, hour, day of the month,"
            " month and day of the week. Example: --cron '0 3 * * *'"
        ) from None
    for time in times:
        yield time.astimezone(UTC)


def check_job_ids(template: str, cron: str, time_zone: str, now: datetime) -> None:
    """Raise PermanentError if two runs of the next year would have the same job id.

    That happens if the time in the id is coarser than the schedule, and where the clock is changed:
    01:30 of two local days may be the same date in UTC. The ids of an interval are not known.
    """
    if cron.strip().startswith(_INTERVAL):
        return
    runs: dict[str, datetime] = {}
    for run in islice(upcoming_runs(cron, time_zone, now), RUNS_CHECKED):
        if run - now > HORIZON:
            return
        job_id = at_time(template, run)
        first = runs.setdefault(job_id, run)
        if first != run:
            zone = ZoneInfo(time_zone)
            first_words, second_words = (
                f"{time.astimezone(zone):%Y-%m-%d %H:%M}" for time in (first, run)
            )
            raise PermanentError(
                f"jobId: the runs of {first_words} and {second_words} ({time_zone}) would both be"
                f" {job_id}, because times in job ids are UTC; the second would make no job."
                " Example: {time:%Y%m%d_%H%M}"
            )


@dataclass(frozen=True, slots=True)
class Submission:
    """The job that a schedule submits at each run."""

    template: str
    """Job id, with a time in it."""
    source: str
    """Source of its messages; empty if it calls the API."""


def submission_of(schedule: dict[str, Any]) -> Submission | None:
    """Return what a job of Cloud Scheduler submits; None if that is no job."""
    target = schedule.get("pubsubTarget") or {}
    data = target.get("data") or (schedule.get("httpTarget") or {}).get("body") or ""
    try:
        document = json.loads(base64.b64decode(data))
    except (binascii.Error, ValueError):
        return None
    template = job_id_of(document) if isinstance(document, dict) else None
    source = (target.get("attributes") or {}).get("source", "")
    return None if template is None else Submission(template, source)


def describe_run(schedule: dict[str, Any], attempted_at: datetime, store: Store) -> str:
    """Return what the run of this time has become: a job, or why it is none."""
    submission = submission_of(schedule)
    if submission is None:
        return "ok"
    # The time in the id is that of the message, to the second.
    ids = dict.fromkeys(
        at_time(submission.template, attempted_at + timedelta(seconds=second))
        for second in range(PUBLICATION_S_MAX)
    )
    found = [loaded.state.job for loaded in map(store.load, ids) if loaded is not None]
    started = next((job for job in found if _is_of_run(job, attempted_at)), None)
    if started is not None:
        return f"{started.job_id}: {started.state}"
    if submission.source:
        for rejection in store.rejections(REJECTIONS_READ, submission.source):
            if rejection.at >= attempted_at - _SKEW:
                return f"no job: {' '.join(rejection.problems)}"
    if found:
        return f"no job: {found[0].job_id} was used before"
    return "no job yet"


def _is_of_run(job: Job, attempted_at: datetime) -> bool:
    return job.created_at >= attempted_at - _SKEW
