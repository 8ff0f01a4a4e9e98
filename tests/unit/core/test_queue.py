"""The line of waiting jobs: who may start, who waits for what, and what a job uses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.model.job import Job, JobState
from shared.core.model.plan import Accelerator, TaskGroup, Tpu
from shared.core.model.replica_id import TaskType
from shared.core.rules.admission_queue import exceeded, needs, vcpus, wait_of, waits
from tests.support.jobs import a_job, a_plan, at

T4 = "nvidia-tesla-t4"


def a_gpu_job(name: str, gpus: int, state: JobState = JobState.QUEUED, priority: int = 0, created: int = 0) -> Job:
    group = TaskGroup(TaskType.CHIEF, 1, "n1-standard-8", Accelerator(T4, gpus) if gpus else None)
    plan = a_plan(groups=(group,), priority=priority)
    return replace(a_job(state, plan), job_id=name, created_at=at(created))


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
        ("a3-ultragpu-8g", 224),
        ("a4-highgpu-8g", 224),
        ("", 0),
    ],
)
def test_a_machine_types_name_tells_its_vcpus(machine_type: str, count: int) -> None:
    assert vcpus(machine_type) == count


def test_a_job_needs_what_all_of_its_replicas_need() -> None:
    groups = (
        TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"),
        TaskGroup(TaskType.WORKER, 3, "n1-standard-8", Accelerator(T4, 2)),
        TaskGroup(TaskType.PS, 2, "", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)),
    )
    assert needs(a_plan(groups=groups)) == {"vcpus": 28, T4: 6, "gpus": 6, "v5litepod": 32, "tpus": 32}


def test_without_limits_nobody_waits() -> None:
    assert waits([a_gpu_job("a", 8), a_gpu_job("b", 8)], {}) == ()


def test_a_job_starts_when_there_is_room_and_waits_with_its_place_and_reason_when_there_is_not() -> None:
    jobs = [a_gpu_job("runs", 4, JobState.RUNNING), a_gpu_job("fits", 2, created=1), a_gpu_job("waits", 4, created=2)]
    (wait,) = waits(jobs, {T4: 8})
    assert (wait.job_id, wait.position) == ("waits", 1)
    assert wait.reason == f"it needs 4 {T4}, and 6 of 8 are in use or promised to jobs before it"


def test_nobody_overtakes_a_large_job_that_waits_for_the_same() -> None:
    jobs = [
        a_gpu_job("runs", 6, JobState.PREPARING),
        a_gpu_job("large", 8, created=1),
        a_gpu_job("small", 1, created=2),
    ]
    assert [wait.job_id for wait in waits(jobs, {T4: 8})] == ["large", "small"]


def test_the_more_important_go_first_and_then_the_older() -> None:
    jobs = [
        a_gpu_job("old", 8, created=1),
        a_gpu_job("young", 8, created=2),
        a_gpu_job("urgent", 8, created=3, priority=1),
    ]
    assert [(wait.job_id, wait.position) for wait in waits(jobs, {T4: 8})] == [("old", 1), ("young", 2)]


def test_who_needs_nothing_that_is_short_does_not_wait() -> None:
    jobs = [a_gpu_job("runs", 8, JobState.RUNNING), a_gpu_job("waits", 8, created=1), a_gpu_job("cpu", 0, created=2)]
    assert wait_of("cpu", jobs, {T4: 8}) is None


def test_a_job_that_can_never_start_holds_up_nobody_and_says_so() -> None:
    jobs = [a_gpu_job("never", 16, created=1), a_gpu_job("fits", 8, created=2)]
    assert [wait.job_id for wait in waits(jobs, {T4: 8})] == ["never"]
    assert exceeded(jobs[0].plan, {T4: 8}) == f"The request for 16 {T4} exceeds the allowed maximum of 8 {T4}."
    assert exceeded(jobs[1].plan, {T4: 8}) is None


JOBS = st.lists(
    st.tuples(
        st.integers(0, 6), st.sampled_from([JobState.QUEUED, JobState.RUNNING]), st.integers(0, 3), st.integers(0, 9)
    ),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(JOBS)
def test_all_that_may_start_fit_beside_those_that_run(drawn: list[tuple[int, JobState, int, int]]) -> None:
    jobs = [a_gpu_job(f"j{nth}", *one) for nth, one in enumerate(drawn)]
    waiting = {wait.job_id for wait in waits(jobs, {"gpus": 8})}
    running = sum(needs(job.plan)["gpus"] for job in jobs if job.state is JobState.RUNNING)
    starting = sum(
        needs(job.plan)["gpus"] for job in jobs if job.state is JobState.QUEUED and job.job_id not in waiting
    )
    assert running + starting <= max(8, running)
    queued = [job for job in jobs if job.state is JobState.QUEUED and needs(job.plan)["gpus"]]
    if queued and running == 0:
        assert any(job.job_id not in waiting for job in queued), "the first in line starts on a free project"
