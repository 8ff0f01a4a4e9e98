"""What no event of an agent reports: VMs without an owner, VMs that went without a word, replicas that never spoke."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from shared import topics, wire
from shared.core.events import Life, LossCause, VmLost, VmRef
from shared.core.fleet import SILENCE_S, Create, Delete, LabelledVm, Vm, VmStatus, plan_steps, vm_name, wanted
from shared.core.jobs import Job, JobState, Replica, ReplicaState
from shared.core.seats import Seat
from shared.core.verdicts import Reason
from shared.errors import PermanentError, TemporaryError
from shared.flows import maintenance, orphans, provision
from shared.flows.record import record
from shared.memory.fleet import MemoryFleet
from shared.ports import Orphan
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job
from tests.support.world import World, in_turn

SWEEP_S = 60
FORGOTTEN = "forgotten_1"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running() -> World:
    world = World()
    world.running()
    world.deliver()
    return world


def sweep(world: World, times: int = 1) -> None:
    for _ in range(times):
        world.wait(SWEEP_S)
        world.sweep()
        world.deliver()


def must(vm: Vm | None) -> Vm:
    assert vm is not None
    return vm


def make_vms(world: World, job: Job) -> tuple[Vm, ...]:
    """The VMs of a job, whether it exists or not."""
    replicas = tuple(Replica(1, seat) for seat in job.plan.seats)
    for step in plan_steps(job, wanted(job, replicas), ()):
        assert isinstance(step, Create)
        world.fleet.create(job, step, provision.metadata(job, step, world.machines))
    return world.fleet.list_vms(job.job_id)


def abandoned(world: World) -> tuple[Vm, ...]:
    """VMs of a job that nobody knows: its records were lost, or never written."""
    return make_vms(world, a_job(JobState.PREPARING, job_id=FORGOTTEN))


def left(world: World) -> tuple[Vm, ...]:
    return world.fleet.list_vms(FORGOTTEN)


def search(world: World, fleet: MemoryFleet | None = None) -> None:
    orphans.handle(fleet or world.fleet, world.deps, orphans.Patience(), in_turn)


def forget_inserts(world: World) -> None:
    """The same insert again is another one: the cloud remembers requests for a while only."""
    world.fleet._outcomes.clear()


# VMs without a living owner


def test_vms_of_no_job_are_reported_first_and_deleted_by_a_later_sweep(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    vms = abandoned(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    with caplog.at_level(logging.WARNING):
        sweep(world)
        assert {each.instance_id for each in world.store.orphans()} == {vm.instance_id for vm in vms}
        assert {each.first_seen_at for each in world.store.orphans()} == {world.now}
        assert left(world) == vms, "a report deletes nothing"
        sweep(world)
    assert left(world) == ()
    assert world.store.orphans() == ()
    said = [record.getMessage() for record in caplog.records]
    for vm in vms:
        assert [text for text in said if vm.name in text] == [
            f"orphan found: VM {vm.name} ({vm.instance_id}, us-central1-a) of job {FORGOTTEN}, which does not exist",
            f"orphan deleted: VM {vm.name} ({vm.instance_id})",
        ]


def test_two_looks_within_the_grace_delete_nothing(world: World) -> None:
    vms = abandoned(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search(world)
    world.wait(orphans.ORPHAN_GRACE_S - 1)
    search(world)
    assert left(world) == vms
    world.wait(1)
    search(world)
    assert left(world) == ()


def test_a_young_vm_is_nobodys_orphan(world: World) -> None:
    vms = abandoned(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S - 1)
    search(world)
    assert world.store.orphans() == ()
    assert left(world) == vms


def test_a_slow_create_is_never_taken_for_an_orphan(world: World) -> None:
    world.fleet.is_slow = True
    abandoned(world)
    sweep(world, times=60)
    assert world.store.orphans() == ()
    assert {vm.status for vm in left(world)} == {VmStatus.CREATING}
    world.fleet.settle()
    world.fleet.is_slow = False
    sweep(world)
    assert len(left(world)) == 3, "now that it runs it is reported, no more"
    sweep(world)
    assert left(world) == ()


def test_a_job_accepted_but_not_yet_provisioned_has_no_orphans_and_gets_its_vms(world: World) -> None:
    world.submit()
    world.bus.drain()  # the message is lost
    sweep(world)
    assert len(world.vms) == 3
    vms = world.vms
    world.everyone_ready()
    sweep(world, times=30)
    assert world.vms == vms
    assert world.store.orphans() == ()


def test_a_running_job_keeps_its_vms_however_often_it_is_swept(running: World) -> None:
    vms = running.vms
    sweep(running, times=120)
    assert running.vms == vms
    assert running.store.orphans() == ()
    search(running)
    assert running.bus.drain() == [], "what lives is its own provision's business"
    running.check()


def test_vms_that_came_after_their_job_had_ended_and_was_cleaned_up_are_deleted_at_once(running: World) -> None:
    world = running
    world.fail(CHIEF, 0)
    world.deliver()
    assert (world.vms, world.store.pending("digits_1")) == ((), ())
    forget_inserts(world)
    assert len(make_vms(world, replace(world.job, state=JobState.RUNNING))) == 3
    sweep(world)
    assert world.vms == ()
    assert world.store.orphans() == ()


def test_an_owner_that_appears_between_report_and_deletion_keeps_its_vms(world: World) -> None:
    abandoned(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search(world)
    world.wait(orphans.ORPHAN_GRACE_S)
    vms = left(world)

    def run_late(tasks: Sequence[Callable[[], None]]) -> None:
        World(FORGOTTEN, world.now, world.store, world.bus, world.fleet).submit()
        in_turn(tasks)

    orphans.handle(world.fleet, world.deps, orphans.Patience(), run_late)
    assert left(world) == vms
    assert world.store.orphans() == ()


def test_a_crash_between_report_and_deletion_is_made_good_by_the_next_sweep(world: World) -> None:
    class Crashing(MemoryFleet):
        def delete(self, vm: Vm) -> bool:
            super().delete(vm)
            raise TemporaryError("the reply is lost")

    crashing = world.fleet = Crashing(clock=lambda: world.now)
    abandoned(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search(world)
    world.wait(orphans.ORPHAN_GRACE_S)
    with pytest.raises(TemporaryError):
        search(world)
    assert len(left(world)) == 2, "one delete was heard"
    assert len(world.store.orphans()) == 3
    world.fleet = MemoryFleet(clock=crashing.clock, _vms=crashing._vms, _metadata=crashing._metadata)
    search(world)
    assert left(world) == ()
    search(world)
    assert world.store.orphans() == ()


def test_two_sweeps_at_once_delete_once_and_report_what_stands(world: World) -> None:
    """The second listed the VMs before the first deleted them."""

    class AsOf(MemoryFleet):
        def list_all(self) -> tuple[LabelledVm, ...]:
            return listed

    abandoned(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search(world)
    first_seen = world.store.orphans()
    world.wait(orphans.ORPHAN_GRACE_S)
    listed = world.fleet.list_all()
    search(world)
    assert left(world) == ()
    forget_inserts(world)
    young = abandoned(world)  # of the same names
    search(world, AsOf(clock=world.fleet.clock, _vms=world.fleet._vms))
    assert left(world) == young
    assert {each.instance_id for each in world.store.orphans()} <= {each.instance_id for each in first_seen}
    sweep(world)
    assert world.store.orphans() == ()


def test_a_name_that_we_never_give_is_left_alone_whatever_its_label(world: World) -> None:
    vm = replace(abandoned(world)[0], name="somebodys-db-worker-0")
    listed = LabelledVm(vm, FORGOTTEN)

    class Strange(MemoryFleet):
        def list_all(self) -> tuple[LabelledVm, ...]:
            return (listed,)

        def delete(self, vm: Vm) -> bool:
            raise AssertionError(vm)

    world.wait(orphans.ORPHAN_AGE_MIN_S)
    for _ in range(3):
        search(world, Strange())
        world.wait(SWEEP_S)
    assert world.store.orphans() == ()


def test_a_vm_with_a_living_jobs_name_and_another_ones_label_is_not_that_jobs(running: World) -> None:
    """Names and labels are both functions of the job: a VM that has them of two jobs is neither's."""
    world = running
    own = must(world.vm(CHIEF))

    class Odd(MemoryFleet):
        def list_all(self) -> tuple[LabelledVm, ...]:
            return (LabelledVm(own, "another"),)

    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search(world, Odd())
    assert [each.label for each in world.store.orphans()] == ["another"]


