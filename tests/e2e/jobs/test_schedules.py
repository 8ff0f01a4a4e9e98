"""Scheduled jobs on the local stack: `trainmaster schedule`, doubled ticks, and a tick that the
scheduler missed.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Lab
from trainmaster.core.model.job import Job
from trainmaster_emulators.process.loopback import call

HEAVY = pytest.mark.heavy(
    fact="schedules submit whole jobs, each tick once", quick="`integration/scheduler`"
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

ALREADY_EXISTS = 6
LATEST_SECOND = 20
"""A schedule that is created before this second of a minute has its next tick in the next minute.
"""


class Schedule:
    """The commands of one schedule."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self.name = f"tick_{uuid.uuid4().hex[:8]}"
        self._file = folder / "job.yaml"
        # Ticks of one day have one job id, so that they are duplicates of each other.
        document = {
            "jobId": f"{self.name}_{{time:%Y%m%d}}",
            **lab.scripted_spec(workers=0, steps=2),
        }
        self._file.write_text(yaml.safe_dump(document))

    def command(self, verb: str, *arguments: str) -> str:
        done = self._lab.stack.run("trainmaster", "schedule", verb, *arguments, timeout_s=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(self, cron: str, *options: str) -> None:
        self.command("create", self.name, str(self._file), "--cron", cron, *options)

    def show(self) -> dict[str, Any]:
        """Return the schedule as Cloud Scheduler has it, which costs less than `trainmaster
        schedule list`.
        """
        state = self._lab.stack.state
        assert state.endpoints.scheduler is not None
        path = f"/v1/projects/{state.config.project}/locations/us-central1/jobs/{self.name}"
        return call(state.endpoints.scheduler, "GET", path)

    def run_and_wait(self) -> dict[str, Any]:
        """Run the schedule now, and return it when the attempt has ended."""
        before = self.show().get("lastAttemptTime")
        self.command("run", self.name)
        shown: list[dict[str, Any]] = []

        def has_ended() -> bool:
            shown.append(self.show())
            return shown[-1].get("lastAttemptTime") not in (None, before)

        self._lab.until(has_ended, 30)
        return shown[-1]

    def jobs(self) -> list[Job]:
        return [job for job in self._lab.store.recent_jobs(50) if job.job_id.startswith(self.name)]


@pytest.fixture
def schedule(lab: Lab, tmp_path: Path) -> Schedule:
    return Schedule(lab, tmp_path)


@HEAVY
def test_second_tick_of_a_schedule_is_a_duplicate(lab: Lab, schedule: Schedule) -> None:
    """tests/integration/scheduler/ shows that the ticks come by themselves."""
    schedule.create("0 3 1 1 *")
    schedule.command("pause", schedule.name)
    assert schedule.run_and_wait().get("status") in (None, {})
    lab.until(schedule.jobs, 30)
    (job,) = schedule.jobs()
    lab.wait_for_success(job.job_id)
    rejections = lab.store.rejections()
    assert schedule.run_and_wait().get("status") in (None, {})
    schedule.run_and_wait()
    # A message that is published later has been handled: so have those of the two ticks, in all
    # likelihood.
    later = lab.scripted(workers=0, steps=1)
    lab.wait_for_success(later)
    assert [job.job_id for job in schedule.jobs()] == [job.job_id]
    assert lab.store.rejections() == rejections
    schedule.command("resume", schedule.name)
    assert schedule.show()["state"] == "ENABLED"
    schedule.command("delete", schedule.name)
    assert schedule.name not in schedule.command("list")


@HEAVY
def test_schedule_submits_through_the_api_as_its_account(lab: Lab, schedule: Schedule) -> None:
    account = f"nightly@{lab.stack.state.config.project}.iam.gserviceaccount.com"
    schedule.create("0 3 1 1 *", "--submit-as", account)
    first, second = schedule.run_and_wait(), schedule.run_and_wait()
    assert first.get("status") in (None, {})
    assert second["status"]["code"] == ALREADY_EXISTS
    (job,) = schedule.jobs()
    assert job.submitted_by == account
    lab.wait_for_success(job.job_id)
    schedule.command("delete", schedule.name)


@HEAVY  # waits for the beginning of a minute, up to two minutes
def test_tick_during_an_outage_of_the_scheduler_is_fired_late_and_once(
    lab: Lab, schedule: Schedule
) -> None:
    pid = lab.stack.state.services["scheduler"].pid
    schedule.create("0 3 1 1 *")
    schedule.command("pause", schedule.name)
    # The next tick must be in the outage, not before it.
    while datetime.now(UTC).second > LATEST_SECOND:
        time.sleep(0.5)
    schedule.create("* * * * *")
    schedule.command("resume", schedule.name)
    due_at = datetime.fromisoformat(schedule.show()["scheduleTime"])
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(max(0.0, (due_at - datetime.now(UTC)).total_seconds()) + 1)
        assert schedule.jobs() == []
    finally:
        os.kill(pid, signal.SIGKILL)
    lab.until(schedule.jobs, 30)
    schedule.command("delete", schedule.name)
    (job,) = schedule.jobs()
    assert job.created_at > due_at
    assert lab.stack.state.services["scheduler"].restarts == 1
    lab.wait_for_success(job.job_id)
    assert len(schedule.jobs()) == 1
