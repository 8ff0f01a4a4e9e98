"""Orphans: VMs with a job's label, but without a live job.

A search reports them first. A later search deletes those that were reported long enough ago.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.support.captured_logs import CapturedLogs
from tests.support.jobs import CHIEF, WORKER_0
from tests.support.world import World, run_in_sequence
from tests.unit.flows.sweep_helpers import (
    FORGOTTEN,
    SWEEP_S,
    forget_inserts,
    make_orphans,
    make_vms,
    orphan_vms,
    search_orphans,
    sweep,
)
from trainmaster.core.model.job import JobState
from trainmaster.core.model.vm import LabelledVm, Vm, VmStatus
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.reconcile.plan import vm_steps
from trainmaster.core.reconcile.steps import Delete
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows.provisioning import orphans, vm_check
from trainmaster.messaging import internal_requests
from trainmaster.messaging.internal_requests import ProvisionRequest
from trainmaster.ports import Orphan
from trainmaster_local.memory.fleet import MemoryFleet


def test_orphans_are_reported_first_and_deleted_by_a_later_sweep(
    world: World, caplog: CapturedLogs
) -> None:
    vms = make_orphans(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    with caplog.at_level(logging.WARNING):
        sweep(world)
        assert {orphan.instance_id for orphan in world.store.orphans()} == {
            vm.instance_id for vm in vms
        }
        assert {orphan.first_seen_at for orphan in world.store.orphans()} == {world.now}
        assert orphan_vms(world) == vms, "a report deletes nothing"
        sweep(world)
    assert orphan_vms(world) == ()
    assert world.store.orphans() == ()
    messages = [record.getMessage() for record in caplog.records]
    for vm in vms:
        assert [text for text in messages if vm.name in text] == [
            (
                f"orphan found: VM {vm.name} ({vm.instance_id}, us-central1-a) of job {FORGOTTEN},"
                " which does not exist"
            ),
            f"orphan deleted: VM {vm.name} ({vm.instance_id})",
        ]


def test_second_search_within_the_grace_period_deletes_nothing(world: World) -> None:
    vms = make_orphans(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search_orphans(world)
    world.wait(orphans.ORPHAN_GRACE_S - 1)
    search_orphans(world)
    assert orphan_vms(world) == vms
    world.wait(1)
    search_orphans(world)
    assert orphan_vms(world) == ()


def test_young_vm_is_not_an_orphan(world: World) -> None:
    vms = make_orphans(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S - 1)
    search_orphans(world)
    assert world.store.orphans() == ()
    assert orphan_vms(world) == vms


def test_vm_that_is_being_created_is_not_an_orphan(world: World) -> None:
    world.fleet.is_slow = True
    make_orphans(world)
    sweep(world, times=60)
    assert world.store.orphans() == ()
    assert {vm.status for vm in orphan_vms(world)} == {VmStatus.CREATING}
    world.fleet.settle()
    world.fleet.is_slow = False
    sweep(world)
    assert len(orphan_vms(world)) == 3, "a running VM is only reported"
    sweep(world)
    assert orphan_vms(world) == ()


def test_sweep_provisions_a_job_whose_message_was_lost(world: World) -> None:
    world.submit()
    world.bus.drain()  # the message is lost
    sweep(world)
    assert len(world.vms) == 3
    world.report_all_ready()
    vms = world.vms
    sweep(world, times=30)
    assert world.vms == vms
    assert world.store.orphans() == ()


def test_running_job_keeps_its_vms_over_many_sweeps(running: World) -> None:
    vms = running.vms
    sweep(running, times=120)
    assert running.vms == vms
    assert running.store.orphans() == ()
    search_orphans(running)
    assert running.bus.drain() == [], (
        "a search leaves the VMs of live jobs to their own provisioning"
    )
    running.check()


def test_vms_created_after_their_job_was_cleaned_up_are_deleted_at_once(running: World) -> None:
    world = running
    world.exit_program(CHIEF, 0)
    world.deliver()
    assert (world.vms, world.store.pending_keys("digits_1")) == ((), ())
    forget_inserts(world)
    assert len(make_vms(world, replace(world.job, state=JobState.RUNNING))) == 3
    sweep(world)
    assert world.vms == ()
    assert world.store.orphans() == ()


def test_job_stored_between_report_and_deletion_keeps_its_vms(world: World) -> None:
    make_orphans(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search_orphans(world)
    world.wait(orphans.ORPHAN_GRACE_S)
    vms = orphan_vms(world)

    def run_late(tasks: Sequence[Callable[[], None]]) -> None:
        World(FORGOTTEN, world.now, world.store, world.bus, world.fleet).submit()
        run_in_sequence(tasks)

    vm_check.handle(replace(world.fleet_deps, run_all=run_late), world.deps)
    assert orphan_vms(world) == vms
    assert world.store.orphans() == ()


def test_crash_during_deletion_is_repaired_by_the_next_search(world: World) -> None:
    class Crashing(MemoryFleet):
        def delete(self, vm: Vm) -> bool:
            super().delete(vm)
            raise TemporaryError("the response is lost")

    crashing = world.fleet = Crashing(clock=lambda: world.now)
    make_orphans(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search_orphans(world)
    world.wait(orphans.ORPHAN_GRACE_S)
    with pytest.raises(TemporaryError):
        search_orphans(world)
    assert len(orphan_vms(world)) == 2, "one deletion was executed"
    assert len(world.store.orphans()) == 3
    world.fleet = MemoryFleet(
        clock=crashing.clock, _vms=crashing._vms, _metadata=crashing._metadata
    )
    search_orphans(world)
    assert orphan_vms(world) == ()
    search_orphans(world)
    assert world.store.orphans() == ()


def test_concurrent_search_with_an_outdated_list_does_not_delete_new_vms(world: World) -> None:
    """The second search listed the VMs before the first one deleted them."""

    class OutdatedFleet(MemoryFleet):
        def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
            return listed

    make_orphans(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search_orphans(world)
    first_seen = world.store.orphans()
    world.wait(orphans.ORPHAN_GRACE_S)
    listed = world.fleet.list_all()
    search_orphans(world)
    assert orphan_vms(world) == ()
    forget_inserts(world)
    young = make_orphans(world)  # of the same names
    search_orphans(world, OutdatedFleet(clock=world.fleet.clock, _vms=world.fleet._vms))
    assert orphan_vms(world) == young
    assert {orphan.instance_id for orphan in world.store.orphans()} <= {
        orphan.instance_id for orphan in first_seen
    }
    sweep(world)
    assert world.store.orphans() == ()


def test_vm_with_another_name_format_is_never_deleted(world: World) -> None:
    vm = replace(make_orphans(world)[0], name="other-database-worker-0")
    listed = LabelledVm(vm, FORGOTTEN)

    class ForeignVmFleet(MemoryFleet):
        def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
            return (listed,)

        def delete(self, vm: Vm) -> bool:
            raise AssertionError(vm)

    world.wait(orphans.ORPHAN_AGE_MIN_S)
    for _ in range(3):
        search_orphans(world, ForeignVmFleet())
        world.wait(SWEEP_S)
    assert world.store.orphans() == ()


def test_vm_with_a_live_jobs_name_but_another_label_is_an_orphan(running: World) -> None:
    """Name and label both follow from the job: a VM with the name of one and the label of another
    has no owner.
    """
    world = running
    own = world.vm(CHIEF)

    class MislabelledFleet(MemoryFleet):
        def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
            return (LabelledVm(own, "another"),)

    world.wait(orphans.ORPHAN_AGE_MIN_S)
    search_orphans(world, MislabelledFleet())
    assert [orphan.label for orphan in world.store.orphans()] == ["another"]


def test_report_of_a_vm_that_no_longer_exists_is_deleted(world: World) -> None:
    world.store.report_orphan(
        Orphan("4711", "tm-x-abcdef0123456789-chief-0", "us-central1-a", "x", world.now)
    )
    sweep(world)
    assert world.store.orphans() == ()


def test_search_deletes_a_limited_number_of_orphans(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "DELETES_MAX", 2)
    make_orphans(world)
    world.wait(orphans.ORPHAN_AGE_MIN_S)
    sweep(world, times=2)
    assert len(orphan_vms(world)) == 1
    sweep(world)
    assert orphan_vms(world) == ()


def test_of_two_vms_with_one_name_only_the_replicas_own_is_kept(running: World) -> None:
    """A late insert may create a second VM in a zone that the job has left."""
    world = running
    own = world.vm(WORKER_0)
    extra = replace(own, zone="us-central1-b", instance_id="9")
    peers = [vm for vm in world.vms if vm.name != own.name]
    desired = desired_vms(world.job, world.replicas, world.now)
    for order in ([own, extra], [extra, own]):
        (step,) = vm_steps(world.job, desired, (*peers, *order))
        assert step == Delete(extra)
    moved = replace(own, vm_generation=2, zone="us-central1-b", instance_id="9")
    (step,) = vm_steps(world.job, desired, (*peers, moved, own))
    assert step == Delete(own), "the VM with the lower generation is the extra one"


def test_provision_message_names_a_job_or_requests_an_orphan_search() -> None:
    assert (
        internal_requests.decode_provision(internal_requests.encode_orphan_search())
        == internal_requests.OrphanSearch()
    )
    assert internal_requests.decode_provision(
        internal_requests.encode_provision(ProvisionRequest("digits_1"))
    ) == ProvisionRequest("digits_1")


@pytest.mark.parametrize(
    "text", ['{"version": 2, "orphans": true}', '{"version": 1, "orphans": false}', "[]", "{"]
)
def test_malformed_provision_message_is_a_permanent_error(text: str) -> None:
    with pytest.raises(PermanentError):
        internal_requests.decode_provision(text.encode())
