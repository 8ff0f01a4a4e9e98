"""Admission of jobs under limits: order, retries, and races between two admissions.

A pass reads all live jobs, and admits the queued ones that fit, in order. A lease keeps a second
pass from running beside it, and expires if its function dies. The commit of an admission needs the
token that the pass has read: it is refused if another pass has admitted a job since.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from bench.costs import SWEEP_READS
from bench.counting import Counts, counting_store
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.reconcile.attention import needs_reconciliation
from trainmaster.core.rules.admission_queue import AdmissionQueue
from trainmaster.errors import PermanentError
from trainmaster.flows import provision, submit, sweep
from trainmaster.flows.provisioning import admission
from trainmaster.flows.provisioning.admission import Admission
from trainmaster.messaging import internal_requests
from trainmaster.messaging.internal_requests import AdmissionPass, ProvisionRequest
from trainmaster.ports import AdmissionToken, Lease


class LimitedWorld(World):
    """A world with a limit of vCPUs. Each of its jobs needs 12."""

    def add(self, job_id: str, priority: int = 0) -> None:
        """Submit a job that needs 12 vCPUs."""
        spec = a_spec()
        training = {**spec["trainingInput"], "scheduling": {"priority": str(priority)}}  # type: ignore[dict-item]
        document = {"jobId": job_id, **spec, "trainingInput": training}
        self.wait(1)
        submit.handle(json.dumps(document).encode(), f"gs://b/jobs/{job_id}.yaml#1", self.deps)

    def forget_passes(self) -> None:
        """Let no pass have seen any job."""
        self.store.store_queue(AdmissionQueue())

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


def test_sweep_admits_jobs_when_the_message_about_free_capacity_was_lost(
    world: LimitedWorld,
) -> None:
    world.limits["vcpus"] = 24
    sweep.handle(world.deps)
    world.deliver()
    assert world.states()["urgent"] is JobState.PREPARING
    assert world.states()["second"] is JobState.QUEUED


@pytest.mark.parametrize("request_", [AdmissionPass(), ProvisionRequest("urgent")])
def test_redelivery_continues_the_pass_of_the_delivery_that_died(
    world: LimitedWorld, request_: AdmissionPass | ProvisionRequest
) -> None:
    world.limits["vcpus"] = 24
    world.forget_passes()
    later = world.now + timedelta(seconds=admission.LEASE_S)
    assert world.store.take_lease(admission.LEASE, world.now, later, "message-1")
    provision.handle(request_, world.fleet_deps, world.deps, world.now, "message-2")
    assert world.states()["urgent"] is JobState.QUEUED, "another message meets the lease"
    provision.handle(request_, world.fleet_deps, world.deps, world.now, "message-1")
    assert world.states()["urgent"] is JobState.PREPARING


def test_job_that_is_admitted_while_its_own_delivery_ends_gets_its_vms(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its delivery met the lease of the pass, and the request of the pass meets the lease of its
    delivery.
    """
    world.limits["vcpus"] = 24
    world.forget_passes()
    store = world.store
    later = world.now + timedelta(seconds=admission.LEASE_S)
    lease_of_pass = store.take_lease(admission.LEASE, world.now, later)
    assert lease_of_pass
    release = store.release_lease

    def release_after_the_pass(lease: Lease) -> None:
        """Let the pass run, and its request be handled, just before the delivery releases the lease
        of its job.
        """
        monkeypatch.setattr(store, "release_lease", release)
        store.release_lease(lease_of_pass)
        assert admission.admit_all(world.fleet_deps, world.deps) == {"urgent"}
        world.deliver()
        release(lease)

    monkeypatch.setattr(store, "release_lease", release_after_the_pass)
    provision.handle(ProvisionRequest("urgent"), world.fleet_deps, world.deps)
    world.deliver()
    assert world.states()["urgent"] is JobState.PREPARING
    assert world.fleet.list_vms("urgent")


