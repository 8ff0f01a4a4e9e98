"""The runs of a schedule: the times that follow from its cron expression, and the job of a run.

The job id of a run is derived from the time of its message, in UTC. Two runs with one id are one
job: the second one is refused, because ids are never used again.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
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
_INTERVAL: Final = re.compile(
    r"every (?P<count>[1-9]\d{0,3}) (?P<unit>hours?|mins?|minutes?)"
    r"(?P<part> synchronized| from [0-2]?\d:[0-5]\d to [0-2]?\d:[0-5]\d)?"
)
"""Cloud Scheduler's other form: a time between two runs, all day or in a part of it."""
_WEEK: Final = "mon|tue|wed|thu|fri|sat|sun"
_YEAR: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS: Final = re.compile(
    rf"every (?P<days>day|(?:{_WEEK})[a-z]*(?:,(?:{_WEEK})[a-z]*)*)"
    rf"(?: of (?P<months>month|(?:{_YEAR})[a-z]*(?:,(?:{_YEAR})[a-z]*)*))?"
    r" (?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)"
)
"""The same for days: `every mon,wed of jan,jul 09:00`. Source of both: App Engine, "Scheduling jobs
with cron.yaml", whose format Cloud Scheduler takes, too.
"""
PUBLICATION_S_MAX: Final = 5
"""Seconds within which the message of a run is published, mostly within the same second."""
REJECTIONS_READ: Final = 100
"""Rejections of a schedule's messages that are read, the newest."""
_SKEW: Final = timedelta(seconds=2)
"""Largest difference between the clocks of Cloud Scheduler and the functions."""


def upcoming_runs(cron: str, time_zone: str, after: datetime) -> Iterator[datetime]:
    """Yield the times of a schedule, in UTC. Raises PermanentError for a wrong one.

    An interval begins at `after`: Cloud Scheduler counts it from its first run.
    """
    words = " ".join(cron.lower().split())
    interval = _INTERVAL.fullmatch(words)
    if interval:
        yield from _times_apart(interval, after)
        return
    try:
        times = CronSim(_as_cron(words) or cron, after.astimezone(ZoneInfo(time_zone)))
    except CronSimError as error:
        raise PermanentError(_describe_mistake(cron, words, error)) from None
    for time in times:
        yield time.astimezone(UTC)


def _times_apart(interval: re.Match[str], first: datetime) -> Iterator[datetime]:
    """Yield the times of `every 5 minutes`; none of a part of the day, which begins at its own."""
    is_all_day = interval["part"] is None
    is_hours = interval["unit"].startswith("h")
    count = int(interval["count"])
    step = timedelta(hours=count) if is_hours else timedelta(minutes=count)
    time = first
    while is_all_day:
        yield time
        time += step


def _as_cron(words: str) -> str:
    """Return the cron expression of `every mon,wed 09:00`; empty for another schedule."""
    found = _DAYS.fullmatch(words)
    if found is None:
        return ""
    days = "*" if found["days"] == "day" else _short_names(found["days"])
    months = found["months"]
    months = "*" if months in (None, "month") else _short_names(months)
    return f"{found['minute']} {found['hour']} * {months} {days}"


def _short_names(names: str) -> str:
    """Return `mon,wed` for `monday,wednesday`."""
    return ",".join(name[:3] for name in names.split(","))


def _describe_mistake(cron: str, words: str, error: CronSimError) -> str:
    """Return what is wrong with a schedule, and how to write it."""
    if words.partition(" ")[0] == "every":
        days = re.fullmatch(r"every (\d+) days?", words)
        example = f"every {24 * int(days[1])} hours" if days else "every 6 hours"
        return (
            f"--cron: {cron!r} is no schedule: write a number of minutes or hours, such as"
            f" {example!r}, or days and a time, such as 'every mon,wed 09:00' or 'every day 03:00'"
        )
    return (
        f"--cron: {cron!r} is not a cron expression ({error}): minute, hour, day of the month,"
        " month and day of the week. Example: --cron '0 3 * * *'"
    )


def check_job_ids(template: str, cron: str, time_zone: str, now: datetime) -> None:
    """Raise PermanentError if two runs of the next year would have the same job id.

    That happens if the time in the id is coarser than the schedule, and where the clock is changed:
    01:30 of two local days may be the same date in UTC.
    """
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