def test_what_is_reported_and_then_gone_is_forgotten(world: World) -> None:
    world.store.report_orphan(Orphan("4711", "tm-x-abcdef-chief-0", "us-central1-a", "x", world.now))
    sweep(world)
    assert world.store.orphans() == ()


def test_so_many_orphans_are_deleted_in_one_search_and_the_rest_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "DELETES_MAX", 2)
    abandoned(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    sweep(world, times=2)
    assert len(left(world)) == 1
    sweep(world)
    assert left(world) == ()


def test_of_two_vms_of_one_name_the_replicas_own_is_kept(running: World) -> None:
    """An insert may come late, in a zone that was given up."""
    world = running
    own = must(world.vm(WORKER_0))
    zombie = replace(own, zone="us-central1-b", instance_id="9")
    peers = [vm for vm in world.vms if vm.name != own.name]
    wants = wanted(world.job, world.replicas)
    for order in ([own, zombie], [zombie, own]):
        (step,) = plan_steps(world.job, wants, (*peers, *order))
        assert step == Delete(zombie)
    moved = replace(own, machine=2, zone="us-central1-b", instance_id="9")
    (step,) = plan_steps(world.job, wants, (*peers, moved, own))
    assert step == Delete(own), "a machine number lower than another's of that name is a zombie"


def test_a_provision_message_is_about_a_job_or_about_orphans() -> None:
    assert wire.provision(wire.encode_orphan_search()) == wire.OrphanSearch()
    assert wire.provision(wire.encode_provision("digits_1")) == "digits_1"


@pytest.mark.parametrize("text", ['{"version": 2, "orphans": true}', '{"version": 1, "orphans": false}', "[]", "{"])
def test_a_provision_message_that_is_about_neither_is_kept_for_people(text: str) -> None:
    with pytest.raises(PermanentError):
        wire.provision(text.encode())


# Compute's own word


def entry(vm: Vm, method: str, **changes: object) -> bytes:
    return json.dumps(
        {
            "protoPayload": {
                "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
                "serviceName": "compute.googleapis.com",
                "methodName": f"compute.instances.{method}",
                "resourceName": f"projects/p/zones/{vm.zone}/instances/{vm.name}",
            },
            "resource": {
                "type": "gce_instance",
                "labels": {"instance_id": vm.instance_id, "project_id": "p", "zone": vm.zone},
            },
            "timestamp": "2026-11-21T03:00:20.123456Z",
            "logName": "projects/p/logs/cloudaudit.googleapis.com%2Fsystem_event",
            **changes,
        }
    ).encode()


def told(world: World, data: bytes) -> None:
    maintenance.handle(wire.maintenance(data), world.deps)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("preempted", Reason.PREEMPTION),
        ("hostError", Reason.HOST_ERROR),
        ("terminateOnHostMaintenance", Reason.MAINTENANCE),
        ("guestTerminate", Reason.GONE),
    ],
)
def test_a_system_event_replaces_the_vm_without_a_sweep_and_names_the_cause(
    running: World, method: str, reason: Reason
) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    told(world, entry(old, method))
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert world.ledger[-1].verdict.reason is reason
    world.deliver()
    assert must(world.vm(WORKER_0)).machine == 2
    world.check()


