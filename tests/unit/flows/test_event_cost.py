"""Calls of the store per event: one read and one commit, and one more where the rules need more."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.counting import Counts, counting_store
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.decisions import Reason, Rule
from trainmaster.core.model.replica import replica_key
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.flows import maintenance, replica_exit, vm_ready
from trainmaster.messaging import agent_messages, google_events
from trainmaster.ports import LOST_PEERS_PAGE, Loaded


@pytest.fixture
def world() -> World:
    """A job whose VMs were requested."""
    world = World()
    world.submit()
    world.deliver()
    return world


def calls_of(world: World, kind: str, loaded: Loaded | None = None, **more: object) -> dict[str, int]:
    """Handle an event of worker 0 and return the store's calls. `loaded`: what authentication has read."""
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    data = json.dumps({**world.message_fields(WORKER_0), **more}).encode()
    if kind == "vm-ready":
        vm_ready.handle(agent_messages.decode_vm_ready(data), deps, loaded)
    else:
        replica_exit.handle(agent_messages.decode_replica_exit(data), deps, loaded)
    return dict(counts.calls)


def test_ready_report_of_a_preparing_job_costs_one_read_one_commit_and_one_count(world: World) -> None:
    assert calls_of(world, "vm-ready") == {"load": 1, "commit": 1, "count_ready": 1}


def test_ready_report_of_a_running_job_costs_one_read_and_one_commit(world: World) -> None:
    world.report_all_ready()
    world.exit_program(WORKER_0)
    world.deliver()
    assert calls_of(world, "vm-ready") == {"load": 1, "commit": 1}


def test_exit_zero_of_a_running_job_costs_one_read_and_one_commit(world: World) -> None:
    world.report_all_ready()
    assert calls_of(world, "replica-exit", cause="process", exit_status=0) == {"load": 1, "commit": 1}


def test_repeated_last_ready_report_starts_a_job_whose_first_report_was_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first handling died between the commit of the report and the commit of the start."""
    world.send("vm-ready", CHIEF)
    world.send("vm-ready", WORKER_1)
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "count_ready", lambda job_id, attempt: 0)
        world.send("vm-ready", WORKER_0)
    assert world.state == "PREPARING"
    world.send("vm-ready", WORKER_0)
    assert world.state == "RUNNING"


def test_event_reads_nothing_again_that_authentication_has_read(world: World) -> None:
    world.report_all_ready()
    loaded = world.store.load(world.job_id, replica_key(1, WORKER_0))
    assert calls_of(world, "replica-exit", loaded, cause="process", exit_status=0) == {"commit": 1}


def lose_vm(world: World, replica_id: ReplicaId) -> None:
    loss = json.dumps({**world.message_fields(replica_id), "cause": "preemption"}).encode()
    maintenance.handle(google_events.decode_maintenance(loss), world.deps)


def reads_of_failed_exit(world: World, replica_id: ReplicaId) -> Counts:
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    data = json.dumps({**world.message_fields(replica_id), "cause": "process", "exit_status": 1}).encode()
    replica_exit.handle(agent_messages.decode_replica_exit(data), deps)
    return counts


def a_running_gang(size: int) -> World:
    world = World()
    world.submit(a_spec(workerCount=size))
    world.deliver()
    world.report_all_ready()
    return world


def test_exit_that_a_lost_vm_explains_reads_no_failed_peers() -> None:
    """Exits that were judged before the loss are charged until the next round, and each later exit would read them."""
    world = a_running_gang(20)
    for index in range(2, 12):
        world.exit_program(ReplicaId(TaskType.WORKER, index))
    lose_vm(world, WORKER_0)
    counts = reads_of_failed_exit(world, WORKER_1)
    assert world.ledger[-1].decision.reason is Reason.PEER_DOWN
    assert "worker 0 was lost" in world.ledger[-1].decision.text
    assert counts.reads_by_call == {"load": 2, "lost_peers": 1}


def test_exit_reads_only_some_of_many_lost_peers() -> None:
    world = a_running_gang(40)
    for index in range(30):
        lose_vm(world, ReplicaId(TaskType.WORKER, index))
    counts = reads_of_failed_exit(world, ReplicaId(TaskType.WORKER, 35))
    assert world.ledger[-1].decision.rule is Rule.COLLATERAL
    assert counts.reads_by_call["lost_peers"] == LOST_PEERS_PAGE


def test_lost_vm_reads_no_peers() -> None:
    """Otherwise N VMs that are lost together would cost their number squared."""
    world = a_running_gang(20)
    for index in range(10):
        lose_vm(world, ReplicaId(TaskType.WORKER, index))
    counts = Counts()
    loss = json.dumps({**world.message_fields(ReplicaId(TaskType.WORKER, 15)), "cause": "preemption"}).encode()
    maintenance.handle(
        google_events.decode_maintenance(loss), replace(world.deps, store=counting_store(world.store, counts))
    )
    assert counts.calls == {"load": 1, "commit": 1}
    assert counts.reads == 2


def test_failed_exit_reads_peers_of_both_kinds_before_it_is_charged(world: World) -> None:
    world.report_all_ready()
    counts = reads_of_failed_exit(world, WORKER_0)
    assert world.ledger[-1].decision.rule is Rule.RESTART
    assert counts.calls == {"load": 1, "lost_peers": 1, "commit": 1}
    assert counts.reads_by_call == {"load": 2, "lost_peers": 2}


def test_event_is_judged_by_the_present_state_if_another_event_came_after_authentication(world: World) -> None:
    world.report_all_ready()
    read_before = world.store.load(world.job_id, replica_key(1, WORKER_0))
    loss = json.dumps({**world.message_fields(WORKER_0), "cause": "preemption"}).encode()
    world.exit_program(WORKER_0)
    maintenance.handle(google_events.decode_maintenance(loss), world.deps, read_before)
    lost = world.ledger[-1]
    assert lost.decision.rule is Rule.VM_LOST
    assert lost.before.restarts_used == 1, "the exit that was committed in between is part of the state"
    assert world.replica(WORKER_0).incarnation == 3
    world.check()


def test_reports_of_a_job_that_starts_without_its_evaluator_read_no_peers_before_enough_are_ready() -> None:
    """Its required replicas are all others: reading them with every report would cost their number squared."""
    world = World()
    spec = a_spec(workerCount=20, evaluatorCount=1, evaluatorType="n1-standard-4")
    world.submit({**spec, "trainmaster": {"gang": False}})
    world.deliver()
    counts = Counts()
    world.store = counting_store(world.store, counts)  # type: ignore[assignment]
    for replica_id in (CHIEF, *(ReplicaId(TaskType.WORKER, index) for index in range(20))):
        assert world.state == "PREPARING"
        world.send("vm-ready", replica_id)
    assert world.state == "RUNNING"
    loads = counts.calls["load"] - 22  # those of `world.state`
    assert loads <= 21 + 21 + 1, "one per report, and each required replica once"
