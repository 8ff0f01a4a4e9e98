"""Decide when a job runs next, from its stored state and the time. Pure.

    waiting ──its time comes──► attempt ──success──► waiting for the next time of the schedule
                                   └──failure──► waiting for the next attempt

There is a next attempt while the retry limits allow one.

If times of the schedule pass while no process runs, such as during a restart, the job runs once
afterwards, for the first of these times. The others are skipped. An execution whose retries last
beyond the next time of the schedule replaces it. Source:
https://cloud.google.com/scheduler/docs/configuring/retry-jobs and the reference of `schedule`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

from trainmaster_emulators.rest.api_errors import Json, StatusError
from trainmaster_emulators.scheduler.field_formats import seconds
from trainmaster_emulators.scheduler.resources import Job, JobState, RetryConfig


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job, and its execution that has begun, if any."""

    job: Job
    version: int
    """Number of changes by users.

    An attempt that began before a change does not decide the next time.
    """
    execution_at: datetime | None = None
    """Time of the schedule whose execution has failed attempts; None: no execution has begun."""
    first_attempt_at: datetime | None = None
    """Start of this execution's first attempt; None: no execution has begun."""
    failures: int = 0
    """Failed attempts of this execution."""

    @property
    def due_at(self) -> datetime | None:
        """Return when the next attempt starts; None while the job is paused."""
        return self.job.schedule_time if self.job.state is JobState.ENABLED else None


def next_time(job: Job, after: datetime) -> datetime:
    """Return the first time of the schedule after `after`, in UTC."""
    zone = ZoneInfo("UTC" if job.time_zone.lower() == "utc" else job.time_zone)
    return next(CronSim(job.schedule, after.astimezone(zone))).astimezone(UTC)


def plan_next(job: Job, version: int, now: datetime) -> ScheduledJob:
    """Return a new, changed or resumed job with its next time.

    The state of an earlier execution is dropped.
    """
    at = next_time(job, now) if job.state is JobState.ENABLED else None
    return ScheduledJob(job.model_copy(update={"schedule_time": at}), version)


def pause(scheduled: ScheduledJob) -> ScheduledJob:
    """Return the job in the state PAUSED. Raises ApiError unless it is enabled."""
    _require(scheduled, JobState.ENABLED)
    job = scheduled.job.model_copy(update={"state": JobState.PAUSED})
    return ScheduledJob(job.model_copy(update={"schedule_time": None}), scheduled.version + 1)


def resume(scheduled: ScheduledJob, now: datetime) -> ScheduledJob:
    """Return the job in the state ENABLED. Raises ApiError unless it is paused.

    The times of the schedule that passed during the pause are skipped.
    """
    _require(scheduled, JobState.PAUSED)
    job = scheduled.job.model_copy(update={"state": JobState.ENABLED})
    return plan_next(job, scheduled.version + 1, now)


def _require(scheduled: ScheduledJob, state: JobState) -> None:
    """Raise ApiError unless the job is in this state."""
    if scheduled.job.state is not state:
        message = (
            f"The job {scheduled.job.name} is {scheduled.job.state}; this call needs a job that is"
            f" {state}."
        )
        raise StatusError("FAILED_PRECONDITION", message)


def after_attempt(
    scheduled: ScheduledJob, began_at: datetime, status: Json, now: datetime
) -> ScheduledJob:
    """Return the job after an attempt of its schedule. `status`: empty for a success."""
    job = scheduled.job.model_copy(update={"last_attempt_time": began_at, "status": status})
    first_at = scheduled.first_attempt_at or began_at
    failures = scheduled.failures + 1
    has_failed = bool(status)
    delay = retry_delay(job.retry_config, failures, now - first_at) if has_failed else None
    if delay is not None:
        return replace(
            scheduled,
            job=job.model_copy(update={"schedule_time": now + delay}),
            execution_at=scheduled.execution_at or scheduled.job.schedule_time,
            first_attempt_at=first_at,
            failures=failures,
        )
    job = job.model_copy(update={"schedule_time": next_time(job, now)})
    return ScheduledJob(job, scheduled.version)


def retry_delay(config: RetryConfig, failures: int, elapsed: timedelta) -> timedelta | None:
    """Return the pause before the next attempt, None if the execution has failed.

    The execution ends when both limits, the number of retries and their duration, are reached. A
    limit of 0 means "no limit", but if both are 0, there are no retries.
    """
    duration_max_s = seconds(config.max_retry_duration)
    has_count = failures <= config.retry_count
    has_time = elapsed.total_seconds() < duration_max_s
    if not (has_count or has_time):
        return None
    minimum_s = seconds(config.min_backoff_duration)
    maximum_s = seconds(config.max_backoff_duration)
    # The pause doubles `max_doublings` times, then grows by the same amount each time.
    # Source: RetryConfig.
    doublings = min(failures - 1, config.max_doublings)
    linear_steps = max(0, failures - 1 - config.max_doublings)
    delay_s = minimum_s * 2**doublings + linear_steps * minimum_s * 2**config.max_doublings
    return timedelta(seconds=min(delay_s, maximum_s))
