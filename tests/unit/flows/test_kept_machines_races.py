"""Kept machines when things happen late, twice, at the same time, or from before a restore.

Jobs, machine sets and their holders are explained in `tests.support.kept_jobs`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
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
from trainmaster.core.actions import ReplaceVm, SucceedJob
from trainmaster.core.events import IncarnationRef, VmRef
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.machine_set import ReleaseCause, SetState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.reporting.phases import kept_spans
from trainmaster.core.transitions.change import Change, with_next_version
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit import record
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.user_requests import cancel_job, release_machines
from trainmaster.gcp.firestore.documents import entry_document
from trainmaster.messaging.authenticate import AuthDeps, authenticate, expected_audience
from trainmaster.messaging.push import Message
from trainmaster.ports import Bus, Claims, IdentityError
from trainmaster.presentation.job_view import job_view
from trainmaster_local.memory.store import MemoryStore

WORKERS = [ReplicaId(TaskType.WORKER, index) for index in range(2)]


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

    def expire() -> None:
        kept_machines.release(machine_set(first), ReleaseCause.USER, first.deps)

    before_next_commit(second, monkeypatch, expire)
    deliver(second)
    assert second.job.set_id == "second"
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms


def test_late_delivery_of_the_old_holder_changes_nothing(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    before = second.vms
    first.provision()
    first.wait(10_000)  # long after the deadline of the first holder
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
    (group,) = (one for one in first.job.plan.groups if one.task_type is vm.replica_id.task_type)
    hold = Directive(attempt=1, incarnation=1, action=DirectiveAction.HOLD)
    create = Create(group, vm.zone, 1, hold, (vm.replica_id,), (vm.name,), round=0)
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


class OneToken:
    """Verifies every token as this one."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def claims(self, token: str) -> Claims:
        del token
        return self._claims


def authenticated(world: World, key: str) -> bool:
    """Return whether a token with this secret in its audience counts for the job's primary."""
    vm = world.vms[0]
    subject = IncarnationRef(
        world.job_id,
        attempt=1,
        replica_id=vm.replica_id,
        incarnation=1,
        vm_generation=vm.vm_generation,
        vm=VmRef(vm.name, vm.zone, vm.instance_id),
    )
    audience = expected_audience("my-project", subject) + (f"/{key}" if key else "")
    claims = Claims(
        audience=audience,
        account="vms@p",
        project="my-project",
        zone=vm.zone,
        instance_name=vm.name,
        instance_id=vm.instance_id,
        issued_at=world.now,
        expires_at=world.now + timedelta(hours=1),
    )
    message = Message(
        data=b"", attributes={"identity": "token"}, message_id="", published_at=world.now
    )
    deps = AuthDeps(OneToken(claims), world.store, "my-project", "vms@p")
    try:
        authenticate(subject, message, deps)
    except IdentityError:
        return False
    return True


def test_token_from_before_the_take_is_refused(first: World) -> None:
    """A program of the last job had the same VM, and could predict all but the secret."""
    second = other(first, "second")
    run_job(second)
    assert first.job.machines is not None
    assert second.job.machines is not None
    assert authenticated(second, second.job.machines.key)
    assert not authenticated(second, key="")
    assert not authenticated(second, first.job.machines.key)


def test_secret_of_the_tenure_is_in_no_event_and_no_message(first: World) -> None:
    assert first.job.machines is not None
    key = first.job.machines.key
    assert len(key) == 32  # 128 bits, in hexadecimal
    texts = [repr(first.job), str(first.ledger), str(job_view(first.job, project="p"))]
    texts += [str(entry_document(entry)) for entry in first.ledger]
    assert not any(key in text for text in texts)


SERVERS = {"parameterServerType": "n1-standard-4", "parameterServerCount": 1}
"""With a parameter server, all replicas are judged each alone."""


def lose(world: World) -> None:
    """Report that a worker's VM goes into host maintenance: it still runs for up to an hour."""
    world.send("maintenance", WORKERS[0], cause="maintenance")


LOSSES = pytest.mark.parametrize("fields", [SERVERS, {}], ids=["judged alone", "member of a round"])


def running_job(fields: dict[str, object]) -> World:
    """Return a running job that keeps its machines. `fields`: more of its training input."""
    world = World("first")
    spec = a_keeping_spec()
    training_input: Any = spec["trainingInput"]
    run_job(world, {**spec, "trainingInput": {**training_input, **fields}})
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
    """The loss of a replica that is judged alone changes only this replica's document, which the
    end has read and does not write; that of a member ends its round.
    """
    world = running_job(fields)
    lost = world.vm(WORKERS[0])
    before_next_commit(world, monkeypatch, lambda: lose(world))
    succeed(world)
    check_not_kept(world, lost)


