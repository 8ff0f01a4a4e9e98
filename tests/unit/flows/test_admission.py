"""Admission of jobs under limits: order, retries, and races between two admissions."""

from __future__ import annotations

import json

import pytest

from shared.core.model.job import JobState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.errors import ConflictError, PermanentError
from shared.flows import admission, provision, submit, sweep
from shared.ports import AdmissionToken
from tests.support.jobs import a_spec
from tests.support.world import World


class LimitedWorld(World):
    def add(self, job_id: str, priority: int = 0) -> None:
        """Submit a job that needs 12 vCPUs."""
        spec = a_spec()
        training = {**spec["trainingInput"], "scheduling": {"priority": str(priority)}}  # type: ignore[dict-item]
        document = {"jobId": job_id, **spec, "trainingInput": training}
        self.wait(1)
        submit.handle(json.dumps(document).encode(), f"gs://b/jobs/{job_id}.yaml#1", self.deps)

    def states(self) -> dict[str, JobState]:
        return {job.job_id: job.state for job in self.store.recent_jobs(10)}


@pytest.fixture
def world() -> LimitedWorld:
    """A world with capacity for one job: the first one has it, the other two are queued."""
    world = LimitedWorld(limits={"vcpus": 12})
    world.add("first")
    world.deliver()
    world.add("second")
    world.add("urgent", priority=5)
    world.deliver()
    return world


def test_job_over_the_limit_stays_queued_without_vms(world: LimitedWorld) -> None:
    assert world.states() == {
        "first": JobState.PREPARING,
        "second": JobState.QUEUED,
        "urgent": JobState.QUEUED,
    }
    assert {labelled.label for labelled in world.fleet.list_all()} == {"first"}


def test_job_end_admits_the_queued_job_of_highest_priority(world: LimitedWorld) -> None:
    world.job_id = "first"
    world.report_all_ready()
    world.send("replica-exit", ReplicaId(TaskType.CHIEF, 0), cause="process", exit_status=0)
    world.deliver()
    assert world.states() == {
        "first": JobState.SUCCEEDED,
        "second": JobState.QUEUED,
        "urgent": JobState.PREPARING,
    }


def test_sweep_admits_jobs_when_the_message_about_free_capacity_was_lost(world: LimitedWorld) -> None:
    world.limits["vcpus"] = 24
    sweep.handle(world.deps)
    world.deliver()
    assert world.states()["urgent"] is JobState.PREPARING
    assert world.states()["second"] is JobState.QUEUED


def test_admission_token_from_before_another_admission_is_rejected(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both deliveries saw capacity for one job. The second to commit takes a new token, and its job waits."""
    world.limits["vcpus"] = 24
    real = world.store.admission_token
    raced: list[bool] = []

    def raced_admission_token() -> AdmissionToken:
        admission_token = real()
        if not raced:
            raced.append(True)
            provision.handle("urgent", world.fleet_deps, world.deps)
        return admission_token

    monkeypatch.setattr(world.store, "admission_token", raced_admission_token)
    loaded = world.store.load("second")
    assert loaded is not None
    wait = admission.admit(loaded.state.job, world.deps)
    assert wait is not None
    assert (wait.job_id, wait.position) == ("second", 1)
    assert world.states()["urgent"] is JobState.PREPARING


def test_admission_that_loses_every_race_raises_conflict_error(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limits["vcpus"] = 24
    monkeypatch.setattr(world.store, "admission_token", lambda: AdmissionToken("old", world.store.live_jobs()))
    loaded = world.store.load("urgent")
    assert loaded is not None
    with pytest.raises(ConflictError, match="5 tries"):
        admission.admit(loaded.state.job, world.deps)
    assert world.states()["urgent"] is JobState.QUEUED


def test_job_that_exceeds_a_limit_alone_is_rejected_with_the_limit(world: LimitedWorld) -> None:
    world.limits["vcpus"] = 8
    with pytest.raises(PermanentError, match="The request for 12 vcpus exceeds the allowed maximum of 8 vcpus"):
        world.add("huge")
    (rejection,) = world.store.rejections()
    assert rejection.job_id == "huge"
    world.add("first")  # it was accepted before the limit was lowered, so its redelivery is not rejected