def test_an_event_told_by_the_agent_and_by_compute_counts_once(running: World) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    world.tell("maintenance", WORKER_0, cause="preemption")
    for _ in range(2):
        told(world, entry(old, "preempted"))
    world.deliver()
    told(world, entry(old, "preempted"))
    world.deliver()
    assert (world.replica(WORKER_0).machine, world.replica(WORKER_0).replaced) == (2, 1)
    world.check()


def test_a_vm_preempted_before_its_agents_first_word_is_replaced_as_what_it_is_found_to_be(world: World) -> None:
    world.submit()
    world.deliver()
    old = must(world.vm(WORKER_0))
    world.fleet.stop(old.name)
    told(world, entry(old, "preempted"))
    world.deliver()
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert must(world.vm(WORKER_0)).instance_id != old.instance_id
    world.check()


def test_a_late_entry_about_an_old_vm_does_no_harm(running: World) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    world.tell("maintenance", WORKER_0, cause="maintenance")
    world.deliver()
    world.tell("vm-ready", WORKER_0)
    before, vms = world.replicas, world.vms
    told(world, entry(old, "hostError"))
    world.deliver()
    assert (world.replicas, world.vms) == (before, vms)


def test_an_entry_about_a_vm_that_runs_again_only_looks(running: World) -> None:
    world = running
    before, vms = world.replicas, world.vms
    told(world, entry(must(world.vm(WORKER_0)), "automaticRestart"))
    (message,) = world.bus.drain()
    assert (message.topic, wire.provision(message.data)) == (topics.PROVISION, "digits_1")
    assert (world.replicas, world.vms) == (before, vms)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gke-pool-1-abcd", "preempted"),
        ("tm-digits-1-ffffff-worker-0", "preempted"),
        ("tm-digits-2-ffffff-worker-0", "hostError"),
        (vm_name("digits_1", Seat.parse("worker-99")), "hostError"),
        (vm_name("digits_1", WORKER_0), "migrateOnHostMaintenance"),
        (vm_name("digits_1", WORKER_0), "somethingNew"),
    ],
)
def test_entries_about_what_is_not_ours_or_means_nothing_are_acknowledged(
    running: World, name: str, method: str
) -> None:
    before = len(running.ledger)
    told(running, entry(replace(must(running.vm(WORKER_0)), name=name), method))
    assert running.bus.drain() == []
    assert len(running.ledger) == before


