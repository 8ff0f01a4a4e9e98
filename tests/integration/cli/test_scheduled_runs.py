"""Jobs that the messages of Cloud Scheduler become: their ids, repeated messages, and runs without
a job.

A run is one message of a schedule. The job id of a schedule has the time of the run, as in
`nightly_{time:%Y%m%d_%H%M}`, so that each run creates another job.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.cli.schedule_runs import check_job_ids, describe_run
from trainmaster.core.intake.job_id_template import at_time
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.flows.user_requests import cancel_job
from trainmaster.gcp.tools.scheduler import publication
from trainmaster.messaging import push

NIGHTLY = {"jobId": "nightly_{time:%Y%m%d_%H%M}", **a_spec()}
AT = datetime(2026, 11, 21, 3, 0, 7, tzinfo=UTC)
"""Time at which Cloud Scheduler publishes a message."""


def test_time_in_job_id_is_filled_in() -> None:
    assert at_time("nightly_{time:%Y%m%d_%H%M}", AT) == "nightly_20261121_0300"
    assert at_time("a_{time}", AT) == "a_20261121_030007"
    assert at_time("plain", AT) == "plain"


def fire(world: World, at: datetime | None, source: str | None = "schedule:nightly") -> None:
    submit.handle(json.dumps(NIGHTLY).encode(), source, world.deps, at)


def test_message_delivered_twice_creates_one_job() -> None:
    world = World()
    for at in (AT, AT, AT.replace(day=22)):
        fire(world, at)
        world.wait(3600)
    assert [job.job_id for job in world.store.recent_jobs(9)] == [
        "nightly_20261122_0300",
        "nightly_20261121_0300",
    ]
    assert world.store.rejections() == ()


def test_messages_without_source_are_distinguished_by_their_time() -> None:
    world = World()
    for day in (21, 21, 22):
        fire(world, AT.replace(day=day), source=None)
    assert {job.job_id for job in world.store.recent_jobs(9)} == {
        "nightly_20261121_0300",
        "nightly_20261122_0300",
    }


def test_time_in_job_id_without_publish_time_is_refused() -> None:
    world = World()
    with pytest.raises(PermanentError, match=r"job\.job_id Error: contains a time"):
        fire(world, at=None)
    assert world.store.recent_jobs(9) == ()


def test_publish_time_is_read_from_pubsub_envelope() -> None:
    message = {
        "data": base64.b64encode(b"{}").decode(),
        "messageId": "1",
        "publishTime": "2026-11-21T03:00:07.123456789Z",
    }
    decoded = push.decode(json.dumps({"message": message}).encode())
    assert decoded.published_at == AT.replace(microsecond=123456)


@pytest.mark.parametrize(
    ("job_id", "cron", "zone", "expected"),
    [
        ("nightly_{time:%Y%m%d}", "*/5 * * * *", "Etc/UTC", "would both be nightly_"),
        ("nightly_{time:%H%M}", "0 3 * * *", "Etc/UTC", "would both be nightly_0300"),
        # The id has the date in UTC. Where a change to or from summer time moves the run by an
        # hour over midnight in UTC, one date has two runs.
        ("nightly_{time:%Y%m%d}", "30 1 * * *", "Europe/Berlin", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 0 * * *", "Europe/London", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 19 * * *", "America/New_York", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 10 * * *", "Australia/Sydney", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "30 1 * * *", "Etc/UTC", ""),
        ("nightly_{time:%Y%m%d_%H%M}", "30 1 * * *", "Europe/Berlin", ""),
        ("nightly_{time:%Y%m%d_%H%M}", "* * * * *", "Europe/Berlin", ""),
        ("weekly_{time:%Y%W}", "0 3 * * mon", "Europe/Berlin", ""),
        ("nightly_{time:%Y%m%d}", "every 1 hours", "Etc/UTC", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "every 23 hours", "Etc/UTC", "would both be nightly_"),
        ("nightly_{time:%Y%m%d}", "every 24 hours", "Etc/UTC", ""),
        ("nightly_{time:%Y%m%d_%H%M}", "Every  5  minutes", "Etc/UTC", ""),
        ("nightly_{time:%Y%m%d_%H}", "every 30 mins from 10:00 to 14:00", "Etc/UTC", ""),
        ("nightly_{time:%Y%m%d}", "every 12 hours synchronized", "Etc/UTC", ""),
        ("nightly_{time:%Y%m%d}", "every day 03:00", "Etc/UTC", ""),
        ("nightly_{time:%Y%m%d}", "every day 01:30", "Europe/Berlin", "would both be nightly_"),
        ("weekly_{time:%Y%W}", "every monday,fri of march,sep 9:00", "Etc/UTC", "would both be"),
        ("nightly_{time}", "every 2 days", "Etc/UTC", "such as 'every 48 hours'"),
        ("nightly_{time}", "every 5m", "Etc/UTC", "such as 'every 6 hours'"),
        ("nightly_{time}", "every 0 hours", "Etc/UTC", "write a number of minutes or hours"),
        ("nightly_{time}", "every hour", "Etc/UTC", "write a number of minutes or hours"),
        ("nightly_{time}", "every noon 12:00", "Etc/UTC", "'every mon,wed 09:00'"),
        ("nightly_{time}", "every day 25:00", "Etc/UTC", "'every day 03:00'"),
        ("nightly_{time}", "every day", "Etc/UTC", "'every day 03:00'"),
        ("nightly_{time}", "every", "Etc/UTC", "write a number of minutes or hours"),
        ("nightly_{time}", "0 3 * *", "Etc/UTC", "is not a cron expression"),
        ("nightly_{time}", "61 3 * * *", "Etc/UTC", "is not a cron expression"),
    ],
)
def test_schedule_with_two_runs_of_one_job_id_is_refused(
    job_id: str, cron: str, zone: str, expected: str
) -> None:
    found = ""
    try:
        check_job_ids(job_id, cron, zone, AT)
    except PermanentError as error:
        found = str(error)
    assert expected in found
    assert bool(found) == bool(expected)


def test_run_that_shares_the_id_of_an_earlier_run_is_a_rejection() -> None:
    world = World()
    document = {"jobId": "nightly_{time:%Y%m%d}", **a_spec()}
    data = json.dumps(document).encode()
    first = world.now
    submit.handle(data, "schedule:nightly/anna", world.deps, first)
    submit.handle(data, "schedule:nightly/anna", world.deps, first)
    assert world.store.rejections() == ()
    world.wait(300)  # more than a redelivery takes
    with pytest.raises(PermanentError, match="is the job of an earlier message"):
        submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    (rejection,) = world.store.rejections()
    assert rejection.source == "schedule:nightly/anna"
    assert len(world.store.recent_jobs(9)) == 1


def a_message(at: datetime) -> push.Message:
    attributes = {"source": "schedule:nightly/anna", submit.OVERLAP: submit.FORBIDDEN}
    return push.Message(json.dumps(NIGHTLY).encode(), attributes, "1", at)


def test_run_without_overlap_is_left_out_until_the_earlier_job_has_ended() -> None:
    world = World()
    submit.on_message(a_message(world.now), world.deps)
    submit.on_message(a_message(world.now), world.deps)  # a redelivery
    (first,) = world.store.recent_jobs(9)
    world.wait(120)
    submit.on_message(a_message(world.now), world.deps)
    assert [job.job_id for job in world.store.recent_jobs(9)] == [first.job_id]
    (rejection,) = world.store.rejections()
    assert f"{first.job_id} of the same schedule has not ended" in rejection.problems[0]
    cancel_job(first.job_id, "anna", world.deps)
    world.wait(120)
    submit.on_message(a_message(world.now), world.deps)
    assert len(world.store.recent_jobs(9)) == 2


def a_schedule(template: str) -> dict[str, Any]:
    data = json.dumps({"jobId": template, **a_spec()}).encode()
    return publication(
        "my-project", {"source": "schedule:nightly/anna"}, "trainmaster-submit", data
    )


def test_result_of_a_run_is_its_job_or_why_there_is_none() -> None:
    world = World()
    schedule = a_schedule("nightly_{time:%Y%m%d}")
    assert describe_run(schedule, world.now, world.store) == "no job yet"
    data = base64.b64decode(schedule["pubsubTarget"]["data"])
    submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    (job,) = world.store.recent_jobs(9)
    assert describe_run(schedule, world.now, world.store) == f"{job.job_id}: QUEUED"
    world.wait(300)
    assert describe_run(schedule, world.now, world.store) == (
        f"no job: {job.job_id} was used before"
    )
    with pytest.raises(PermanentError):
        submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    assert "is the job of an earlier message" in describe_run(schedule, world.now, world.store)


def test_result_of_a_run_that_crosses_a_minute_is_its_job() -> None:
    world = World()
    schedule = a_schedule("nightly_{time:%Y%m%d_%H%M}")
    data = base64.b64decode(schedule["pubsubTarget"]["data"])
    attempted_at = world.now.replace(second=59, microsecond=900_000)
    world.now = attempted_at + timedelta(seconds=1)
    submit.handle(data, "schedule:nightly/anna", world.deps, world.now)
    assert describe_run(schedule, attempted_at, world.store).endswith(": QUEUED")
