"""Jobs under limits: one starts when another ends, in their order, and two that race are never both admitted."""

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
        """12 vCPUs."""
        spec = a_spec()
        training = {**spec["trainingInput"], "scheduling": {"priority": str(priority)}}  # type: ignore[dict-item]
        document = {"jobId": job_id, **spec, "trainingInput": training}
        self.wait(1)
        submit.handle(json.dumps(document).encode(), f"gs://b/jobs/{job_id}.yaml#1", self.deps)

    def states(self) -> dict[str, JobState]:
        return {job.job_id: job.state for job in self.store.recent_jobs(10)}


@pytest.fixture
def world() -> LimitedWorld:
    world = LimitedWorld(limits={"vcpus": 12})
    world.add("first")
    world.deliver()
    world.add("second")
    world.add("urgent", priority=5)
    world.deliver()
    return world


def test_what_does_not_fit_stays_queued_and_makes_no_machine(world: LimitedWorld) -> None:
    assert world.states() == {
        "first": JobState.PREPARING,
        "second": JobState.QUEUED,
        "urgent": JobState.QUEUED,
    }
    assert {each.label for each in world.fleet.list_all()} == {"first"}


def test_the_end_of_one_starts_the_most_important_one(world: LimitedWorld) -> None:
    world.job_id = "first"
    world.everyone_ready()
    world.tell("replica-exit", ReplicaId(TaskType.CHIEF, 0), cause="process", exit_status=0)
    world.deliver()
    assert world.states() == {
        "first": JobState.SUCCEEDED,
        "second": JobState.QUEUED,
        "urgent": JobState.PREPARING,
    }


def test_a_lost_wake_up_is_made_good_by_the_sweep(world: LimitedWorld) -> None:
    world.limits["vcpus"] = 24
    sweep.handle(world.deps)
    world.deliver()
    assert world.states()["urgent"] is JobState.PREPARING
    assert world.states()["second"] is JobState.QUEUED


def test_a_turn_that_was_taken_before_another_admission_admits_nobody(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw room for one; the second to commit looks again, and waits."""
    world.limits["vcpus"] = 24
    real = world.store.admission_token
    raced: list[bool] = []

    def raced_admission_token() -> AdmissionToken:
        admission_token = real()
        if not raced:
            raced.append(True)
            provision.handle("urgent", world.machines, world.deps)
        return admission_token

    monkeypatch.setattr(world.store, "admission_token", raced_admission_token)
    loaded = world.store.load("second")
    assert loaded is not None
    wait = admission.admit(loaded.state.job, world.deps)
    assert wait is not None
    assert (wait.job_id, wait.position) == ("second", 1)
    assert world.states()["urgent"] is JobState.PREPARING


def test_turns_that_are_always_lost_give_the_message_back(world: LimitedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.limits["vcpus"] = 24
    monkeypatch.setattr(world.store, "admission_token", lambda: AdmissionToken("old", world.store.live_jobs()))
    loaded = world.store.load("urgent")
    assert loaded is not None
    with pytest.raises(ConflictError, match="5 turns"):
        admission.admit(loaded.state.job, world.deps)
    assert world.states()["urgent"] is JobState.QUEUED


def test_a_job_that_could_never_start_is_refused_and_says_what_it_asked_for(world: LimitedWorld) -> None:
    world.limits["vcpus"] = 8
    with pytest.raises(PermanentError, match="The request for 12 vcpus exceeds the allowed maximum of 8 vcpus"):
        world.add("huge")
    (rejection,) = world.store.rejections()
    assert rejection.job_id == "huge"
    world.add("first")  # accepted before the limit was lowered: its redelivery is no capacity error