@LOSSES
def test_end_before_the_loss_is_committed_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    """The loss was judged on the running job, and all machines have been told to idle since."""
    world = running_job(fields)
    lost = world.vm(WORKERS[0])
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
    lost = world.vm(WORKERS[0])
    world.exit_program(WORKERS[0], 0)
    deliver(world)
    done_at = world.replica(WORKERS[0]).done_at
    if is_end_first:
        before_next_commit(world, monkeypatch, lambda: succeed(world))
    world.send_about(lost, "maintenance", cause="maintenance")
    deliver(world)
    if not is_end_first:
        assert lost.instance_id not in {vm.instance_id for vm in world.vms}, "nobody pays for it"
        succeed(world)
    check_not_kept(world, lost)
    replica = world.replica(WORKERS[0])
    assert (replica.state, replica.done_at) == (ReplicaState.COMPLETED, done_at)
    assert world.job.attempt == 1


@LOSSES
def test_end_before_a_fault_is_committed_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    world = running_job(fields)
    lost = world.vm(WORKERS[0])
    before_next_commit(world, monkeypatch, lambda: succeed(world))
    world.send("replica-exit", WORKERS[0], cause="unfit", exit_status=1, tail="a GPU has errors")
    deliver(world)
    check_not_kept(world, lost)


def test_function_dies_after_the_loss_is_committed_its_repetition_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running_job(SERVERS)
    lost = world.vm(WORKERS[0])
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
    lost = world.vm(WORKERS[0])
    succeed(world)
    until = machine_set(world).until
    lose(world)
    deliver(world)
    check_not_kept(world, lost)
    assert machine_set(world).until == until
    (span,) = (
        span for span in kept_spans(world.history, machine_set(world)) if span.end is not None
    )
    assert span.replica_id == WORKERS[0], "nobody pays for it any more"


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
    lost = world.vm(WORKERS[0])
    succeed(world)
    world.send("replica-exit", WORKERS[0], cause=cause, exit_status=1, tail=tail)
    deliver(world)
    check_not_kept(world, lost)
    left = len(machine_set(world).vms)
    expected = f"The kept machine of worker 0 {words}. Still kept: {left}."
    assert expected in {entry.decision.text for entry in world.ledger}


@pytest.mark.parametrize("cause", ["process", "install", "vm_restarted", "saved"])
def test_end_of_a_program_that_is_reported_after_the_end_keeps_all(cause: str) -> None:
    world = running_job(SERVERS)
    succeed(world)
    world.send("replica-exit", WORKERS[0], cause=cause, exit_status=1)
    deliver(world)
    assert len(machine_set(world).vms) == len(world.job.plan.replica_ids)


def test_machine_that_stops_while_kept_is_kept_no_longer(first: World) -> None:
    """Nothing but a listing shows it; its program has ended, so no replica has lost it."""
    lost = first.vm(WORKERS[0])
    first.fleet.stop(lost.name)
    first.wait(60)
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
    lost = first.vm(WORKERS[0])
    first.fleet.stop(lost.name)
    second = other(first, "second")
    before_next_commit(second, monkeypatch, lambda: run_job(second))
    first.provision()
    deliver(second)
    second.report_all_ready()
    assert machine_set(second).holder == "second"
    assert second.state == "RUNNING"
    assert lost.instance_id not in {vm.instance_id for vm in second.vms}


@pytest.mark.parametrize("attempts", [1, 9])
def test_losses_of_one_moment_do_not_hinder_each_other(
    monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """A thousand Spot VMs may be preempted in one minute."""
    world = World("first")
    spec = a_keeping_spec(independentReplicas=True)
    training_input: Any = spec["trainingInput"]
    run_job(world, {**spec, "trainingInput": {**training_input, "workerCount": str(attempts + 1)}})
    commit = world.store.commit
    commits: list[str] = []
    others = iter([ReplicaId(TaskType.WORKER, index + 1) for index in range(attempts)])

    def commit_after_others(loaded: Any, entry: Any, change: Change, *more: Any) -> None:
        commits.append(entry.key)
        for replica_id in others:
            world.send("maintenance", replica_id, cause="maintenance")
        assert change.job is None, "all would write one document"
        commit(loaded, entry, change, *more)

    monkeypatch.setattr(world.store, "commit", commit_after_others)
    lose(world)
    assert len(commits) == len(set(commits)) == attempts + 1, "no commit is repeated"


def test_end_keeps_all_machines_although_replicas_change_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a thousand replicas that are judged alone, one changes whenever a function reads all."""
    world = World("first")
    spec = a_keeping_spec(independentReplicas=True)
    training_input: Any = spec["trainingInput"]
    run_job(world, {**spec, "trainingInput": {**training_input, "workerCount": "99"}})
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
    assert len(machine_set(world).vms) == 100  # the chief and 99 workers
    monkeypatch.undo()
    assert release_machines("first", world.deps, by="anna")
    deliver(world)
    assert not world.vms


def test_function_that_is_suspended_before_it_reads_decides_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the machines would be kept from a time on at which another job had them."""
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
