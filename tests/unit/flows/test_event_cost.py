"""Calls of the store per event: one read and one commit, and one more where the rules need more.

A round is one common start of all members of a job. A gang is the members of a job that start
together.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.counting import Counts, counting_store
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica import replica_key
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.flows import maintenance, replica_exit, vm_ready
from trainmaster.messaging import agent_messages, google_events
from trainmaster.ports import Loaded


@pytest.fixture
def world() -> World:
    """A job whose VMs were requested."""
    world = World()
    world.submit()
    world.deliver()
    return world


def calls_of(
    world: World, kind: str, loaded: Loaded | None = None, **more: object
) -> dict[str, int]:
    """Handle an event of worker 0 and return the store's calls.

    `loaded`: what authentication has read.
    """
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    data = json.dumps({**world.message_fields(WORKER_0), **more}).encode()
    if kind == "vm-ready":
        vm_ready.handle(agent_messages.decode_vm_ready(data), deps, loaded)
    else:
        replica_exit.handle(agent_messages.decode_replica_exit(data), deps, loaded)
    return dict(counts.calls)


@pytest.mark.parametrize(
    ("is_independent", "count"), [(False, "count_ready_for"), (True, "count_ready")]
)
def test_ready_report_of_a_preparing_job_costs_one_read_one_commit_and_one_count(
    count: str, *, is_independent: bool
) -> None:
    world = World(is_independent=is_independent)
    world.submit()
    world.deliver()
    assert calls_of(world, "vm-ready") == {"load": 1, "commit": 1, count: 1}


def test_ready_report_for_a_held_round_costs_one_read_one_commit_and_one_count(
    world: World,
) -> None:
    world.report_all_ready()
    world.silent.add(WORKER_0)
    world.exit_program(WORKER_0)
    world.deliver()
    assert calls_of(world, "vm-ready") == {"load": 1, "commit": 1, "count_ready_for": 1}


def test_exit_zero_of_a_running_job_costs_one_read_and_one_commit(world: World) -> None:
    world.report_all_ready()
    assert calls_of(world, "replica-exit", cause="process", exit_status=0) == {
        "load": 1,
        "commit": 1,
    }


def test_repeated_last_ready_report_starts_a_job_whose_first_report_was_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first handling died between the commit of the report and the commit of the start."""
    world = World(is_independent=True)
    world.submit()
    world.deliver()
    world.send("vm-ready", CHIEF)
    world.send("vm-ready", WORKER_1)
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "count_ready", lambda *_: 0)
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
    data = json.dumps(
        {**world.message_fields(replica_id), "cause": "process", "exit_status": 1}
    ).encode()
    replica_exit.handle(agent_messages.decode_replica_exit(data), deps)
    return counts


def a_running_gang(size: int) -> World:
    world = World()
    world.submit(a_spec(workerCount=size))
    world.deliver()
    world.report_all_ready()
    return world


def test_exit_after_the_end_of_its_round_costs_two_reads_and_no_write() -> None:
    """All members of a gang may exit at once.

    Each reports its end again when it is ready for the next round.
    """
    world = a_running_gang(20)
    lose_vm(world, WORKER_0)
    counts = reads_of_failed_exit(world, WORKER_1)
    assert counts.calls == {"load": 1}
    assert counts.reads_by_call == {"load": 2}


def test_lost_vm_reads_no_peers() -> None:
    """Otherwise N VMs that are lost together would cost their number squared."""
    world = a_running_gang(20)
    for index in range(10):
        lose_vm(world, ReplicaId(TaskType.WORKER, index))
    counts = Counts()
    loss = json.dumps(
        {**world.message_fields(ReplicaId(TaskType.WORKER, 15)), "cause": "preemption"}
    ).encode()
    maintenance.handle(
        google_events.decode_maintenance(loss),
        replace(world.deps, store=counting_store(world.store, counts)),
    )
    assert counts.calls == {"load": 1, "commit": 1}
    assert counts.reads == 2


def test_failed_exit_that_ends_a_round_costs_two_reads_and_one_commit(world: World) -> None:
    world.report_all_ready()
    counts = reads_of_failed_exit(world, WORKER_0)
    assert world.ledger[-1].decision.reason is Reason.MEMBER_FAILED
    assert counts.calls == {"load": 1, "commit": 1}


def test_event_is_judged_by_the_present_state_if_another_event_came_after_authentication(
    world: World,
) -> None:
    world.report_all_ready()
    read_before = world.store.load(world.job_id, replica_key(1, WORKER_0))
    loss = json.dumps({**world.message_fields(WORKER_0), "cause": "preemption"}).encode()
    world.exit_program(WORKER_0)
    maintenance.handle(google_events.decode_maintenance(loss), world.deps, read_before)
    assert world.ledger[-1].decision.action.kind == "replace_vm", "the round had ended in between"
    world.check()


def test_one_failure_costs_two_documents_for_each_member_and_few_more() -> None:
    """Per member: two reads of its exit, two of its report, one with each of three passes; two
    writes of its report.
    """
    world = a_running_gang(20)
    world.deliver()
    members = [replica.replica_id for replica in world.replicas]
    messages = [
        json.dumps({**world.message_fields(member), "cause": "process", "exit_status": 1}).encode()
        for member in members
    ]
    counts = Counts()
    store = world.store
    world.store = counting_store(store, counts)  # type: ignore[assignment]
    for message in messages:
        replica_exit.handle(agent_messages.decode_replica_exit(message), world.deps)
    world.deliver()
    world.store = store
    assert (world.job.round.number, world.job.round.is_held) == (2, False)
    assert counts.calls["commit"] == 1 + len(members) + 1, (
        "the round's end, each report, and the verdict"
    )


def test_reports_of_a_job_without_its_workers_read_no_peers_before_enough_are_ready() -> None:
    """Its required replicas are all others: reading them with every report would cost their number
    squared.
    """
    world = World()
    spec = a_spec(workerCount=1, parameterServerCount=20, parameterServerType="n1-standard-4")
    world.submit({**spec, "trainmaster": {"gang": False}})
    world.deliver()
    counts = Counts()
    world.store = counting_store(world.store, counts)  # type: ignore[assignment]
    for replica_id in (CHIEF, *(ReplicaId(TaskType.PS, index) for index in range(20))):
        assert world.state == "PREPARING"
        world.send("vm-ready", replica_id)
    assert world.state == "RUNNING"
    required = 1 + 20  # the chief and the parameter servers
    loads_of_this_test = required + 1  # each look at `world.state`
    assert counts.calls["load"] - loads_of_this_test <= required + required + 1, (
        "one per report, and each required replica once"
    )
