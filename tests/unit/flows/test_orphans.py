"""What no event of an agent reports: VMs without a living owner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from shared.core.model.job import JobState
from shared.core.model.vm import LabelledVm, Vm, VmStatus
from shared.core.reconcile.desired import desired_vms
from shared.core.reconcile.plan import vm_steps
from shared.core.reconcile.steps import Delete
from shared.errors import PermanentError, TemporaryError
from shared.flows import orphans
from shared.memory.fleet import MemoryFleet
from shared.messaging import internal_requests
from shared.ports import Orphan
from tests.support.jobs import CHIEF, WORKER_0
from tests.support.world import World, in_turn
from tests.unit.flows.sweeping import FORGOTTEN, SWEEP_S, abandoned, forget_inserts, left, make_vms, must, search, sweep


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
    assert running.bus.drain() == [], "what incarnations is its own provision's business"
    running.check()


def test_vms_that_came_after_their_job_had_ended_and_was_cleaned_up_are_deleted_at_once(running: World) -> None:
    world = running
    world.fail(CHIEF, 0)
    world.deliver()
    assert (world.vms, world.store.pending_keys("digits_1")) == ((), ())
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
    wants = desired_vms(world.job, world.replicas)
    for order in ([own, zombie], [zombie, own]):
        (step,) = vm_steps(world.job, wants, (*peers, *order))
        assert step == Delete(zombie)
    moved = replace(own, vm_generation=2, zone="us-central1-b", instance_id="9")
    (step,) = vm_steps(world.job, wants, (*peers, moved, own))
    assert step == Delete(own), "a machine number lower than another's of that name is a zombie"


def test_a_provision_message_is_about_a_job_or_about_orphans() -> None:
    assert (
        internal_requests.decode_provision(internal_requests.encode_orphan_search()) == internal_requests.OrphanSearch()
    )
    assert internal_requests.decode_provision(internal_requests.encode_provision("digits_1")) == "digits_1"


@pytest.mark.parametrize("text", ['{"version": 2, "orphans": true}', '{"version": 1, "orphans": false}', "[]", "{"])
def test_a_provision_message_that_is_about_neither_is_kept_for_people(text: str) -> None:
    with pytest.raises(PermanentError):
        internal_requests.decode_provision(text.encode())
