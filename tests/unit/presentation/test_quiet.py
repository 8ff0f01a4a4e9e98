"""A program that prints nothing is announced before it is ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.support.jobs import CHIEF, WORKER_1, a_job, at
from tests.support.metrics import FakeMetrics
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.ports.metrics import Label, Metric
from trainmaster.presentation.quiet import Quiet, read_quiet, read_quiet_jobs

NOW = at(3600)
REPORTED = NOW - timedelta(seconds=30)


def a_report(
    metrics: FakeMetrics,
    replica: ReplicaId,
    quiet_s: float,
    left_s: float,
    *,
    job_id: str = "digits_1",
    attempt: int = 1,
) -> None:
    """Add what the agent of the replica wrote half a minute ago."""
    for name, value in (("for", quiet_s), ("left", left_s)):
        more = {Label.NAME: name, Label.ATTEMPT: str(attempt), Label.JOB: job_id}
        metrics.add(Metric.QUIET, str(replica), REPORTED, [value], more=more)


def a_running_job(stall_timeout_s: int | None = None, job_id: str = "digits_1") -> Job:
    job = a_job(JobState.RUNNING, job_id=job_id)
    watching = replace(job.plan.watching, stall_timeout_s=stall_timeout_s)
    return replace(job, plan=replace(job.plan, watching=watching))


def notice(metrics: FakeMetrics, job: Job) -> Quiet | None:
    return read_quiet(metrics, job, NOW)


def test_notice_says_since_when_and_when_it_ends() -> None:
    metrics = FakeMetrics()
    a_report(metrics, CHIEF, quiet_s=330, left_s=270)
    quiet = notice(metrics, a_running_job())
    assert quiet
    ends_at = REPORTED + timedelta(seconds=270)
    assert quiet.words(NOW) == (
        f"has printed nothing for 6 min and is ended at {ends_at:%H:%M} UTC if it stays so"
    )
    assert quiet.view()["endsAt"] == f"{ends_at:%Y-%m-%dT%H:%M:%SZ}"


def test_default_counts_the_primary_and_a_time_counts_the_first_member_to_reach_it() -> None:
    metrics = FakeMetrics()
    a_report(metrics, WORKER_1, quiet_s=200, left_s=100)
    assert notice(metrics, a_running_job()) is None, "the primary works"
    a_report(metrics, CHIEF, quiet_s=150, left_s=150)
    silent = notice(metrics, a_running_job(stall_timeout_s=300))
    assert silent
    assert silent.words(NOW).startswith("worker 1 has printed nothing for 4 min")


def test_old_report_or_that_of_another_attempt_is_no_notice() -> None:
    metrics = FakeMetrics()
    a_report(metrics, CHIEF, quiet_s=330, left_s=270, attempt=2)
    assert notice(metrics, a_running_job()) is None
    a_report(metrics, CHIEF, quiet_s=330, left_s=270)
    assert read_quiet(metrics, a_running_job(), NOW + timedelta(minutes=3)) is None
    assert read_quiet(metrics, replace(a_running_job(), state=JobState.FAILED), NOW) is None


def test_list_reads_the_notices_of_all_running_jobs_with_one_call() -> None:
    metrics = FakeMetrics()
    a_report(metrics, CHIEF, quiet_s=330, left_s=270, job_id="")
    assert read_quiet_jobs(metrics, [], NOW) == {}
    assert not metrics.queries
    jobs = [a_running_job(job_id="digits_1"), a_running_job(job_id="digits_2")]
    assert read_quiet_jobs(metrics, jobs, NOW) == {}
    assert len(metrics.queries) == 1
