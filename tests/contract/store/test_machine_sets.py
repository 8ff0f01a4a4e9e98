"""Machine sets: who holds one is decided by one commit.

A machine set has the VMs that a job keeps after its end (`keepMachines`), so that a next job of the
same user can take them. Its tenure counts the jobs that have held it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.store.building import must
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.events import ProvisioningStarted
from trainmaster.core.model.machine_set import SetState, Taken
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import ConflictError
from trainmaster.flows.commit.record import record
from trainmaster.flows.user_requests import release_machines
from trainmaster.ports import LoadedSet, Store, VmOwner

OWNER = "cli:1/anna"


@pytest.fixture
def first(store: Store) -> World:
    """A job that has ended, and whose machines are kept."""
    any_store: Any = store
    world = World("first", store=any_store)
    submit(world)
    world.deliver()
    world.report_all_ready()
    world.exit_program(world.job.plan.primary, 0)
    world.deliver()
    return world


def submit(world: World) -> None:
    world.submit({**a_spec(), "trainmaster": {"keepMachines": "900s"}}, source=OWNER)


def kept(world: World) -> LoadedSet:
    """Return the only set that no job holds."""
    (loaded,) = world.store.kept_machines()
    return loaded


def take(world: World, loaded: LoadedSet) -> None:
    """Let the queued job of this world start on the machines."""
    taken = Taken(loaded.machine_set, candidate=0, vms=loaded.machine_set.vms)
    event = ProvisioningStarted(world.job_id, world.now, taken=taken)
    record(event, world.deps, taken=loaded)


def a_second(first: World, job_id: str = "second") -> World:
    """Queue another job in the same project."""
    second = replace(first, job_id=job_id, ends={}, silent=set())
    submit(second)
    return second


def test_set_is_read_back_as_it_was_kept(first: World) -> None:
    machines = must(first.store.load_attempt("first")).state.machine_set
    assert machines == kept(first).machine_set
    assert machines is not None
    assert {vm.instance_id for vm in machines.vms} == {vm.instance_id for vm in first.vms}


def test_take_writes_set_job_and_replicas_together(first: World) -> None:
    second = a_second(first)
    loaded = kept(first)
    take(second, loaded)
    state = must(first.store.load_attempt("second")).state
    machines = state.machine_set
    assert machines is not None
    assert (machines.holder, machines.state, machines.tenure) == ("second", SetState.IN_USE, 2)
    assert (state.job.set_id, state.job.tenure) == ("first", 2)
    ids = {replica.replica_id: replica.instance_id for replica in state.replicas}
    assert ids == {vm.replica_id: vm.instance_id for vm in loaded.machine_set.vms}
    assert first.store.kept_machines() == ()
    owner = must(first.store.owner_of_vm(first.vms[0].name))
    assert (owner.job_id, owner.set_id) == ("second", "first")


def test_job_that_took_machines_owns_no_vm_of_its_own_name(first: World) -> None:
    second = a_second(first)
    own_name = vm_name("second", second.job.plan.primary)
    assert must(first.store.owner_of_vm(own_name)).job_id == "second", "it may create it"
    take(second, kept(first))
    assert first.store.owner_of_vm(own_name) is None


def test_set_that_was_released_meanwhile_is_not_taken(first: World) -> None:
    second = a_second(first)
    loaded = kept(first)
    assert release_machines("first", first.deps, by="anna")
    with pytest.raises(ConflictError):
        take(second, loaded)
    assert second.job.set_id == "second"
    assert len(second.ledger) == 1


def test_set_that_was_taken_meanwhile_is_neither_taken_nor_released(first: World) -> None:
    second, third = a_second(first), a_second(first, "third")
    loaded = kept(first)
    take(second, loaded)
    with pytest.raises(ConflictError):
        take(third, loaded)
    assert not release_machines("first", first.deps, by="anna")
    assert must(must(first.store.load("second")).state.machine_set).holder == "second"


def test_owner_of_a_vm_says_whether_it_is_kept(first: World) -> None:
    name = first.vms[0].name

    def owner() -> VmOwner | None:
        return first.store.owner_of_vm(name)

    assert owner() == VmOwner("first", "first", is_kept=True)
    second = a_second(first)
    take(second, kept(first))
    assert owner() == VmOwner("second", "first")
    third = World("third", store=first.store)
    submit(third)
    third.deliver()
    assert first.store.owner_of_vm(third.vms[0].name) == VmOwner("third", "third")
