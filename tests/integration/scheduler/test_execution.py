"""When a job of the Cloud Scheduler emulator runs next: times of the schedule, missed times,
retries, pauses.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.rpc import code_pb2

from trainmaster_emulators.rest.api_errors import ApiError
from trainmaster_emulators.scheduler.execution import (
    ScheduledJob,
    after_attempt,
    next_time,
    pause,
    plan_next,
    resume,
    retry_delay,
)
from trainmaster_emulators.scheduler.resources import Job, JobState, RetryConfig

NAME = "projects/p/locations/us-central1/jobs/nightly"
TARGET = {"topicName": "projects/p/topics/t", "data": "e30="}
FAILURE = {"code": code_pb2.UNAVAILABLE, "message": "no response"}
SUCCESS: dict[str, object] = {}


def a_job(schedule: str = "0 3 * * *", time_zone: str = "Etc/UTC", **retry: object) -> Job:
    return Job.model_validate(
        {
            "name": NAME,
            "schedule": schedule,
            "timeZone": time_zone,
            "pubsubTarget": TARGET,
            "retryConfig": retry,
        }
    )


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def planned(job: Job) -> ScheduledJob:
    """Return the new job with its next time after noon of 20 November."""
    return plan_next(job, version=1, now=at("2026-11-20T12:00:00"))


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("0 3 * * *", "Etc/UTC", "2026-11-21T03:00:00", "2026-11-22T03:00:00"),
        ("0 3 * * *", "utc", "2026-11-21T02:59:59", "2026-11-21T03:00:00"),
        ("0 9 * * 1", "Asia/Tokyo", "2026-11-21T00:00:00", "2026-11-23T00:00:00"),
        ("*/15 * * * *", "Etc/UTC", "2026-11-21T00:07:00", "2026-11-21T00:15:00"),
        # The clock of Berlin skips 02:30 on 29 March 2026: the job runs at 03:00 summer time, not a
        # day later.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00"),
        # The clock of Berlin shows 02:30 twice on 25 October 2026: the job runs at the first of
        # them.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00", "2026-10-25T00:30:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
    ],
)
def test_next_time_follows_the_clock_of_its_zone(
    schedule: str, zone: str, after: str, expected: str
) -> None:
    assert next_time(a_job(schedule, zone), at(after)) == at(expected)


def test_times_missed_during_an_outage_are_fired_once_with_the_first_time() -> None:
    scheduled = planned(a_job())
    assert scheduled.due_at == at("2026-11-21T03:00:00")
    back = at("2026-11-24T12:00:00")
    done = after_attempt(scheduled, began_at=back, status=SUCCESS, now=back)
    assert done.due_at == at("2026-11-25T03:00:00")
    assert done.job.last_attempt_time == back


def test_failed_attempt_without_retries_waits_for_the_next_time() -> None:
    scheduled = planned(a_job())
    due = at("2026-11-21T03:00:00")
    failed = after_attempt(scheduled, due, FAILURE, now=due + timedelta(seconds=1))
    assert failed.due_at == at("2026-11-22T03:00:00")
    assert failed.job.status == FAILURE


def test_retries_keep_the_time_of_their_execution_until_one_succeeds() -> None:
    first = planned(a_job(retryCount=2, minBackoffDuration="10s"))
    due = at("2026-11-21T03:00:00")

    def after(scheduled: ScheduledJob, seconds: int, status: dict[str, object]) -> ScheduledJob:
        """Return the job after an attempt so many seconds after its time."""
        attempted_at = due + timedelta(seconds=seconds)
        return after_attempt(scheduled, attempted_at, status, now=attempted_at)

    second = after(first, 0, FAILURE)
    third = after(second, 10, FAILURE)
    assert [second.due_at, third.due_at] == [
        due + timedelta(seconds=10),
        due + timedelta(seconds=30),
    ]
    assert {second.execution_at, third.execution_at} == {due}
    given_up = after(third, 30, FAILURE)
    succeeded = after(third, 30, SUCCESS)
    for ended in (given_up, succeeded):
        assert (ended.due_at, ended.execution_at, ended.failures) == (
            at("2026-11-22T03:00:00"),
            None,
            0,
        )


def test_backoff_doubles_then_grows_linearly_to_its_maximum() -> None:
    """The example of Cloud Scheduler's documentation: 10, 20, 40, 80, 160, 240, 300,
    300 seconds.
    """
    config = RetryConfig.model_validate(
        {
            "retryCount": 5,
            "maxRetryDuration": "9999s",
            "minBackoffDuration": "10s",
            "maxBackoffDuration": "300s",
            "maxDoublings": 3,
        }
    )
    delays = [retry_delay(config, failures, timedelta()) for failures in range(1, 9)]
    assert delays == [timedelta(seconds=value) for value in (10, 20, 40, 80, 160, 240, 300, 300)]


@pytest.mark.parametrize(
    ("retry", "failures", "elapsed_s", "is_retried"),
    [
        ({}, 1, 0, False),
        ({"retryCount": 1}, 1, 10**6, True),
        ({"retryCount": 1}, 2, 0, False),
        ({"maxRetryDuration": "60s"}, 9, 59, True),
        ({"maxRetryDuration": "60s"}, 9, 60, False),
        # Both limits must be reached.
        ({"maxRetryDuration": "60s", "retryCount": 1}, 2, 59, True),
        ({"maxRetryDuration": "60s", "retryCount": 3}, 2, 61, True),
        ({"maxRetryDuration": "60s", "retryCount": 1}, 2, 61, False),
    ],
)
def test_retries_end_when_both_limits_are_reached(
    retry: dict[str, object], failures: int, elapsed_s: float, *, is_retried: bool
) -> None:
    config = RetryConfig.model_validate(retry)
    assert (retry_delay(config, failures, timedelta(seconds=elapsed_s)) is not None) is is_retried


def test_times_that_pass_during_a_pause_are_left_out() -> None:
    stopped = pause(planned(a_job()))
    assert (stopped.due_at, stopped.job.state) == (None, JobState.PAUSED)
    assert resume(stopped, at("2026-11-24T12:00:00")).due_at == at("2026-11-25T03:00:00")


def test_pause_and_resume_need_the_opposite_state() -> None:
    scheduled: ScheduledJob = planned(a_job())
    with pytest.raises(ApiError, match="needs a job that is PAUSED") as resumed_error:
        resume(scheduled, at("2026-11-20T12:00:00"))
    stopped = pause(scheduled)
    with pytest.raises(ApiError) as paused_error:
        pause(stopped)
    assert {resumed_error.value.status, paused_error.value.status} == {"FAILED_PRECONDITION"}
