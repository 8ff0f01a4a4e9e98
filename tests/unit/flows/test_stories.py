"""Whole courses of a job through the real flows, told event by event."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from shared.core.decisions import Reason
from shared.core.events import CancelRequested, CapacityErrorKind, VmLost
from shared.core.evolve import Change
from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job
from shared.core.model.replica import ReplicaState
from shared.core.model.vm import DirectiveAction, VmStatus
from shared.core.reconcile.steps import Create
from shared.errors import PermanentError, TemporaryError
from shared.flows.record import record
from shared.messaging import google_events
from shared.ports import AdmissionToken, CreateOutcome, Loaded, NotCreated
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World

PEER_GONE = {"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in f"}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running() -> World:
    world = World()
    world.running()
    assert world.state == "RUNNING"
    return world


def test_a_job_goes_from_submitted_to_succeeded_and_leaves_no_vm(world: World) -> None:
    world.submit()
    assert world.state == "QUEUED"
    world.deliver()
    assert world.state == "PREPARING"
    assert len(world.vms) == 3
    for replica_id in (CHIEF, WORKER_1):
        world.tell("vm-ready", replica_id)
    assert world.state == "PREPARING", "one replica is not up yet"
    world.tell("vm-ready", WORKER_0)
    assert world.state == "RUNNING"
    assert world.job.started_at == world.now
    world.fail(WORKER_0, 0)
    world.deliver()
    assert world.vm(WORKER_0) is None, "nothing is paid for a done replica"
    world.fail(CHIEF, 0)
    assert world.state == "SUCCEEDED"
    world.deliver()
    assert list(world.vms) == []
    assert world.store.pending_keys("digits_1") == ()
    world.check()


def test_every_vm_is_told_its_gang_and_its_first_life(world: World) -> None:
    world.submit()
    world.deliver()
    vm = world.vm(WORKER_1)
    assert vm is not None
    metadata = world.fleet.metadata(vm.name)
    assert set(metadata) == {
        "startup-script",
        "trainmaster-vm-config",
        "trainmaster-directive",
        "serial-port-logging-enable",
    }
    gang = json.loads(metadata["trainmaster-vm-config"])
    assert gang["vm_names"].index(vm.name) == 1
    assert gang["tf_config"]["cluster"]["worker"][1] == f"{vm.name}.us-central1-a:2222"
    assert gang["args"] == ["--epochs", "5"]
    assert gang["expands"] is False
    assert gang["job_dir"] == "gs://bucket/digits"
    assert gang["topics"]["vm_ready"] == "projects/my-project/topics/trainmaster-vm-ready"
    assert json.loads(metadata["trainmaster-directive"]) == {"attempt": 1, "incarnation": 1, "action": "run"}


def test_a_killed_worker_restarts_in_its_vm_and_its_peers_pay_nothing(running: World) -> None:
    world = running
    before = world.vm(WORKER_0)
    assert before is not None
    world.kill(WORKER_0)
    world.fail(CHIEF, error=PEER_GONE)
    world.deliver()
    held = world.vm(CHIEF)
    assert held is not None
    assert held.directive is not None
    assert (held.directive.incarnation, held.directive.action) == (2, DirectiveAction.HOLD)
    world.tell("vm-ready", WORKER_0)
    world.fail(WORKER_1, error=PEER_GONE)
    world.deliver()
    for replica_id in (CHIEF, WORKER_1):
        vm = world.vm(replica_id)
        assert vm is not None
        assert vm.directive is not None
        assert (vm.directive.incarnation, vm.directive.action) == (2, DirectiveAction.RUN)
        world.tell("vm-ready", replica_id)
    after = world.vm(WORKER_0)
    assert after is not None
    assert after.instance_id == before.instance_id
    assert [replica.restarts_used for replica in world.replicas] == [0, 1, 0]
    assert [replica.collateral for replica in world.replicas] == [1, 0, 1]
    assert {replica.state for replica in world.replicas} == {ReplicaState.RUNNING}
    world.check()


def test_maintenance_gives_the_replica_another_vm_of_the_same_name(running: World) -> None:
    world = running
    before = world.vm(WORKER_1)
    assert before is not None
    world.tell("maintenance", WORKER_1, cause="maintenance")
    world.deliver()
    after = world.vm(WORKER_1)
    assert after is not None
    assert after.name == before.name
    assert after.instance_id != before.instance_id
    assert after.vm_generation == 2
    world.tell("vm-ready", WORKER_1)
    replica = world.replica(WORKER_1)
    assert (replica.state, replica.incarnation, replica.replaced, replica.restarts_used) == (
        ReplicaState.RUNNING,
        2,
        1,
        0,
    )
    assert replica.instance_id == after.instance_id
    world.check()


def test_what_the_old_vm_says_after_its_replacement_changes_nothing(running: World) -> None:
    world = running
    old = world.subject(WORKER_1)
    world.tell("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    state = world.replicas
    world.tell("replica-exit", WORKER_1, **old, cause="process", signal=15)
    world.tell("maintenance", WORKER_1, **old, cause="preemption")
    assert world.replicas == state
    assert world.ledger[-1].decision.reason is Reason.OLD_VM_GENERATION
    world.check()


def test_a_replica_fails_six_times_per_attempt_and_the_job_four_attempts_long(running: World) -> None:
    world = running
    incarnations = 0
    while not world.has_ended:
        incarnations += 1
        assert incarnations <= 24
        world.kill(WORKER_0, signal=15)
        world.deliver()
        if not world.has_ended:
            world.everyone_ready()
        world.check()
    assert incarnations == 4 * 6
    assert world.state == "FAILED"
    assert world.job.attempt == 4
    assert world.job.budgets.reruns_used == 3
    assert world.job.error_message == "The replica worker 0 exited with a non-zero status of 15(SIGTERM)."
    assert not world.vms


def test_a_rerun_uses_the_vms_that_are_there(running: World) -> None:
    world = running
    before = {vm.name: vm.instance_id for vm in world.vms}
    world.kill(WORKER_0, signal=11)
    world.deliver()
    assert {vm.name: vm.instance_id for vm in world.vms} == before
    assert {(vm.directive.attempt, vm.directive.incarnation) for vm in world.vms if vm.directive} == {(2, 1)}
    world.everyone_ready()
    assert world.state == "RUNNING"
    world.check()


@pytest.mark.parametrize("how", ["preempted", "stopping", "gone"])
def test_where_one_restart_reruns_the_job_a_lost_vm_does_and_only_that_one_is_made_anew(world: World, how: str) -> None:
    world.submit({**a_spec(), "trainmaster": {"restartJobOnWorkerRestart": True}})
    world.deliver()
    world.everyone_ready()
    name = world.vms[1].name
    if how == "preempted":
        world.tell("maintenance", WORKER_0, cause="preemption")
    elif how == "stopping":
        world.tell("replica-exit", WORKER_0, cause="vm_stopping", signal=15)
    else:
        world.fleet.vanish(name)
        world.sweep()
    world.deliver()
    assert (world.job.attempt, world.job.budgets.reruns_used) == (2, 0)
    assert {vm.replica_id: vm.vm_generation for vm in world.vms} == {CHIEF: 1, WORKER_0: 2, WORKER_1: 1}
    assert {(vm.directive.attempt, vm.directive.incarnation) for vm in world.vms if vm.directive} == {(2, 1)}
    world.everyone_ready()
    world.check()


def test_the_same_event_five_times_is_one_event(running: World) -> None:
    world = running
    subject = world.subject(WORKER_0)
    for _ in range(5):
        world.tell("replica-exit", WORKER_0, **subject, cause="process", signal=9)
    assert world.replica(WORKER_0).restarts_used == 1
    assert sum(entry.key == "1-worker-0-1-exit" for entry in world.ledger) == 1
    for _ in range(5):
        world.deliver()
        world.tell("vm-ready", WORKER_0)
    assert world.replica(WORKER_0).incarnation == 2
    world.check()


def test_the_same_submission_five_times_is_one_job(world: World) -> None:
    for _ in range(5):
        world.submit()
    world.deliver()
    assert len(world.vms) == 3
    assert len(world.ledger) == 2


def test_another_submission_under_a_used_id_is_rejected_and_recorded(running: World) -> None:
    for _ in range(2):
        with pytest.raises(PermanentError, match="A job with this id already exists"):
            running.submit(source="gs://b/jobs/other.yaml#2")
    (rejection,) = running.store.rejections()
    assert rejection.job_id == "digits_1"
    running.check()


def test_a_submission_that_is_no_job_is_recorded_with_every_problem(world: World) -> None:
    spec = a_spec(workerCount=-1, region="nowhere", colour="red")
    with pytest.raises(PermanentError):
        world.submit(spec)
    (rejection,) = world.store.rejections()
    fields = [problem.partition(" Error: ")[0] for problem in rejection.problems]
    assert sorted(fields) == [f"Field: training_input.{name}" for name in ("colour", "region", "worker_count")]
    assert world.store.load("digits_1") is None


def test_a_stockout_tries_the_next_zone_and_leaves_nothing_in_the_first(world: World) -> None:
    world.fleet.stockout_zones = {"us-central1-a"}
    world.submit()
    world.deliver()
    zones = {vm.zone for vm in world.vms}
    assert len(world.vms) == 3
    assert len(zones) == 1
    assert zones != {"us-central1-a"}
    world.check()


def test_a_stockout_everywhere_is_waited_for(world: World) -> None:
    world.submit()
    world.fleet.stockout_zones = set(world.job.plan.zones)
    world.deliver()
    refused = world.job.placement.round
    assert refused == len(world.job.plan.zones), "each zone was asked"
    for _ in range(3):
        world.provision()
    assert world.job.placement.round == refused, "and is not asked again at once, whoever comes"
    assert world.store.pending_keys("digits_1"), "what is not there yet stays desired"
    world.wait(60)
    world.sweep()
    world.deliver()
    assert world.job.placement.round == 2 * refused
    assert not world.vms
    world.fleet.stockout_zones = set()
    world.wait(60)
    world.sweep()
    world.deliver()
    assert len(world.vms) == 3
    assert world.store.pending_keys("digits_1") == ()
    world.check()


def test_a_job_that_ends_while_it_waits_for_machines_is_cleaned_up_at_once(world: World) -> None:
    world.submit()
    world.fleet.stockout_zones = set(world.job.plan.zones)
    world.deliver()
    record("digits_1", CancelRequested("digits_1", "me", world.now), world.deps)
    world.deliver()
    assert (world.state, world.store.pending_keys("digits_1")) == ("CANCELLED", ())
    world.check()


def test_what_needs_no_new_machine_is_done_while_one_is_waited_for(running: World) -> None:
    world = running
    world.fleet.stockout_zones = set(world.job.plan.zones)
    world.tell("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    assert world.job.placement.next_at is not None
    world.kill(WORKER_1)
    world.deliver()
    vm = world.vm(WORKER_1)
    assert vm is not None
    assert vm.directive is not None
    assert vm.directive.incarnation == 2, "told although the other's VM is not asked for yet"
    world.check()


def test_a_refusal_for_good_ends_the_job_with_googles_words(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    error_kind = NotCreated(
        CapacityErrorKind.DENIED, "PERMISSIONS_ERROR", "Required 'compute.instances.create' permission"
    )
    monkeypatch.setattr(world.fleet, "create", lambda *_: error_kind)
    world.submit()
    world.provision()
    assert world.state == "FAILED"
    assert world.job.error_message is not None
    assert "compute.instances.create" in world.job.error_message


def test_slow_machines_are_waited_for_and_never_made_twice(world: World) -> None:
    world.fleet.is_slow = True
    world.submit()
    with pytest.raises(TemporaryError):
        world.provision()
    first = world.vms
    with pytest.raises(TemporaryError):
        world.provision()
    assert world.vms == first
    assert world.store.pending_keys("digits_1"), "what is not seen done stays desired"
    world.fleet.settle()
    world.provision()
    assert world.store.pending_keys("digits_1") == ()


def test_a_vm_that_stopped_without_a_word_is_found_by_the_sweep(running: World) -> None:
    world = running
    name = world.vms[1].name
    world.fleet.stop(name)
    world.sweep()
    world.deliver()
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    vm = world.vm(WORKER_0)
    assert vm is not None
    assert (vm.vm_generation, vm.status) == (2, VmStatus.RUNNING)
    world.check()


def test_a_vm_that_vanished_is_found_by_the_sweep(running: World) -> None:
    world = running
    world.fleet.vanish(world.vms[0].name)
    world.sweep()
    world.deliver()
    assert world.replica(CHIEF).replaced == 1
    assert world.vm(CHIEF) is not None
    world.check()


def test_the_sweep_ends_a_job_whose_time_is_over(running: World) -> None:
    world = running
    world.wait(world.job.plan.max_running_s)
    world.sweep()
    assert world.state == "CANCELLED"
    assert world.job.error_message is not None
    assert world.job.error_message.startswith("Job was cancelled for exceeding the maximum allowed duration of")
    world.deliver()
    assert not world.vms
    world.check()


def test_the_sweep_finds_what_a_lost_message_left_undone(world: World) -> None:
    world.submit()
    world.bus.drain()
    world.sweep()
    world.deliver()
    assert len(world.vms) == 3


def test_an_event_of_an_unknown_job_can_never_succeed(running: World) -> None:
    with pytest.raises(PermanentError, match="no job"):
        running.tell("vm-ready", CHIEF, job_id="another")


def test_an_insert_made_on_a_state_that_had_meanwhile_ended_is_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hardest race: a slow provision creates VMs of a job that another has just cleaned up after."""
    world.submit()
    create = world.fleet.create

    def late(job: Job, step: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        monkeypatch.setattr(world.fleet, "create", create)
        record("digits_1", CancelRequested("digits_1", "me", world.now), world.deps)
        world.provision()
        assert not world.vms
        return create(job, step, metadata)

    monkeypatch.setattr(world.fleet, "create", late)
    world.provision()
    assert world.state == "CANCELLED"
    assert not world.vms
    world.check()


def test_a_lost_race_is_judged_again_on_what_the_winner_wrote(running: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = running
    commit = world.store.commit

    def second(
        loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        """Another function is faster: it hears that the VM is lost while this one judges the exit."""
        monkeypatch.setattr(world.store, "commit", commit)
        world.tell("maintenance", WORKER_0, cause="preemption")
        commit(loaded, entry, change, admission_token)

    monkeypatch.setattr(world.store, "commit", second)
    world.kill(WORKER_0)
    replica = world.replica(WORKER_0)
    assert (replica.vm_generation, replica.restarts_used) == (2, 0)
    assert world.ledger[-1].decision.reason is Reason.OLD_VM_GENERATION
    world.check()


def test_a_fatal_exit_of_a_life_that_is_replaced_meanwhile_ends_nothing(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = running
    commit = world.store.commit

    def second(
        loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        monkeypatch.setattr(world.store, "commit", commit)
        world.tell("maintenance", WORKER_0, cause="preemption")
        commit(loaded, entry, change, admission_token)

    monkeypatch.setattr(world.store, "commit", second)
    world.fail(WORKER_0, 2)
    assert world.state == "RUNNING"
    world.check()


def test_a_loss_is_judged_however_often_the_job_is_rerun_while_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told of attempt 1, read first in attempt 2 and then in attempt 3: it is the loss of attempt 3's machine."""
    world.running()
    event = google_events.decode_maintenance(json.dumps({**world.subject(WORKER_0), "cause": "preemption"}).encode())
    assert isinstance(event, VmLost)
    world.kill(CHIEF, 11)
    world.deliver()
    world.tell("vm-ready", CHIEF)
    load = world.store.load

    def rerun_after(job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
        loaded = load(job_id, replica, lost_peers=lost_peers)
        if loaded is not None and loaded.state.job.attempt == 2:
            monkeypatch.setattr(world.store, "load", load)
            world.kill(CHIEF, 11)
        return loaded

    monkeypatch.setattr(world.store, "load", rerun_after)
    record(world.job_id, event, world.deps)
    assert (world.job.attempt, world.replica(WORKER_0).state) == (3, "REPLACING")
    world.check()
