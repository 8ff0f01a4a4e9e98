"""Reactivation of completed replicas when the primary restarts, through the flows."""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World, before_next_commit
from trainmaster.core.actions import ReactivateReplica
from trainmaster.core.events import CompletionOutdated
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.reporting.explain import next_steps
from trainmaster.core.transitions.change import Change
from trainmaster.errors import TemporaryError
from trainmaster.ports import AdmissionToken, Loaded


@pytest.fixture
def exporting() -> World:
    """Both workers have completed, and the chief still runs: it exports the model."""
    return exporting_world()


def exporting_world(**extension: object) -> World:
    world = World()
    world.submit({**a_spec(), "trainmaster": extension})
    world.deliver()
    world.report_all_ready()
    for replica_id in (WORKER_0, WORKER_1):
        world.exit_program(replica_id, 0)
    world.deliver()
    assert [vm.replica_id for vm in world.vms] == [CHIEF]
    return world


def reactivations(world: World) -> list[LedgerEntry]:
    return [entry for entry in world.ledger if isinstance(entry.decision.action, ReactivateReplica)]


@pytest.mark.parametrize("loss", ["fails", "is preempted"])
def test_completed_workers_run_again_on_new_vms_when_the_primary_restarts(exporting: World, loss: str) -> None:
    world = exporting
    if loss == "fails":
        world.kill(CHIEF)
    else:
        world.send("maintenance", CHIEF, cause="preemption")
    world.deliver()
    assert {(vm.replica_id, vm.vm_generation) for vm in world.vms if vm.replica_id != CHIEF} == {
        (WORKER_0, 2),
        (WORKER_1, 2),
    }
    assert "worker 0 waits for its VM and its setup." in next_steps(world.job, world.replicas)
    world.report_all_ready()
    assert [replica.restarts_used for replica in world.replicas] == [loss == "fails", 0, 0]
    for replica_id in (WORKER_0, WORKER_1, CHIEF):
        world.exit_program(replica_id, 0)
    world.deliver()
    assert (world.state, world.job.attempt, len(reactivations(world))) == ("SUCCEEDED", 1, 2)
    assert not world.vms
    world.check()


def test_each_primary_restart_reactivates_the_replicas_completed_by_then(exporting: World) -> None:
    world = exporting
    for restart in range(1, 4):
        world.kill(CHIEF)
        world.deliver()
        world.report_all_ready()
        world.exit_program(WORKER_0, 0)
        world.deliver()
        world.check()
        assert world.replica(WORKER_0).incarnation == 1 + restart
    assert world.replica(WORKER_1).incarnation == 2, "it had not completed again"
    assert world.replica(CHIEF).restarts_used == 3


def test_reactivation_interrupted_halfway_is_completed_by_the_next_sweep(
    exporting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = exporting
    commit = world.store.commit

    def commit_once(
        loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        if isinstance(entry.event, CompletionOutdated) and reactivations(world):
            raise TemporaryError("the store is not available")
        commit(loaded, entry, change, admission_token)

    world.kill(CHIEF)
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "commit", commit_once)
        with pytest.raises(TemporaryError):
            world.provision()
    assert len(reactivations(world)) == 1
    world.sweep()
    world.deliver()
    assert len(reactivations(world)) == 2
    assert len(world.vms) == 3
    world.check()


def test_concurrent_provisioning_reactivates_each_replica_once(
    exporting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another instance of provision has read the same state and commits first."""
    world = exporting
    world.kill(CHIEF)
    before_next_commit(world, monkeypatch, world.provision)
    world.provision()
    assert [replica.vm_generation for replica in world.replicas] == [1, 2, 2]
    assert len(reactivations(world)) == 2
    world.check()


def test_exit_0_reported_after_the_primarys_failure_is_reactivated() -> None:
    world = World()
    world.start_running()
    world.kill(CHIEF)
    for replica_id in (WORKER_0, WORKER_1):
        world.exit_program(replica_id, 0)
    world.send("vm-ready", CHIEF, **{**world.message_fields(CHIEF), "incarnation": 2})
    world.deliver()
    assert {vm.replica_id: vm.vm_generation for vm in world.vms} == {CHIEF: 1, WORKER_0: 2, WORKER_1: 2}
    world.check()


def test_rerun_needs_no_reactivation(exporting: World) -> None:
    world = exporting
    world.kill(CHIEF, 11)
    world.deliver()
    assert {vm.replica_id: vm.vm_generation for vm in world.vms} == {CHIEF: 1, WORKER_0: 2, WORKER_1: 2}
    assert (world.job.attempt, reactivations(world)) == (2, [])
    world.check()


def test_job_that_reruns_on_every_restart_needs_no_reactivation() -> None:
    world = exporting_world(restartJobOnWorkerRestart=True)
    world.kill(CHIEF)
    world.deliver()
    assert (world.job.attempt, reactivations(world), len(world.vms)) == (2, [], 3)


def test_independent_replicas_are_never_reactivated() -> None:
    world = exporting_world(independentReplicas=True)
    world.kill(CHIEF)
    world.deliver()
    world.sweep()
    world.deliver()
    assert [vm.replica_id for vm in world.vms] == [CHIEF]
    assert {world.replica(replica_id).state for replica_id in (WORKER_0, WORKER_1)} == {ReplicaState.COMPLETED}
    world.check()


def test_vm_lost_during_reactivation_is_replaced_again(exporting: World) -> None:
    world = exporting
    world.kill(CHIEF)
    world.deliver()
    world.send("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    assert (world.replica(WORKER_0).vm_generation, world.replica(WORKER_0).state) == (3, ReplicaState.REPLACING)
    world.report_all_ready()
    world.check()
