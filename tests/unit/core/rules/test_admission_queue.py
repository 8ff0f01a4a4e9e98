"""The admission queue: which jobs may start, which wait and for what, and what a job uses.

The installation's limits name resources that all running jobs share, and weights of teams. A job's
label `team` names its team. The next job is one of the team with the smallest share per weight, and
within a team that of the highest priority, and then the oldest.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.jobs import a_job, a_plan, at
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup, Tpu
from trainmaster.core.rules.admission_queue import (
    Limits,
    admissible_jobs,
    limit_problem,
    queued_jobs,
    resource_needs,
    vcpus,
)

T4 = "nvidia-tesla-t4"


def a_gpu_job(
    job_id: str, gpus: int, state: JobState = JobState.QUEUED, priority: int = 0, created: int = 0
) -> Job:
    group = TaskGroup(TaskType.CHIEF, 1, "n1-standard-8", Accelerator(T4, gpus) if gpus else None)
    plan = a_plan(groups=(group,), priority=priority)
    return replace(a_job(state, plan), job_id=job_id, created_at=at(created))


@pytest.mark.parametrize(
    ("machine_type", "count"),
    [
        ("n1-standard-8", 8),
        ("n1-highcpu-96", 96),
        ("c3-standard-8-lssd", 8),
        ("n2-custom-6-24576", 6),
        ("e2-micro", 2),
        ("g2-standard-24", 24),
        ("a2-highgpu-4g", 48),
        ("a2-megagpu-16g", 96),
        ("a3-highgpu-8g", 208),
        ("a3-edgegpu-8g", 208),
        ("a3-ultragpu-8g", 224),
        ("a4-highgpu-8g", 224),
        ("", 0),
    ],
)
def test_vcpus_follow_from_the_name_of_the_machine_type(machine_type: str, count: int) -> None:
    assert vcpus(machine_type) == count


def test_resource_needs_are_those_of_all_replicas() -> None:
    groups = (
        TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"),
        TaskGroup(TaskType.WORKER, 3, "n1-standard-8", Accelerator(T4, 2)),
        TaskGroup(
            TaskType.PS, 2, machine_type="", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
        ),
    )
    assert resource_needs(a_plan(groups=groups)) == {
        "vcpus": 28,
        "disk_gib": 400,
        T4: 6,
        "gpus": 6,
        "v5litepod": 32,
        "tpus": 32,
    }


def test_job_with_huge_disks_or_an_endless_run_time_is_refused_by_limits() -> None:
    plan = a_plan(
        groups=(TaskGroup(TaskType.CHIEF, 8, "n1-standard-4", boot_disk_gib=65_536),),
        max_running_s=8_640_000,
    )
    exceeds = "The request for {} exceeds the allowed maximum of {}."
    assert limit_problem(plan, {"vcpus": 32, "disk_gib": 2000}) == exceeds.format(
        "524288 disk_gib", "2000 disk_gib"
    )
    assert limit_problem(plan, {"run_hours": 2399}) == exceeds.format(
        "2400 run_hours", "2399 run_hours"
    )
    assert limit_problem(plan, {"run_hours": 2400, "disk_gib": 524_288}) is None
    job = replace(a_job(JobState.QUEUED, plan), job_id="a")
    assert queued_jobs([job, replace(job, job_id="b")], {"run_hours": 2400}) == (), (
        "run times do not add up"
    )


def test_no_job_waits_without_limits() -> None:
    assert queued_jobs([a_gpu_job("a", 8), a_gpu_job("b", 8)], {}) == ()


def test_job_that_exceeds_what_is_left_waits_with_position_and_reason() -> None:
    jobs = [
        a_gpu_job("runs", 4, JobState.RUNNING),
        a_gpu_job("fits", 2, created=1),
        a_gpu_job("waits", 4, created=2),
    ]
    (wait,) = queued_jobs(jobs, {T4: 8})
    assert (wait.job_id, wait.position) == ("waits", 1)
    assert wait.reason == f"it needs 4 {T4}, and 6 of 8 are in use or reserved for jobs before it"


def test_small_job_does_not_overtake_a_large_one_that_needs_the_same_resource() -> None:
    jobs = [
        a_gpu_job("runs", 6, JobState.PREPARING),
        a_gpu_job("large", 8, created=1),
        a_gpu_job("small", 1, created=2),
    ]
    assert [wait.job_id for wait in queued_jobs(jobs, {T4: 8})] == ["large", "small"]


def test_higher_priority_goes_first_and_then_the_older_job() -> None:
    jobs = [
        a_gpu_job("old", 8, created=1),
        a_gpu_job("young", 8, created=2),
        a_gpu_job("urgent", 8, created=3, priority=1),
    ]
    assert [(wait.job_id, wait.position) for wait in queued_jobs(jobs, {T4: 8})] == [
        ("old", 1),
        ("young", 2),
    ]


def test_job_that_needs_no_short_resource_does_not_wait() -> None:
    jobs = [
        a_gpu_job("runs", 8, JobState.RUNNING),
        a_gpu_job("waits", 8, created=1),
        a_gpu_job("cpu", 0, created=2),
    ]
    assert [wait.job_id for wait in queued_jobs(jobs, {T4: 8})] == ["waits"]


def test_job_that_can_never_start_does_not_delay_others_and_has_a_limit_problem() -> None:
    jobs = [a_gpu_job("never", 16, created=1), a_gpu_job("fits", 8, created=2)]
    assert [wait.job_id for wait in queued_jobs(jobs, {T4: 8})] == ["never"]
    assert (
        limit_problem(jobs[0].plan, {T4: 8})
        == f"The request for 16 {T4} exceeds the allowed maximum of 8 {T4}."
    )
    assert limit_problem(jobs[1].plan, {T4: 8}) is None


GPUS = st.integers(0, 6)
STATES = st.sampled_from([JobState.QUEUED, JobState.RUNNING])
PRIORITIES = st.integers(0, 3)
CREATED_S = st.integers(0, 9)
JOBS = st.lists(st.tuples(GPUS, STATES, PRIORITIES, CREATED_S), max_size=8)
"""Arguments of `a_gpu_job`."""


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(JOBS)
def test_admitted_jobs_fit_beside_running_ones(drawn: list[tuple[int, JobState, int, int]]) -> None:
    jobs = [a_gpu_job(f"j{number}", *arguments) for number, arguments in enumerate(drawn)]
    waiting = {wait.job_id for wait in queued_jobs(jobs, {"gpus": 8})}
    running = sum(resource_needs(job.plan)["gpus"] for job in jobs if job.state is JobState.RUNNING)
    starting = sum(
        resource_needs(job.plan)["gpus"]
        for job in jobs
        if job.state is JobState.QUEUED and job.job_id not in waiting
    )
    assert running + starting <= max(8, running)
    queued = [
        job for job in jobs if job.state is JobState.QUEUED and resource_needs(job.plan)["gpus"]
    ]
    if queued and running == 0:
        assert any(job.job_id not in waiting for job in queued), (
            "the first job in the queue starts in an idle project"
        )


def admissible(jobs: list[Job], limits: Limits) -> tuple[Job, ...]:
    return admissible_jobs(jobs, queued_jobs(jobs, limits), limits)


def of_team(team: str, job: Job) -> Job:
    return replace(job, labels=(Label("team", team),))


def test_team_with_the_smallest_share_per_weight_goes_first_whatever_the_priority() -> None:
    limits = {"gpus": 12, "team:vision": 2, "team:speech": 1}
    flood = [
        of_team("vision", a_gpu_job(f"v{number:02}", 1, priority=1000, created=number))
        for number in range(12)
    ]
    late = [
        of_team("speech", a_gpu_job(f"s{number}", 1, created=100 + number)) for number in range(8)
    ]
    admitted = [job.job_id for job in admissible([*flood, *late], limits)]
    assert sorted(admitted) == [
        *(f"s{number}" for number in range(4)),
        *(f"v{number:02}" for number in range(8)),
    ], "a third and two thirds of the GPUs"
    (wait,) = [wait for wait in queued_jobs([*flood, *late], limits) if wait.job_id == "s4"]
    assert (
        wait.reason
        == "it needs 1 gpus, and 13 of 12 are in use or reserved for jobs before it; the share of"
        " team:speech is 33%, its weight is 1"
    )


def test_team_that_is_alone_borrows_everything_and_waits_when_another_one_comes() -> None:
    limits = {"gpus": 8, "team:vision": 1}
    running = [
        of_team("vision", a_gpu_job(f"r{number}", 2, JobState.RUNNING)) for number in range(3)
    ]
    waiting = [
        of_team("vision", a_gpu_job("v", 2)),
        of_team("unknown", a_gpu_job("u", 2, created=9)),
    ]
    assert [job.job_id for job in admissible([*running, waiting[0]], limits)] == ["v"]
    assert [job.job_id for job in admissible([*running, *waiting], limits)] == ["u"]


def test_share_is_that_of_the_resource_of_which_a_team_uses_most() -> None:
    limits = {"gpus": 100, "vcpus": 64, "team:vision": 1, "team:speech": 1}
    running = [
        of_team("vision", a_gpu_job("g", 8, JobState.RUNNING)),
        of_team("speech", a_gpu_job("c", 0, JobState.RUNNING)),
    ]
    queued = [of_team("vision", a_gpu_job("v", 1)), of_team("speech", a_gpu_job("s", 0, created=9))]
    busier = of_team("speech", a_gpu_job("c2", 0, JobState.RUNNING))
    order = [job.job_id for job in admissible([*running, busier, *queued], limits)]
    assert order == ["v", "s"], "speech has 16 of 64 vcpus, vision 8 of 64 and 8 of 100 GPUs"


def test_large_job_of_a_team_is_not_starved_by_small_ones_of_others() -> None:
    limits = {"gpus": 8, "team:vision": 1, "team:speech": 1}
    large = of_team("vision", a_gpu_job("large", 8))
    running = [of_team("speech", a_gpu_job("r", 1, JobState.RUNNING))]
    small = [
        of_team("speech", a_gpu_job(f"s{number}", 1, created=number + 1)) for number in range(9)
    ]
    assert admissible([large, *running, *small], limits) == ()
