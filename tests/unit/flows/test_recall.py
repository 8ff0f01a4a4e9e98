"""A primary that begins another incarnation after its peers were done: whole courses, told event by event."""

from __future__ import annotations

import pytest

from shared.core.decisions import ReactivateReplica
from shared.core.events import CompletionOutdated
from shared.core.evolve import Change
from shared.core.ledger import LedgerEntry
from shared.core.model.replica import ReplicaState
from shared.core.reporting.explain import what_comes_next
from shared.errors import TemporaryError
from shared.ports import AdmissionToken, Loaded
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World


@pytest.fixture
def exporting() -> World:
    """Both workers are done, and the chief exports what was trained."""
    return exporting_world()


def exporting_world(**extension: object) -> World:
    world = World()
    world.submit({**a_spec(), "trainmaster": extension})
    world.deliver()
    world.everyone_ready()
    for replica_id in (WORKER_0, WORKER_1):
        world.fail(replica_id, 0)
    world.deliver()
    assert [vm.replica_id for vm in world.vms] == [CHIEF]
    return world


def called_back(world: World) -> list[LedgerEntry]:
    return [entry for entry in world.ledger if isinstance(entry.decision, ReactivateReplica)]


@pytest.mark.parametrize("how", ["fails", "is preempted"])
def test_its_peers_come_back_on_other_vms_and_end_with_it(exporting: World, how: str) -> None:
    world = exporting
    if how == "fails":
        world.kill(CHIEF)
    else:
        world.tell("maintenance", CHIEF, cause="preemption")
    world.deliver()
    assert {(vm.replica_id, vm.vm_generation) for vm in world.vms if vm.replica_id != CHIEF} == {
        (WORKER_0, 2),
        (WORKER_1, 2),
    }
    assert "worker 0 waits for its VM and its set-up." in what_comes_next(world.job, world.replicas)
    world.everyone_ready()
    assert [replica.restarts_used for replica in world.replicas] == [how == "fails", 0, 0]
    for replica_id in (WORKER_0, WORKER_1, CHIEF):
        world.fail(replica_id, 0)
    world.deliver()
    assert (world.state, world.job.attempt, len(called_back(world))) == ("SUCCEEDED", 1, 2)
    assert not world.vms
    world.check()


def test_each_further_life_of_the_primary_calls_those_who_are_done_by_then(exporting: World) -> None:
    world = exporting
    for nth in range(1, 4):
        world.kill(CHIEF)
        world.deliver()
        world.everyone_ready()
        world.fail(WORKER_0, 0)
        world.deliver()
        world.check()
        assert world.replica(WORKER_0).incarnation == 1 + nth
    assert world.replica(WORKER_1).incarnation == 2, "it was not done, and goes on"
    assert world.replica(CHIEF).restarts_used == 3


def test_half_called_back_is_made_whole_by_whoever_comes_next(
    exporting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = exporting
    commit = world.store.commit

    def once(
        loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        if isinstance(entry.event, CompletionOutdated) and called_back(world):
            raise TemporaryError("the store is out of reach")
        commit(loaded, entry, change, admission_token)

    world.kill(CHIEF)
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "commit", once)
        with pytest.raises(TemporaryError):
            world.provision()
    assert len(called_back(world)) == 1
    world.sweep()
    world.deliver()
    assert len(called_back(world)) == 2
    assert len(world.vms) == 3
    world.check()


def test_told_twice_it_is_called_once(exporting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another instance of provision has read the same state, and is faster."""
    world = exporting
    commit = world.store.commit

    def second(
        loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        monkeypatch.setattr(world.store, "commit", commit)
        world.provision()
        commit(loaded, entry, change, admission_token)

    world.kill(CHIEF)
    monkeypatch.setattr(world.store, "commit", second)
    world.provision()
    assert [replica.vm_generation for replica in world.replicas] == [1, 2, 2]
    assert len(called_back(world)) == 2
    world.check()


def test_an_exit_0_that_comes_in_after_the_primarys_failure_is_called_back_too() -> None:
    world = World()
    world.running()
    world.kill(CHIEF)
    for replica_id in (WORKER_0, WORKER_1):
        world.fail(replica_id, 0)
    world.tell("vm-ready", CHIEF, **{**world.subject(CHIEF), "incarnation": 2})
    world.deliver()
    assert {vm.replica_id: vm.vm_generation for vm in world.vms} == {CHIEF: 1, WORKER_0: 2, WORKER_1: 2}
    world.check()


def test_a_rerun_brings_all_back_and_nobody_is_called_besides(exporting: World) -> None:
    world = exporting
    world.kill(CHIEF, 11)
    world.deliver()
    assert {vm.replica_id: vm.vm_generation for vm in world.vms} == {CHIEF: 1, WORKER_0: 2, WORKER_1: 2}
    assert (world.job.attempt, called_back(world)) == (2, [])
    world.check()


def test_where_one_restart_reruns_the_job_nobody_is_called_back() -> None:
    world = exporting_world(restartJobOnWorkerRestart=True)
    world.kill(CHIEF)
    world.deliver()
    assert (world.job.attempt, called_back(world), len(world.vms)) == (2, [], 3)


def test_independent_replicas_are_done_once_and_for_all() -> None:
    world = exporting_world(independentReplicas=True)
    world.kill(CHIEF)
    world.deliver()
    world.sweep()
    world.deliver()
    assert [vm.replica_id for vm in world.vms] == [CHIEF]
    assert {world.replica(replica_id).state for replica_id in (WORKER_0, WORKER_1)} == {ReplicaState.COMPLETED}
    world.check()


def test_a_vm_that_is_lost_while_it_is_called_back_is_replaced_once_more(exporting: World) -> None:
    world = exporting
    world.kill(CHIEF)
    world.deliver()
    world.tell("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    assert (world.replica(WORKER_0).vm_generation, world.replica(WORKER_0).state) == (3, ReplicaState.REPLACING)
    world.everyone_ready()
    world.check()
