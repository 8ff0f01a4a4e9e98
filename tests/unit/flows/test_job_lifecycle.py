"""The lifecycle of a job through the flows, event by event.

The members of the job, a chief and two workers, start together, in a round. When one of them ends,
the next round is held: the others are stopped, and wait until all are ready. Then a verdict says
whose failure it was. Restarts of a program are incarnations, runs of the whole job attempts.

A directive is an order to the agent of a VM: to run the program, to hold, or to stop. The
generation of a VM tells it from earlier VMs of the same replica. The ledger has the events of a job
and the decisions about them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World, before_next_commit
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CancelRequested, CapacityErrorKind, VmLost
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.round import Round
from trainmaster.core.model.vm import DirectiveAction
from trainmaster.core.reconcile.steps import Create
from trainmaster.errors import PermanentError
from trainmaster.flows.commit.record import record
from trainmaster.messaging import google_events
from trainmaster.ports import CreateOutcome, Loaded, NotCreated

PEER_GONE = {"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in f"}


@pytest.fixture
def running() -> World:
    """A world whose job is RUNNING, with the messages of its last commits still undelivered."""
    world = World()
    world.start_running()
    assert world.state == "RUNNING"
    return world


def test_job_goes_from_submitted_to_succeeded_and_leaves_no_vm(world: World) -> None:
    world.submit()
    assert world.state == "QUEUED"
    world.deliver()
    assert world.state == "PREPARING"
    assert len(world.vms) == 3
    for replica_id in (CHIEF, WORKER_1):
        world.send("vm-ready", replica_id)
    assert world.state == "PREPARING", "one replica is not ready yet"
    world.send("vm-ready", WORKER_0)
    reported_at = world.now
    world.deliver()
    assert world.state == "RUNNING"
    assert world.job.started_at == world.job.round.began_at == reported_at
    world.exit_program(WORKER_0, 0)
    world.deliver()
    assert world.find_vm(WORKER_0) is None, "a completed replica has no VM that costs money"
    world.exit_program(CHIEF, 0)
    assert world.state == "SUCCEEDED"
    world.deliver()
    assert list(world.vms) == []
    assert world.store.pending_keys("digits_1") == ()
    world.check()


def test_vm_metadata_holds_the_configuration_and_the_first_directive(world: World) -> None:
    world.submit()
    world.deliver()
    vm = world.vm(WORKER_1)
    metadata = world.fleet.metadata(vm.name)
    assert set(metadata) == {
        "startup-script",
        "trainmaster-vm-config",
        "trainmaster-directive",
        "enable-guest-attributes",
        "block-project-ssh-keys",
    }
    config = json.loads(metadata["trainmaster-vm-config"])
    assert config["vm_names"].index(vm.name) == 1
    assert config["tf_config"]["cluster"]["worker"][1] == f"{vm.name}.us-central1-a:2222"
    assert config["args"] == ["--epochs", "5"]
    assert config["expands"] is False
    assert config["job_dir"] == "gs://bucket/digits"
    assert config["topics"]["vm_ready"] == "projects/my-project/topics/trainmaster-vm-ready"
    assert json.loads(metadata["trainmaster-directive"]) == {
        "attempt": 1,
        "incarnation": 1,
        "action": "hold",
    }


def test_failure_of_one_member_restarts_all_in_their_vms_and_charges_one_restart(
    running: World,
) -> None:
    world = running
    world.deliver()
    before = [vm.instance_id for vm in world.vms]
    world.exit_program(CHIEF, error=PEER_GONE)
    world.kill(WORKER_0)
    world.exit_program(WORKER_1, error=PEER_GONE)
    assert world.job.round == Round(
        2,
        is_held=True,
        began_at=world.job.started_at,
        ordered_at=world.ledger[-1].at,
        stopped_by=CHIEF,
    )
    world.deliver()
    assert {
        (vm.directive.incarnation, vm.directive.action) for vm in world.vms if vm.directive
    } == {(2, DirectiveAction.RUN)}
    assert [vm.instance_id for vm in world.vms] == before
    assert [replica.restarts_used for replica in world.replicas] == [0, 1, 0]
    assert {replica.state for replica in world.replicas} == {ReplicaState.RUNNING}
    world.check()


def test_round_waits_for_the_replacement_of_a_lost_vm_and_is_free(running: World) -> None:
    world = running
    world.silent.add(WORKER_1)
    world.exit_program(CHIEF, error=PEER_GONE)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held, world.vm(WORKER_1).vm_generation) == (
        2,
        True,
        2,
    )
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert not world.job.round.is_held
    assert (
        world.ledger[-1].decision.text
        == "Round 1 ended: the VM of worker 1 was preempted. Free of charge."
    )
    assert [replica.restarts_used for replica in world.replicas] == [0, 0, 0]
    world.check()


def test_job_that_fails_for_good_does_not_wait_for_vms_that_never_reported(world: World) -> None:
    world.start_running()
    world.silent |= {WORKER_0, WORKER_1}
    world.exit_program(CHIEF, 137, out_of_memory=True)
    world.deliver()
    world.send("vm-ready", WORKER_0)
    world.send("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    assert world.state == "RUNNING", "worker 1 has not reported"
    world.send("vm-ready", WORKER_1)
    world.sweep()
    world.deliver()
    assert world.state == "FAILED"


def test_maintenance_replaces_the_vm_by_one_of_the_same_name(running: World) -> None:
    world = running
    before = world.vm(WORKER_1)
    world.send("maintenance", WORKER_1, cause="maintenance")
    world.deliver()
    after = world.vm(WORKER_1)
    assert after.name == before.name
    assert after.instance_id != before.instance_id
    assert after.vm_generation == 2
    world.send("vm-ready", WORKER_1)
    replica = world.replica(WORKER_1)
    assert (replica.state, replica.incarnation, replica.replaced, replica.restarts_used) == (
        ReplicaState.RUNNING,
        2,
        1,
        0,
    )
    assert replica.instance_id == after.instance_id
    world.check()


def test_messages_of_a_replaced_vm_change_nothing(running: World) -> None:
    world = running
    old = world.message_fields(WORKER_1)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    state = world.replicas
    world.send("replica-exit", WORKER_1, **old, cause="process", signal=15)
    world.send("maintenance", WORKER_1, **old, cause="preemption")
    assert world.replicas == state
    assert world.ledger[-1].decision.reason is Reason.OUTDATED
    world.check()


def test_job_fails_after_six_exits_in_each_of_four_attempts(running: World) -> None:
    world = running
    incarnations = 0
    while not world.has_ended:
        incarnations += 1
        assert incarnations <= 24
        world.kill(WORKER_0, signal=15)
        world.deliver()
        if not world.has_ended:
            world.report_all_ready()
        world.check()
    assert incarnations == 4 * 6
    assert world.state == "FAILED"
    assert world.job.attempt == 4
    assert world.job.budgets.reruns_used == 3
    assert (
        world.job.error_message
        == "The replica worker 0 exited with a non-zero status of 15(SIGTERM)."
    )
    assert not world.vms


def test_rerun_uses_the_existing_vms(world: World) -> None:
    world.submit({**a_spec(), "trainmaster": {"restartJobOnWorkerRestart": True}})
    world.deliver()
    world.report_all_ready()
    before = {vm.name: vm.instance_id for vm in world.vms}
    world.kill(WORKER_0, signal=11)
    world.deliver()
    assert {vm.name: vm.instance_id for vm in world.vms} == before
    assert {
        (vm.directive.attempt, vm.directive.incarnation) for vm in world.vms if vm.directive
    } == {(2, 1)}
    world.report_all_ready()
    assert world.state == "RUNNING"
    world.check()


@pytest.mark.parametrize("loss", ["preempted", "stopping", "gone"])
def test_lost_vm_reruns_a_job_that_reruns_on_restarts_and_is_the_only_one_replaced(
    world: World, loss: str
) -> None:
    world.submit({**a_spec(), "trainmaster": {"restartJobOnWorkerRestart": True}})
    world.deliver()
    world.report_all_ready()
    name = world.vms[1].name
    if loss == "preempted":
        world.send("maintenance", WORKER_0, cause="preemption")
    elif loss == "stopping":
        world.send("replica-exit", WORKER_0, cause="vm_stopping", signal=15)
    else:
        world.fleet.vanish(name)
        world.sweep()
    world.deliver()
    assert (world.job.attempt, world.job.budgets.reruns_used) == (2, 0)
    assert {vm.replica_id: vm.vm_generation for vm in world.vms} == {
        CHIEF: 1,
        WORKER_0: 2,
        WORKER_1: 1,
    }
    assert {
        (vm.directive.attempt, vm.directive.incarnation) for vm in world.vms if vm.directive
    } == {(2, 1)}
    world.report_all_ready()
    world.check()


def test_repeated_event_is_recorded_once(running: World) -> None:
    world = running
    world.deliver()
    subject = world.message_fields(WORKER_0)
    for _ in range(5):
        world.send("replica-exit", WORKER_0, **subject, cause="process", signal=9)
    assert sum(entry.key == "1-worker-0-1-vm-1-exit" for entry in world.ledger) == 1
    for _ in range(5):
        world.deliver()
        world.send("vm-ready", WORKER_0)
    assert (world.replica(WORKER_0).incarnation, world.replica(WORKER_0).restarts_used) == (2, 1)
    world.check()


def test_repeated_submission_is_one_job(world: World) -> None:
    for _ in range(5):
        world.submit()
    world.deliver()
    assert len(world.vms) == 3
    assert len(world.ledger) == 2


def test_other_submission_with_a_used_job_id_is_rejected(running: World) -> None:
    for _ in range(2):
        with pytest.raises(PermanentError, match="A job with this id already exists"):
            running.submit(source="gs://b/jobs/other.yaml#2")
    (rejection,) = running.store.rejections()
    assert rejection.job_id == "digits_1"
    running.check()


def test_invalid_submission_is_rejected_with_every_problem(world: World) -> None:
    spec = a_spec(workerCount=-1, region="nowhere", colour="red")
    with pytest.raises(PermanentError):
        world.submit(spec)
    (rejection,) = world.store.rejections()
    fields = [problem.partition(" Error: ")[0] for problem in rejection.problems]
    assert sorted(fields) == [
        f"Field: training_input.{name}" for name in ("colour", "region", "worker_count")
    ]
    assert world.store.load("digits_1") is None


def test_stockout_moves_the_gang_to_the_next_zone(world: World) -> None:
    world.fleet.stockout_zones = {"us-central1-a"}
    world.submit()
    world.deliver()
    zones = {vm.zone for vm in world.vms}
    assert len(world.vms) == 3
    assert len(zones) == 1
    assert zones != {"us-central1-a"}
    world.check()


def test_stockout_in_all_zones_is_retried_after_a_backoff(world: World) -> None:
    world.submit()
    world.fleet.stockout_zones = set(world.job.plan.where.zones)
    world.deliver()
    requests = world.job.placement.round
    assert requests == len(world.job.plan.where.zones), "each zone was tried"
    for _ in range(3):
        world.provision()
    assert world.job.placement.round == requests, "no zone is tried again before the backoff ends"
    assert world.store.pending_keys("digits_1") == (), "the sweep looks at the job without one"
    world.wait(60)
    world.sweep()
    world.deliver()
    assert world.job.placement.round == 2 * requests
    assert not world.vms
    world.fleet.stockout_zones = set()
    world.wait(60)
    world.sweep()
    world.deliver()
    assert len(world.vms) == 3
    world.report_all_ready()
    assert world.store.pending_keys("digits_1") == ()
    world.check()


def test_job_cancelled_while_waiting_for_capacity_is_cleaned_up_at_once(world: World) -> None:
    world.submit()
    world.fleet.stockout_zones = set(world.job.plan.where.zones)
    world.deliver()
    record(CancelRequested("digits_1", "me", world.now), world.deps)
    world.deliver()
    assert (world.state, world.store.pending_keys("digits_1")) == ("CANCELLED", ())
    world.check()


def test_restart_of_a_replica_does_not_wait_for_another_ones_vm(running: World) -> None:
    world = running
    world.fleet.stockout_zones = set(world.job.plan.where.zones)
    world.send("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    assert world.job.placement.next_at is not None
    world.kill(WORKER_1)
    world.deliver()
    vm = world.vm(WORKER_1)
    assert vm.directive is not None
    assert vm.directive.incarnation == 2, (
        "the directive is written before the other VM is requested"
    )
    world.check()


def test_permanent_capacity_error_fails_the_job_with_googles_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = NotCreated(
        CapacityErrorKind.DENIED,
        "PERMISSIONS_ERROR",
        "Required 'compute.instances.create' permission",
    )
    monkeypatch.setattr(world.fleet, "create", lambda *_: denied)
    world.submit()
    world.provision()
    assert world.state == "FAILED"
    assert world.job.error_message is not None
    assert "compute.instances.create" in world.job.error_message


def test_slow_creation_is_awaited_and_never_repeated(world: World) -> None:
    world.fleet.is_slow = True
    world.submit()
    world.provision()
    first = world.vms
    world.provision()
    assert world.vms == first
    assert world.store.pending_keys("digits_1"), "the entry stays pending until the VMs run"
    world.fleet.settle()
    world.provision()
    assert world.vms[0].instance_id == first[0].instance_id
    world.report_all_ready()
    assert world.store.pending_keys("digits_1") == ()


def test_sweep_replaces_a_vm_that_no_longer_exists(running: World) -> None:
    world = running
    world.fleet.vanish(world.vms[0].name)
    world.sweep()
    world.deliver()
    assert world.replica(CHIEF).replaced == 1
    assert world.find_vm(CHIEF) is not None
    world.check()


def test_sweep_cancels_a_job_after_its_maximum_running_time(running: World) -> None:
    world = running
    world.wait(world.job.plan.limits.max_running_s)
    world.sweep()
    assert world.state == "CANCELLED"
    assert world.job.error_message is not None
    assert world.job.error_message.startswith(
        "Job was cancelled for exceeding the maximum allowed duration of"
    )
    world.deliver()
    assert not world.vms
    world.check()


def test_event_of_an_unknown_job_is_a_permanent_error(running: World) -> None:
    with pytest.raises(PermanentError, match="no job"):
        running.send("vm-ready", CHIEF, job_id="another")


def test_vms_created_for_a_job_that_ended_meanwhile_are_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow delivery creates VMs of a job after another delivery has cleaned the job up."""
    world.submit()
    create = world.fleet.create

    def create_late(job: Job, step: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        monkeypatch.setattr(world.fleet, "create", create)
        record(CancelRequested("digits_1", "me", world.now), world.deps)
        world.provision()
        assert not world.vms
        return create(job, step, metadata)

    monkeypatch.setattr(world.fleet, "create", create_late)
    world.provision()
    assert world.state == "CANCELLED"
    assert not world.vms
    world.check()


def test_event_that_loses_a_race_is_judged_again_on_the_new_state(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running
    before_next_commit(
        world, monkeypatch, lambda: world.send("maintenance", WORKER_0, cause="preemption")
    )
    world.kill(WORKER_0)
    replica = world.replica(WORKER_0)
    assert (replica.vm_generation, replica.restarts_used) == (2, 0)
    assert world.ledger[-1].decision.reason is Reason.OUTDATED
    world.check()


def test_fatal_exit_of_an_incarnation_that_was_replaced_meanwhile_is_ignored(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running
    before_next_commit(
        world, monkeypatch, lambda: world.send("maintenance", WORKER_0, cause="preemption")
    )
    world.exit_program(WORKER_0, 2)
    assert world.state == "RUNNING"
    world.check()


def test_vm_loss_is_judged_although_the_job_is_rerun_while_it_is_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event names attempt 1; the job is read in attempt 2, then in attempt 3, which still uses
    that VM.
    """
    world.is_independent = True
    world.start_running()
    event = google_events.decode_maintenance(
        json.dumps({**world.message_fields(WORKER_0), "cause": "preemption"}).encode()
    )
    assert isinstance(event, VmLost)
    world.kill(CHIEF, 11)
    world.deliver()
    world.send("vm-ready", CHIEF)
    load = world.store.load

    def rerun_after(job_id: str, replica: str | None = None) -> Loaded | None:
        loaded = load(job_id, replica)
        if loaded is not None and loaded.state.job.attempt == 2:
            monkeypatch.setattr(world.store, "load", load)
            world.kill(CHIEF, 11)
        return loaded

    monkeypatch.setattr(world.store, "load", rerun_after)
    record(event, world.deps)
    assert (world.job.attempt, world.replica(WORKER_0).state) == (3, "REPLACING")
    world.check()
