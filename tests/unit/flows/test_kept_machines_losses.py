"""Losses and faults of machines just before or after the end of the job that keeps its machines:
the faulty machine is not kept, the others are.

Jobs, machine sets and their holders are explained in `tests.support.kept_jobs`.

A round is one common start of all members of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0
from tests.support.kept_jobs import (
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
from trainmaster.core.actions import ReplaceVm, SucceedJob
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.machine_set import SetState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Vm
from trainmaster.core.reporting.phases import kept_spans
from trainmaster.core.transitions.change import Change, with_next_version
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit import record
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.user_requests import release_machines
from trainmaster.ports import Bus


@pytest.fixture
def first() -> World:
    """Return a job that has ended, and whose machines are kept."""
    return a_keeping_job()


SERVERS = {"parameterServerType": "n1-standard-4", "parameterServerCount": 1}
"""Fields that add a parameter server. With one, the rules judge each replica by itself; without,
the replicas are a gang: when one ends, all stop, which ends their common round.
"""


def lose(world: World) -> None:
    """Report that the first worker's VM goes into host maintenance, which counts as its loss.

    The VM still runs, for up to an hour.
    """
    world.send("maintenance", WORKER_0, cause="maintenance")


LOSSES = pytest.mark.parametrize("fields", [SERVERS, {}], ids=["judged alone", "member of a round"])


def with_training_input(spec: dict[str, object], fields: Mapping[str, object]) -> dict[str, object]:
    """Return the job file with these fields in its training input."""
    training_input: Any = spec["trainingInput"]
    return {**spec, "trainingInput": {**training_input, **fields}}


def running_job(fields: dict[str, object]) -> World:
    """Return a running job that keeps its machines. `fields`: more of its training input."""
    world = World("first")
    run_job(world, with_training_input(a_keeping_spec(), fields))
    return world


def check_not_kept(world: World, lost: Vm) -> None:
    """Check that the job keeps its machines but for this one."""
    assert world.state == "SUCCEEDED"
    kept = machine_set(world)
    assert kept.state is SetState.KEPT
    assert lost.instance_id not in {vm.instance_id for vm in kept.vms}
    assert {vm.instance_id for vm in kept.vms} == {vm.instance_id for vm in world.vms}
    assert sum(group.count for group in kept.groups) == len(kept.vms)


@LOSSES
def test_loss_before_the_end_is_committed_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    """The loss of a replica that is judged alone changes only this replica's document. The end of
    the job has read that document and does not write it. The loss of a member ends its round.
    """
    world = running_job(fields)
    lost = world.vm(WORKER_0)
    before_next_commit(world, monkeypatch, lambda: lose(world))
    succeed(world)
    check_not_kept(world, lost)


@LOSSES
def test_end_before_the_loss_is_committed_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    """The loss was judged while the job ran. Since then, all machines were ordered to be idle."""
    world = running_job(fields)
    lost = world.vm(WORKER_0)
    before_next_commit(world, monkeypatch, lambda: succeed(world))
    lose(world)
    deliver(world)
    check_not_kept(world, lost)


@pytest.mark.parametrize("is_end_first", [False, True], ids=["loss first", "end first"])
@LOSSES
def test_vm_that_is_lost_after_its_program_has_completed_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], *, is_end_first: bool
) -> None:
    """The chief ends last."""
    world = running_job(fields)
    lost = world.vm(WORKER_0)
    world.exit_program(WORKER_0, 0)
    deliver(world)
    done_at = world.replica(WORKER_0).done_at
    if is_end_first:
        before_next_commit(world, monkeypatch, lambda: succeed(world))
    world.send_about(lost, "maintenance", cause="maintenance")
    deliver(world)
    if not is_end_first:
        assert lost.instance_id not in {vm.instance_id for vm in world.vms}, "nobody pays for it"
        succeed(world)
    check_not_kept(world, lost)
    replica = world.replica(WORKER_0)
    assert (replica.state, replica.done_at) == (ReplicaState.COMPLETED, done_at)
    assert world.job.attempt == 1


def fail_chief(world: World) -> None:
    """End the common round: every member starts again, also one that had completed."""
    world.exit_program(CHIEF, 1)


def lose_vm_of_chief(world: World) -> None:
    world.send("maintenance", CHIEF, cause="maintenance")


@pytest.mark.parametrize("end_round", [fail_chief, lose_vm_of_chief])
def test_round_ends_before_the_loss_of_a_completed_members_vm_is_committed(
    monkeypatch: pytest.MonkeyPatch, end_round: Callable[[World], None]
) -> None:
    """The loss was judged on a member that had completed. The end of the round writes only the
    job's document, so the two commits do not conflict. The ledger gives the stored state all the
    same.
    """
    world = running_job({})
    lost = world.vm(WORKER_0)
    world.exit_program(WORKER_0, 0)
    deliver(world)
    before_next_commit(world, monkeypatch, lambda: end_round(world))
    world.send_about(lost, "maintenance", cause="maintenance")
    deliver(world)
    world.check()
    waiting = world.replica(WORKER_0)
    assert waiting.vm_generation == lost.vm_generation + 1
    told = {replica.key: replica for replica in world.history.state.replicas}
    assert told[waiting.key] == waiting


@LOSSES
def test_end_before_a_fault_is_committed_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    world = running_job(fields)
    lost = world.vm(WORKER_0)
    before_next_commit(world, monkeypatch, lambda: succeed(world))
    world.send("replica-exit", WORKER_0, cause="unfit", exit_status=1, tail="a GPU has errors")
    deliver(world)
    check_not_kept(world, lost)


def test_function_dies_after_the_loss_is_committed_its_repetition_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running_job(SERVERS)
    lost = world.vm(WORKER_0)
    before_next_commit(world, monkeypatch, lambda: succeed(world))
    publish = record.publish

    def die(entry: LedgerEntry, bus: Bus) -> None:
        publish(entry, bus)
        if isinstance(entry.decision.action, ReplaceVm):
            monkeypatch.setattr(record, "publish", publish)
            raise TemporaryError("the function's instance ends")

    monkeypatch.setattr(record, "publish", die)
    with pytest.raises(TemporaryError):
        lose(world)
    deliver(world)
    assert lost.instance_id in {vm.instance_id for vm in machine_set(world).vms}
    world.send_about(lost, "maintenance", cause="maintenance")
    deliver(world)
    check_not_kept(world, lost)


def test_losses_that_are_found_at_once_are_all_dropped(first: World) -> None:
    """Two functions have read the same set."""
    before = machine_set(first)
    one, other_vm = before.vms[1:3]
    kept_machines.drop_lost(before, (one.instance_id,), first.deps)
    kept_machines.drop_lost(before, (other_vm.instance_id,), first.deps)
    kept_machines.drop_lost(before, (one.instance_id,), first.deps)
    assert machine_set(first).vms == before.vms[:1]


@LOSSES
def test_loss_after_the_end_keeps_the_others(fields: dict[str, object]) -> None:
    world = running_job(fields)
    lost = world.vm(WORKER_0)
    succeed(world)
    until = machine_set(world).until
    lose(world)
    deliver(world)
    check_not_kept(world, lost)
    assert machine_set(world).until == until
    (span,) = (
        span for span in kept_spans(world.history, machine_set(world)) if span.end is not None
    )
    assert span.replica_id == WORKER_0, "nobody pays for it any more"


@pytest.mark.parametrize(
    ("cause", "tail", "words"),
    [
        ("unfit", "a GPU has errors\n", "failed the preflight (a GPU has errors)"),
        ("setup", "the disk is full", "could not be set up (the disk is full)"),
        ("vm_stopping", "step 17", "was shutting down"),
    ],
)
@LOSSES
def test_fault_that_is_reported_after_the_end_keeps_the_others(
    fields: dict[str, object], cause: str, tail: str, words: str
) -> None:
    """After such an exit, a job that runs gets another VM."""
    world = running_job(fields)
    lost = world.vm(WORKER_0)
    succeed(world)
    world.send("replica-exit", WORKER_0, cause=cause, exit_status=1, tail=tail)
    deliver(world)
    check_not_kept(world, lost)
    left = len(machine_set(world).vms)
    expected = f"The kept machine of worker 0 {words}. Still kept: {left}."
    assert expected in {entry.decision.text for entry in world.ledger}


@pytest.mark.parametrize("cause", ["process", "install", "vm_restarted", "saved"])
def test_end_of_a_program_that_is_reported_after_the_end_keeps_all(cause: str) -> None:
    world = running_job(SERVERS)
    succeed(world)
    world.send("replica-exit", WORKER_0, cause=cause, exit_status=1)
    deliver(world)
    assert len(machine_set(world).vms) == len(world.job.plan.replica_ids)


def test_machine_that_stops_while_kept_is_kept_no_longer(first: World) -> None:
    """Only a listing of the VMs shows it. Its program has ended, so no replica has lost its VM."""
    lost = first.vm(WORKER_0)
    first.fleet.stop(lost.name)
    first.wait(60)  # the sweep, which passes over all jobs, runs each minute
    first.sweep()
    deliver(first)
    check_not_kept(first, lost)
    second = other(first, "second")
    beat_all(first)
    run_job(second)
    assert second.job.set_id == "first"
    assert second.state == "RUNNING"


def test_take_beside_the_finding_of_a_loss_wins(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = first.vm(WORKER_0)
    first.fleet.stop(lost.name)
    second = other(first, "second")
    before_next_commit(second, monkeypatch, lambda: run_job(second))
    first.provision()
    deliver(second)
    second.report_all_ready()
    assert machine_set(second).holder == "second"
    assert second.state == "RUNNING"
    assert lost.instance_id not in {vm.instance_id for vm in second.vms}


@pytest.mark.parametrize("other_losses", [1, 9])
def test_losses_of_one_moment_do_not_hinder_each_other(
    monkeypatch: pytest.MonkeyPatch, other_losses: int
) -> None:
    """A thousand Spot VMs may be preempted in one minute."""
    world = World("first")
    workers = 1 + other_losses
    spec = a_keeping_spec(independentReplicas=True)
    run_job(world, with_training_input(spec, {"workerCount": str(workers)}))
    commit = world.store.commit
    commits: list[str] = []
    others = iter([ReplicaId(TaskType.WORKER, index + 1) for index in range(other_losses)])

    def commit_after_others(loaded: Any, entry: Any, change: Change, *more: Any) -> None:
        commits.append(entry.key)
        for replica_id in others:
            world.send("maintenance", replica_id, cause="maintenance")
        assert change.job is None, "all would write one document"
        commit(loaded, entry, change, *more)

    monkeypatch.setattr(world.store, "commit", commit_after_others)
    lose(world)
    assert len(commits) == len(set(commits)) == workers, "no commit is repeated"


def test_end_keeps_all_machines_although_replicas_change_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of a thousand replicas that are judged alone changes each time a function reads all."""
    world = World("first")
    workers = 99
    spec = a_keeping_spec(independentReplicas=True)
    run_job(world, with_training_input(spec, {"workerCount": str(workers)}))
    commit = world.store.commit
    changing = iter(world.replicas)

    def commit_after_another(loaded: Any, entry: Any, *more: Any) -> None:
        if isinstance(entry.decision.action, SucceedJob):
            replica = with_next_version(next(changing))
            restarted = replace(entry, key=f"restart-{replica.key}")
            at = world.store.load("first", replica.key)
            commit(at, restarted, Change(replicas=(replica,)))
        commit(loaded, entry, *more)

    monkeypatch.setattr(world.store, "commit", commit_after_another)
    succeed(world)
    assert world.state == "SUCCEEDED"
    assert len(machine_set(world).vms) == 1 + workers, "the chief's and those of the workers"
    monkeypatch.undo()
    assert release_machines("first", world.deps, by="anna")
    deliver(world)
    assert not world.vms
