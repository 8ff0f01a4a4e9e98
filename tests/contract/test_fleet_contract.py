"""One suite for the Fleet: in memory, on the explorer's cloud, and on Compute Engine's emulator."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.contract.fleets import (
    OTHER_ZONE,
    RUN,
    World,
    a_create,
    delete_and_wait,
    metadata,
    only_vm,
)
from tests.integration.compute.emulator import ZONE
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import HeldMachines
from trainmaster.core.model.vm import Directive, DirectiveAction, LabelledVm, VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.reconcile.steps import HandOver
from trainmaster.ports import Created, NotCreated


def test_created_gang_is_listed(world: World, job: Job) -> None:
    create = a_create(job)
    assert world.fleet.create(job, create, metadata()) == Created()
    vms = sorted(world.fleet.list_vms(job.job_id), key=lambda vm: vm.name)
    assert [(vm.name, vm.replica_id, vm.zone) for vm in vms] == [
        (name, replica_id, ZONE)
        for name, replica_id in zip(create.names, create.replica_ids, strict=True)
    ]
    assert {(vm.status, vm.vm_generation, vm.directive) for vm in vms} == {
        (VmStatus.RUNNING, 1, RUN)
    }
    assert len({vm.instance_id for vm in vms}) == 2
    assert world.metadata(vms[0]) == metadata()
    assert world.fleet.list_vms("another_job") == ()


def test_repeated_insert_is_created_and_changes_nothing(world: World, job: Job) -> None:
    for _ in range(3):
        assert world.fleet.create(job, a_create(job), metadata()) == Created()
    assert len(world.fleet.list_vms(job.job_id)) == 2


def test_existing_names_count_as_created_and_missing_vms_are_inserted(
    world: World, job: Job
) -> None:
    world.fleet.create(job, a_create(job, workers=1), metadata())
    first = only_vm(world.fleet, job)
    assert world.fleet.create(job, a_create(job, workers=3), metadata()) == Created()
    assert world.fleet.create(job, a_create(job, workers=3, round=1), metadata()) == Created()
    vms = world.fleet.list_vms(job.job_id)
    assert len(vms) == 3
    assert first.instance_id in {vm.instance_id for vm in vms}


def test_stockout_creates_nothing_and_the_next_zone_succeeds(world: World, job: Job) -> None:
    world.stock_out(ZONE)
    outcome = world.fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.STOCKOUT
    assert outcome.code.startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
    assert world.fleet.list_vms(job.job_id) == ()
    assert world.fleet.create(job, a_create(job, zone=OTHER_ZONE), metadata()) == Created()
    assert {vm.zone for vm in world.fleet.list_vms(job.job_id)} == {OTHER_ZONE}


def test_deleting_a_deleted_vm_returns_true(world: World, job: Job) -> None:
    world.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(world.fleet, job)
    delete_and_wait(world.fleet, vm)
    assert world.fleet.list_vms(job.job_id) == ()
    assert world.fleet.delete(vm)


def test_delete_by_old_id_keeps_the_newer_vm_of_that_name(world: World, job: Job) -> None:
    world.fleet.create(job, a_create(job, workers=1), metadata())
    old = only_vm(world.fleet, job)
    delete_and_wait(world.fleet, old)
    assert (
        world.fleet.create(job, a_create(job, workers=1, vm_generation=2), metadata()) == Created()
    )
    assert world.fleet.delete(old)
    younger = only_vm(world.fleet, job)
    assert (younger.name, younger.vm_generation) == (old.name, 2)
    assert younger.instance_id != old.instance_id
    assert not world.fleet.write_directive(old, replace(RUN, incarnation=2))


def test_directive_is_written_once_per_fingerprint(world: World, job: Job) -> None:
    world.fleet.create(job, a_create(job, workers=1), metadata())
    listed = only_vm(world.fleet, job)
    hold = Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
    assert world.fleet.write_directive(listed, hold)
    # Somebody wrote since it was listed.
    assert not world.fleet.write_directive(listed, replace(hold, incarnation=3))
    now = only_vm(world.fleet, job)
    assert now.directive == hold
    assert now.fingerprint != listed.fingerprint
    assert world.fleet.write_directive(now, replace(hold, action=DirectiveAction.RUN))


def test_list_all_returns_vms_of_all_jobs_with_labels_and_times(world: World, job: Job) -> None:
    other = replace(job, job_id=f"Other_{job.job_id}")
    before = world.now() - timedelta(seconds=1)
    world.fleet.create(job, a_create(job), metadata())
    world.fleet.create(other, a_create(other, workers=1, zone=OTHER_ZONE), metadata())
    listed = world.fleet.list_all()
    assert {item.label for item in listed} == {job_label(job.job_id), job_label(other.job_id)}
    expected = {
        LabelledVm(vm, job_label(owner.job_id))
        for owner in (job, other)
        for vm in world.fleet.list_vms(owner.job_id)
    }
    assert set(listed) == expected
    for item in listed:
        created_at, started_at = item.vm.created_at, item.vm.started_at
        assert created_at is not None
        assert started_at is not None
        assert before < created_at <= started_at <= world.now() + timedelta(seconds=1)
        delete_and_wait(world.fleet, item.vm)
    assert world.fleet.list_all() == ()


def test_job_without_placement_policy_is_released_at_once(world: World, job: Job) -> None:
    assert world.fleet.release(job)


def test_vm_that_is_handed_over_has_the_metadata_of_the_next_job(world: World, job: Job) -> None:
    world.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(world.fleet, job)
    hold = Directive(attempt=1, incarnation=1, action=DirectiveAction.HOLD, tenure=2)
    taker = replace(job, job_id="taker", machines=HeldMachines(job.set_id, tenure=2))
    hand_over = HandOver(vm, replace(a_create(job, workers=1), directive=hold))
    written = {**metadata(hold), "trainmaster-vm-config": "{}"}
    assert world.fleet.hand_over(taker, hand_over, written)
    taken = only_vm(world.fleet, job)
    assert (taken.instance_id, taken.directive) == (vm.instance_id, hold)
    assert world.metadata(taken) == written


def test_vm_that_changed_since_it_was_listed_is_not_handed_over(world: World, job: Job) -> None:
    world.fleet.create(job, a_create(job, workers=1), metadata())
    vm = only_vm(world.fleet, job)
    stop = Directive(attempt=1, incarnation=2, action=DirectiveAction.STOP)
    assert world.fleet.write_directive(vm, stop)
    hold = Directive(attempt=1, incarnation=1, action=DirectiveAction.HOLD, tenure=2)
    taker = replace(job, job_id="taker", machines=HeldMachines(job.set_id, tenure=2))
    hand_over = HandOver(vm, replace(a_create(job, workers=1), directive=hold))
    assert not world.fleet.hand_over(taker, hand_over, metadata(hold))
    assert only_vm(world.fleet, job).directive == stop