def test_an_entry_about_an_ended_jobs_vm_changes_nothing(running: World) -> None:
    world = running
    vm = must(world.vm(WORKER_0))
    world.fail(CHIEF, 0)
    world.deliver()
    told(world, entry(vm, "preempted"))
    world.deliver()
    assert (world.state, world.vms) == ("SUCCEEDED", ())
    world.check()


@pytest.mark.parametrize(
    "changes",
    [
        {"protoPayload": {}},
        {"timestamp": "yesterday"},
        {"protoPayload": {"methodName": "x", "resourceName": "disks/d"}},
    ],
)
def test_an_entry_that_is_none_is_kept_for_people(running: World, changes: dict[str, object]) -> None:
    with pytest.raises(PermanentError):
        wire.maintenance(entry(must(running.vm(WORKER_0)), "preempted", **changes))


def test_without_any_event_the_sweep_finds_the_vm_that_crashed(running: World) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    world.fleet.stop(old.name)
    sweep(world)
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert must(world.vm(WORKER_0)).instance_id != old.instance_id
    world.tell("vm-ready", WORKER_0)
    assert [each.verdict.reason for each in world.ledger].count(Reason.GONE) == 1
    world.check()


# Silence


def silent_at(world: World, seconds: float) -> bool:
    """Whether a sweep then finds a replica silent."""
    before = len(world.ledger)
    world.wait(seconds)
    world.sweep()
    world.deliver()
    return Reason.SILENCE in [each.verdict.reason for each in world.ledger[before:]]


