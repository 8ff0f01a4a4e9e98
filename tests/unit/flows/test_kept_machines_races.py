"""Kept machines when things happen late, twice, at the same time, or from before a restore.

Jobs, machine sets and their holders are explained in `tests.support.kept_jobs`.

The tenure of kept machines grows each time another job gets them. A directive is an order to the
agent of a VM: to run the program, to hold, or to stop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.kept_jobs import (
    KEPT_S,
    OWNER,
    a_keeping_job,
    a_keeping_spec,
    beat_all,
    deliver,
    machine_set,
    other,
    run_job,
    succeed,
)
from tests.support.world import World, before_next_commit
from trainmaster.core.model.machine_set import ReleaseCause, SetState
from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.user_requests import cancel_job
from trainmaster_local.memory.store import MemoryStore


@pytest.fixture
def first() -> World:
    """Return a job that has ended, and whose machines are kept."""
    return a_keeping_job()


def test_two_jobs_take_at_once_one_wins_and_the_other_starts_cold(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, third = other(first, "second"), other(first, "third")
    third.submit(a_keeping_spec(), source=OWNER)
    third.bus.take()  # its request is delivered in the middle of the second job's commit
    second.submit(a_keeping_spec(), source=OWNER)

    def take_by_third() -> None:
        third.provision()
        third.taken_set_id = third.job.set_id

    before_next_commit(second, monkeypatch, take_by_third)
    deliver(second)
    assert third.job.set_id == "first"
    assert second.job.set_id == "second"
    assert machine_set(third).holder == "third"
    assert second.vms
    deliver(second)
    assert len(third.vms) == len(third.job.plan.replica_ids)


def test_take_and_deadline_at_once_one_wins(first: World, monkeypatch: pytest.MonkeyPatch) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)

    def release() -> None:
        kept_machines.release(machine_set(first), ReleaseCause.USER, first.deps)

    before_next_commit(second, monkeypatch, release)
    deliver(second)
    assert second.job.set_id == "second"
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms


def test_late_delivery_of_the_old_holder_changes_nothing(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    before = second.vms
    first.provision()
    first.wait(10 * KEPT_S)  # long after the deadline of the first holder
    first.provision()
    assert {vm.instance_id for vm in second.vms} == {vm.instance_id for vm in before}
    assert [vm.directive for vm in second.vms] == [vm.directive for vm in before]


def test_delivery_that_read_the_old_holder_running_leaves_the_next_holder_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The listing of a late delivery is newer than the state that it has read."""
    world = World("first")
    run_job(world)
    list_vms = world.fleet.list_vms
    second = other(world, "second")
    ids = {vm.instance_id for vm in world.vms}

    def take_before_listing(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(world.fleet, "list_vms", list_vms)
        succeed(world)
        beat_all(world)
        run_job(second)
        return list_vms(*arguments, **options)

    monkeypatch.setattr(world.fleet, "list_vms", take_before_listing)
    world.provision()
    assert second.job.set_id == "first"
    assert {vm.instance_id for vm in second.vms} == ids
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {2}


def test_function_dies_after_the_end_the_sweep_finds_the_holder(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    succeed(second)
    beat_all(second)
    second.wait(KEPT_S + 1)
    while second.bus.take():
        pass
    second.sweep()  # the VMs have the label of the first job, which holds them no longer
    deliver(second)
    assert machine_set(second).state is SetState.RELEASED
    assert not second.vms


def test_vm_that_dies_at_the_take_is_lost_free_of_charge(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    commit = second.store.commit
    dying = first.vms[0]

    def commit_then_vanish(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        monkeypatch.setattr(second.store, "commit", commit)
        second.fleet.vanish(dying.name)

    monkeypatch.setattr(second.store, "commit", commit_then_vanish)
    deliver(second)
    replica = second.replica(dying.replica_id)
    assert second.job.set_id == "first"
    assert (replica.vm_generation, replica.restarts_used) == (dying.vm_generation + 1, 0)
    assert second.job.budgets.reruns_used == 0
    assert second.vm(dying.replica_id).instance_id != dying.instance_id


def test_restored_database_deletes_the_later_vms(first: World) -> None:
    backup = first.store.copy()
    second = other(first, "second")
    run_job(second)
    restored = replace(first, store=backup)
    restored.provision()
    assert not restored.vms
    restored.deliver()
    restored.provision()
    assert machine_set(restored).state is SetState.RELEASED


def test_vms_from_before_a_restore_are_orphans_if_their_job_took_others_since() -> None:
    """The job was submitted and ran, and again after the restore, when machines were kept."""
    lost = World("second")
    run_job(lost)
    first = replace(lost, job_id="first", store=MemoryStore())
    run_job(first)
    succeed(first)
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "first"
    left = {vm.instance_id for vm in lost.vms}
    for _ in range(3):
        second.wait(600)
        beat_all(second)
        second.sweep()
        deliver(second)
    assert second.state == "RUNNING"
    assert left
    assert not lost.vms
    assert second.vms


def test_vm_of_a_later_holder_is_not_taken(first: World) -> None:
    """The database was restored: a later holder, which is not stored, may use them."""
    backup = first.store.copy()
    second = other(first, "second")
    run_job(second)
    beat_all(second)
    third = other(replace(first, store=backup), "third")
    run_job(third)
    assert third.job.set_id == "third"


def test_stockout_of_a_late_delivery_does_not_release_the_machines_of_its_own_job(
    first: World,
) -> None:
    vm = first.vms[0]
    (group,) = (
        group for group in first.job.plan.groups if group.task_type is vm.replica_id.task_type
    )
    hold = Directive(attempt=1, incarnation=1, action=DirectiveAction.HOLD)
    create = Create(
        group,
        vm.zone,
        vm_generation=1,
        directive=hold,
        replica_ids=(vm.replica_id,),
        names=(vm.name,),
        round=0,
    )
    kept_machines.release_for_capacity(create, first.job, first.deps, is_quota=False)
    assert machine_set(first).is_kept


def test_release_that_comes_early_is_not_recorded(first: World) -> None:
    """The clock of a function may be ahead."""
    kept_machines.release(machine_set(first), ReleaseCause.DEADLINE, first.deps)
    assert machine_set(first).is_kept


def test_function_dies_after_the_take_the_sweep_hands_the_vms_over(first: World) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    kept_machines.start(second.job, second.fleet_deps, second.deps)
    assert second.job.set_id == "first"
    while second.bus.take():
        pass
    second.taken_set_id = "first"
    ids = {vm.instance_id for vm in second.vms}
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {1}
    second.sweep()
    second.deliver()
    second.report_all_ready()
    assert {vm.instance_id for vm in second.vms} == ids
    assert second.state == "RUNNING"


def test_job_that_ends_before_its_take_is_written_keeps_the_idle_vms(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that saw the directive of another tenure with the old configuration would start
    again and again.
    """
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    monkeypatch.setattr(second.fleet, "hand_over", lambda *_: False)
    second.provision()
    cancel_job("second", "anna", second.deps)
    deliver(second)
    assert machine_set(second).is_kept
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {1}
    monkeypatch.undo()
    third = other(first, "third")
    beat_all(second)
    run_job(third)
    assert (third.job.set_id, third.job.tenure) == ("first", 3)
    assert third.state == "RUNNING"


def test_function_that_is_suspended_before_it_reads_decides_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it decided at the time of its start, the machines would be kept from a time at which
    another job may have had them.
    """
    world = World("first")
    run_job(world)
    load = world.store.load

    def load_later(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(world.store, "load", load)
        world.wait(400)
        return load(*arguments, **options)

    monkeypatch.setattr(world.store, "load", load_later)
    cancel_job("first", "anna", world.deps)
    assert world.state == "CANCELLED"
    assert machine_set(world).ended_at == world.now