def test_admission_token_from_before_another_admission_is_rejected(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both passes saw capacity for one job.

    The second to commit takes a new token, and its job waits.
    """
    world.limits["vcpus"] = 24
    real = world.store.admission_token
    raced: list[bool] = []

    def raced_admission_token() -> AdmissionToken:
        admission_token = real()
        if not raced:
            raced.append(True)
            world.store._leases.clear()  # as if it had expired
            admission.admit_all(world.fleet_deps, world.deps)
        return admission_token

    monkeypatch.setattr(world.store, "admission_token", raced_admission_token)
    assert admission.admit_all(world.fleet_deps, world.deps) == frozenset()
    assert world.states() == {
        "first": JobState.PREPARING,
        "second": JobState.QUEUED,
        "urgent": JobState.PREPARING,
    }


def test_pass_that_loses_every_race_pauses_and_leaves_the_rest_to_the_next(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limits["vcpus"] = 24
    before = world.now
    with monkeypatch.context() as patch:
        patch.setattr(
            world.store, "admission_token", lambda: AdmissionToken("old", world.store.live_jobs())
        )
        assert admission.admit_all(world.fleet_deps, world.deps) == frozenset()
    assert (world.now - before).total_seconds() > 0.5
    assert world.states()["urgent"] is JobState.QUEUED
    assert admission.admit_all(world.fleet_deps, world.deps) == {"urgent"}


def test_pass_beside_another_one_is_repeated_if_jobs_came_meanwhile(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new job's own request met the lease after the running pass had read the live jobs."""
    world.limits["vcpus"] = 36
    run_pass = admission._run_pass

    def run_beside_a_submission(*args: object) -> tuple[frozenset[str], int]:
        result = run_pass(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(admission, "_run_pass", run_pass)
        world.limits["vcpus"] = 48
        world.add("late")
        world.deliver()
        assert world.states()["late"] is JobState.QUEUED
        return result

    monkeypatch.setattr(admission, "_run_pass", run_beside_a_submission)
    admission.admit_all(world.fleet_deps, world.deps)
    world.deliver()
    assert world.states()["late"] is JobState.PREPARING


def reads_of_a_sweep(world: LimitedWorld) -> Counts:
    """Sweep, handle what it requests, and return what both read."""
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    sweep.handle(deps)
    while message := world.bus.take():
        provision.handle(internal_requests.decode_provision(message.data), world.fleet_deps, deps)
    return counts


@pytest.mark.parametrize("queued", [10, 40])
def test_job_whose_request_was_lost_is_read_in_one_sweep_and_then_not_again(queued: int) -> None:
    world = LimitedWorld(limits={"vcpus": 12})
    world.add("first")
    world.deliver()
    for number in range(queued):
        world.add(f"waiting_{number}")
    world.bus.drain()
    assert reads_of_a_sweep(world).reads <= 14 * queued + 40
    world.wait(60)
    counts = reads_of_a_sweep(world)
    assert counts.reads <= 20, counts.reads_by_call
    assert counts.calls["admission_token"] == 0, "nothing has changed since the last pass"


@pytest.mark.parametrize(("running", "waiting"), [(1, 0), (1, 4), (3, 4)])
def test_sweep_reads_exactly_what_the_table_of_costs_says(running: int, waiting: int) -> None:
    world = LimitedWorld(limits={"vcpus": 12 * running})
    job_ids = [f"running_{number}" for number in range(running)]
    for job_id in job_ids:
        world.add(job_id)
    world.deliver()
    for job_id in job_ids:
        world.job_id = job_id
        world.report_all_ready()
    for number in range(waiting):
        world.add(f"waiting_{number}")
    world.deliver()
    (live,) = world.store.live_pages(waiting=False)
    while any(needs_reconciliation(job, world.now) for job in live.jobs):
        world.wait(60)
    expected = SWEEP_READS["each sweep"] + SWEEP_READS["each sweep, if there are limits"]
    expected += running * SWEEP_READS["a running job"]
    expected += waiting * SWEEP_READS["a job that waits for its admission"]
    assert reads_of_a_sweep(world).reads == expected


def test_job_in_the_queue_has_no_request_left(world: LimitedWorld) -> None:
    assert world.store.pending_keys("urgent") == world.store.pending_keys("second") == ()
    assert set(world.store.queue().waits) == {"second", "urgent"}


def end_without_a_pass(world: LimitedWorld) -> None:
    """The first job ends, and the request for a pass is lost."""
    world.job_id = "first"
    world.report_all_ready()
    world.send("replica-exit", ReplicaId(TaskType.CHIEF, 0), cause="process", exit_status=0)
    world.bus.drain()


def raise_the_limit(world: LimitedWorld) -> None:
    world.limits["vcpus"] = 24


def lose_the_queue(world: LimitedWorld) -> None:
    world.limits["vcpus"] = 24
    world.forget_passes()


def wait_an_hour(world: LimitedWorld) -> None:
    """Something has changed that no number shows."""
    world.limits["vcpus"] = 24
    world.store.store_queue(replace(world.store.queue(), limits=dict(world.limits)))
    assert reads_of_a_sweep(world).calls["admission_token"] == 0
    world.wait(admission.FULL_PASS.total_seconds())


@pytest.mark.parametrize(
    "change", [end_without_a_pass, raise_the_limit, lose_the_queue, wait_an_hour]
)
def test_sweep_finds_that_a_waiting_job_may_fit_now(
    world: LimitedWorld, change: Callable[[LimitedWorld], None]
) -> None:
    change(world)
    for _ in range(2):
        world.wait(60)
        world.sweep()
        world.deliver()
    assert world.states()["urgent"] is JobState.PREPARING


def test_waiting_jobs_are_admitted_when_all_limits_are_removed(world: LimitedWorld) -> None:
    world.limits.clear()
    world.sweep()
    world.deliver()
    assert world.states() == dict.fromkeys(("first", "second", "urgent"), JobState.PREPARING)


def test_waiting_job_ends_at_its_max_wait_time(world: LimitedWorld) -> None:
    spec = a_spec()
    training = {**spec["trainingInput"], "scheduling": {"maxWaitTime": "3600s"}}  # type: ignore[dict-item]
    document = {"jobId": "patient", **spec, "trainingInput": training}
    submit.handle(json.dumps(document).encode(), "gs://b/jobs/patient.yaml#1", world.deps)
    world.deliver()
    world.wait(3500)
    world.sweep()
    world.deliver()
    assert world.states()["patient"] is JobState.QUEUED
    world.wait(200)
    world.sweep()
    world.deliver()
    assert world.states()["patient"] is JobState.CANCELLED


def test_job_behind_the_stored_part_of_the_queue_is_left_to_the_passes(
    world: LimitedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "STORED_MAX", 1)
    admission.admit_all(world.fleet_deps, world.deps)
    assert set(world.store.queue().waits) == {"urgent"}
    assert world.store.queue().is_cut
    loaded = world.store.load("second")
    assert loaded is not None
    assert admission.admit(loaded.state.job, world.fleet_deps, world.deps) is Admission.WAITS


@pytest.mark.parametrize("queued", [10, 40])
def test_jobs_that_are_submitted_at_once_cost_a_constant_number_of_reads_each(queued: int) -> None:
    """The pass of the first request sees all of them, and those of the others would find nothing
    new.
    """
    world = LimitedWorld(limits={"vcpus": 12})
    world.add("first")
    world.deliver()
    for number in range(queued):
        world.add(f"waiting_{number:02}")
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    while message := world.bus.take():
        provision.handle(internal_requests.decode_provision(message.data), world.fleet_deps, deps)
    assert counts.reads <= 13 * queued
    assert len(world.store.queue().waits) == queued


def test_pass_is_requested_in_vain_if_a_later_one_has_run(world: LimitedWorld) -> None:
    """The later one must have begun ten seconds after the request, so that no difference of clocks
    hides a change that it did not see.
    """
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    requested_at = world.now
    for seconds, passes in ((9, 1), (2, 2), (0, 2)):
        world.wait(seconds)
        provision.handle(AdmissionPass(), world.fleet_deps, deps, requested_at)
        assert counts.calls["admission_token"] == passes


@pytest.mark.parametrize("queued", [10, 40])
def test_queue_that_drains_at_once_costs_a_constant_number_of_reads_per_job(queued: int) -> None:
    world = LimitedWorld(limits={"vcpus": 12})
    world.add("first")
    world.deliver()
    for number in range(queued):
        world.add(f"waiting_{number:02}")
    world.bus.drain()
    world.limits["vcpus"] = 12 * (queued + 1)
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    assert len(admission.admit_all(world.fleet_deps, deps)) == queued
    assert counts.reads <= 4 * queued + 10
    assert len(world.bus.drain()) == queued, "one provisioning request for each job"


def test_job_that_exceeds_a_limit_alone_is_rejected_with_the_limit(world: LimitedWorld) -> None:
    world.limits["vcpus"] = 8
    with pytest.raises(
        PermanentError, match="The request for 12 vcpus exceeds the allowed maximum of 8 vcpus"
    ):
        world.add("huge")
    (rejection,) = world.store.rejections()
    assert rejection.job_id == "huge"
    # It was accepted before the limit was lowered, so its redelivery is not rejected.
    world.add("first")