def test_an_agent_that_never_speaks_gets_another_vm_after_twenty_minutes(world: World) -> None:
    world.submit()
    world.deliver()
    for seat in (CHIEF, WORKER_1):
        world.tell("vm-ready", seat)
    old = must(world.vm(WORKER_0))
    assert not silent_at(world, SILENCE_S - 3)
    assert silent_at(world, 1)
    replica = world.replica(WORKER_0)
    assert (replica.state, replica.machine, replica.restarts_used) == (ReplicaState.REPLACING, 2, 0)
    assert must(world.vm(WORKER_0)).instance_id != old.instance_id
    assert not silent_at(world, SILENCE_S - 1), "the new VM has its own time"
    world.tell("vm-ready", WORKER_0)
    assert world.state == "RUNNING"
    world.check()


def test_a_restart_that_never_comes_up_in_its_vm_gets_another(running: World) -> None:
    world = running
    world.wait(7200)
    world.kill(WORKER_0)
    world.deliver()
    assert not silent_at(world, SILENCE_S - 1)
    assert silent_at(world, 1)
    assert must(world.vm(WORKER_0)).machine == 2
    world.check()


def test_a_replica_that_runs_is_never_silent(running: World) -> None:
    assert not silent_at(running, 5 * 3600)


def an_hour_of_creating(world: World) -> None:
    world.fleet.is_slow = True
    world.bus.drain()
    for _ in range(6):
        with pytest.raises(TemporaryError):
            world.provision()
        world.wait(600)
    world.fleet.settle()
    world.fleet.is_slow = False


def test_a_slow_create_is_not_silence_and_time_counts_from_when_the_vm_came_up(world: World) -> None:
    world.submit()
    an_hour_of_creating(world)
    assert not silent_at(world, SILENCE_S - 1)
    assert silent_at(world, 1)
    world.check()


def test_waiting_for_capacity_is_not_silence(world: World) -> None:
    world.submit()
    world.fleet.stockout_zones = {f"us-central1-{letter}" for letter in "abcdef"}
    for _ in range(6):
        world.bus.drain()
        world.provision()
        world.wait(600)
    world.fleet.stockout_zones = set()
    world.provision()
    assert len(world.vms) == 3
    assert not silent_at(world, SILENCE_S - 1)
    assert silent_at(world, 1)
    world.check()


def test_a_held_replica_has_its_time_from_when_its_peers_are_back(running: World) -> None:
    world = running
    world.tell("maintenance", WORKER_0, cause="preemption")
    world.fleet.vanish(vm_name("digits_1", WORKER_0))
    world.fail(CHIEF, error={"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in f"})
    an_hour_of_creating(world)
    world.tell("vm-ready", WORKER_0)
    world.deliver()
    assert world.replica(CHIEF).state is ReplicaState.HELD
    assert not silent_at(world, SILENCE_S - 2)
    assert silent_at(world, 2)
    assert world.replica(CHIEF).state is ReplicaState.REPLACING
    world.check()


def test_a_replica_that_died_of_an_old_loss_has_its_time_from_when_it_died(running: World) -> None:
    world = running
    world.tell("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    world.tell("vm-ready", WORKER_0)
    world.wait(7200)
    world.fail(CHIEF, error={"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in f"})
    world.deliver()
    assert world.replica(CHIEF).state is ReplicaState.HELD
    assert not silent_at(world, SILENCE_S - 1)
    assert silent_at(world, 1)
    world.check()


def test_a_silence_that_was_broken_in_time_does_not_hide_the_machines_later_loss(running: World) -> None:
    world = running
    replica, vm = world.replica(WORKER_0), must(world.vm(WORKER_0))
    life = Life("digits_1", 1, WORKER_0, replica.incarnation, replica.machine, VmRef(vm.name, vm.zone, vm.instance_id))
    found = record("digits_1", VmLost(life, world.now, LossCause.SILENCE), world.deps)
    assert found.entry.verdict.kind == "ignore"
    told(world, entry(vm, "hostError"))
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    world.check()


def test_two_sweeps_that_both_find_a_silence_replace_one_vm(world: World) -> None:
    world.submit()
    world.deliver()
    for seat in (CHIEF, WORKER_1):
        world.tell("vm-ready", seat)
    world.wait(SILENCE_S)
    world.sweep()
    world.sweep()
    world.deliver()
    assert world.replica(WORKER_0).machine == 2
    world.check()
