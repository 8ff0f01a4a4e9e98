"""Machines that a job keeps: the next job takes them, or they are released.

Jobs, machine sets and their holders are explained in `tests.support.kept_jobs`. Beside this module:

    test_kept_machines_fit       which machines are kept, and which ones a job takes
    test_kept_machines_losses    machines that are lost or faulty near the end of their job
    test_kept_machines_races     what happens late, twice or at the same time
    test_kept_machines_secret    tokens of the present and of the last job of a machine

The tenure of kept machines grows each time another job gets them. A directive is an order to the
agent of a VM: to run the program, to hold, or to stop. The ledger has the events of a job and the
decisions about them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.jobs import a_spec
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
from tests.support.world import World
from trainmaster.core.events import VmLost
from trainmaster.core.model.machine_set import SetState
from trainmaster.core.model.vm import DirectiveAction
from trainmaster.core.reporting.phases import PAID, Phase, kept_spans, replica_spans
from trainmaster.flows.user_requests import delete_job, release_machines
from trainmaster.presentation.explanation import explanation

VCPUS = 4
"""Of each VM: n1-standard-4."""


@pytest.fixture
def first() -> World:
    """Return a job that has ended, and whose machines are kept."""
    return a_keeping_job()


def test_machines_of_a_job_that_succeeds_are_kept_and_stopped(first: World) -> None:
    kept = machine_set(first)
    assert (kept.state, kept.holder, kept.tenure) == (SetState.KEPT, "first", 1)
    assert {vm.instance_id for vm in kept.vms} == {vm.instance_id for vm in first.vms}
    assert all(vm.directive and vm.directive.action is DirectiveAction.STOP for vm in first.vms)
    first.check()


def test_next_job_takes_them_in_the_same_vms(first: World) -> None:
    ids = {vm.instance_id for vm in first.vms}
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "first"
    assert {vm.instance_id for vm in second.vms} == ids
    assert {vm.directive.tenure for vm in second.vms if vm.directive} == {2}
    assert second.state == "RUNNING"
    configs = [second.fleet.metadata(vm.name)["trainmaster-vm-config"] for vm in second.vms]
    assert all('"job_id":"second"' in config and '"tenure":2' in config for config in configs)
    assert machine_set(second).state is SetState.IN_USE
    assert "takes" in second.store.ledger("second")[1].decision.text
    second.check()
    succeed(second)
    assert (machine_set(second).holder, machine_set(second).tenure) == ("second", 2)
    assert {vm.instance_id for vm in second.vms} == ids


def test_why_says_how_long_they_are_kept_and_calls_nothing_late(first: World) -> None:
    loaded = first.store.load_attempt("first")
    assert loaded is not None
    pending = first.store.pending_keys("first")
    assert pending
    why = explanation(loaded.state, first.ledger, pending, first.now)
    until = f"{machine_set(first).until:%H:%M:%S}"
    assert why["nextSteps"] == [f"Its machines are kept for a next job until {until} UTC."]
    assert why["unconfirmedEffects"] == []


def test_released_at_the_deadline_by_a_stored_release(first: World) -> None:
    first.wait(KEPT_S + 1)
    first.sweep()
    deliver(first)
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms
    reasons = [entry.decision.reason for entry in first.ledger]
    assert "machines_released" in reasons


def test_sweep_reads_no_replica_of_machines_that_idle(
    first: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand machines may be kept for an hour, and swept sixty times."""
    load_attempt = first.store.load_attempt
    read: list[int] = []

    def count(*arguments: Any, **options: Any) -> Any:
        loaded = load_attempt(*arguments, **options)
        read.append(len(loaded.state.replicas) if loaded else 0)
        return loaded

    monkeypatch.setattr(first.store, "load_attempt", count)
    first.wait(60)
    first.provision()
    assert read
    assert not any(read)


def test_kept_until_the_deadline(first: World) -> None:
    first.wait(KEPT_S - 100)
    first.sweep()
    deliver(first)
    assert first.vms
    assert machine_set(first).state is SetState.KEPT


def test_vm_lost_while_kept_is_created_by_the_next_job(first: World) -> None:
    lost = first.vms[-1]
    first.fleet.vanish(lost.name)
    second = other(first, "second")
    run_job(second)
    assert len(second.vms) == len(second.job.plan.replica_ids)
    again = second.vm(lost.replica_id)
    assert again.vm_generation > lost.vm_generation
    assert second.state == "RUNNING"
    assert not any(isinstance(entry.event, VmLost) for entry in second.ledger), "it is not taken"


def test_all_vms_lost_while_kept_the_next_job_starts_cold(first: World) -> None:
    for vm in first.vms:
        first.fleet.vanish(vm.name)
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "second"
    assert "none of its VMs runs" in second.ledger[1].decision.text


def test_set_whose_vms_are_all_lost_while_kept_is_released_by_the_sweep(first: World) -> None:
    """No VM is left that the orphan search could find, and kept time must not be paid for ever."""
    for vm in first.vms:
        first.fleet.vanish(vm.name)
    first.wait(60)
    first.sweep()
    deliver(first)
    assert machine_set(first).state is SetState.RELEASED
    assert {span.end for span in kept_spans(first.history, machine_set(first))} == {first.now}
    assert first.store.pending_keys("first") == (), "the sweep has nothing more to do"


def test_silent_agents_are_not_taken(first: World) -> None:
    first.wait(80)  # heartbeats older than 75 s count as silence
    second = other(first, "second")
    run_job(second)
    assert second.job.set_id == "second"


def test_agent_that_hangs_after_the_take_is_replaced_after_three_minutes(first: World) -> None:
    second = other(first, "second")
    second.submit(a_keeping_spec(), source=OWNER)
    deliver(second)
    ids = {vm.instance_id for vm in second.vms}
    second.wait(100)
    beat_all(second)
    second.wait(100)
    second.sweep()
    deliver(second)
    assert {vm.instance_id for vm in second.vms} == ids, "their agents set up, and write heartbeats"
    second.wait(100)
    second.sweep()
    deliver(second)
    assert ids.isdisjoint(vm.instance_id for vm in second.vms)


def test_limit_equal_to_the_set_admits_the_next_job_into_its_room(first: World) -> None:
    limited = replace(other(first, "second"), limits={"vcpus": VCPUS * len(first.vms)})
    run_job(limited)
    assert limited.job.set_id == "first"
    assert limited.state == "RUNNING"


def test_idle_machines_make_room_for_a_job_that_cannot_use_them(first: World) -> None:
    limited = replace(other(first, "second"), limits={"vcpus": VCPUS * len(first.vms)})
    run_job(limited, a_spec())
    assert limited.state == "RUNNING"
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms


def test_stockout_of_another_job_releases_machines_of_the_same_kind(first: World) -> None:
    second = other(first, "second")
    first.fleet.capacity = {vm.zone: len(first.vms) for vm in first.vms}
    second.submit(a_spec(), source=OWNER)
    deliver(second)
    assert machine_set(first).state is SetState.RELEASED


def test_deleted_job_releases_its_machines(first: World) -> None:
    delete_job("first", "key", first.deps, by="anna")
    deliver(first)
    assert machine_set(first).state is SetState.RELEASED
    assert not first.vms


def test_loss_of_a_taken_vm_reaches_the_holder(first: World) -> None:
    second = other(first, "second")
    run_job(second)
    owner = second.store.owner_of_vm(second.vms[0].name)
    assert owner is not None
    assert (owner.job_id, owner.set_id) == ("second", "first")


def test_fewer_replicas_delete_the_rest_and_more_are_created(first: World) -> None:
    spec = a_keeping_spec()
    training_input = spec["trainingInput"]
    assert isinstance(training_input, dict)
    fewer = {**spec, "trainingInput": {**training_input, "workerCount": "1"}}
    second = other(first, "second")
    run_job(second, fewer)
    assert second.job.set_id == "first"
    assert len(second.vms) == len(second.job.plan.replica_ids)
    succeed(second)
    beat_all(second)
    third = other(first, "third")
    run_job(third)
    assert third.job.set_id == "first"
    assert len(third.vms) == len(third.job.plan.replica_ids)
    assert third.state == "RUNNING"


def test_user_releases_kept_machines(first: World) -> None:
    assert release_machines("first", first.deps, by="anna")
    deliver(first)
    assert not first.vms
    assert not release_machines("first", first.deps, by="anna")


def test_every_second_of_a_vm_is_paid_by_one_job(first: World) -> None:
    kept_since = first.now
    first.wait(60)
    beat_all(first)
    second = other(first, "second")
    run_job(second)
    ended_at = second.now
    first_kept = kept_spans(first.history, machine_set(second))
    taken_at = second.ledger[1].at
    assert {(span.phase, span.end) for span in first_kept} == {(Phase.KEPT, taken_at)}
    assert all(span.start <= kept_since for span in first_kept)
    paid = [span for span in replica_spans(second.history) if span.phase in PAID]
    for replica_id in second.job.plan.replica_ids:
        spans = [span for span in paid if span.replica_id == replica_id]
        assert spans[0].start == taken_at, "the job pays from its take on"
        assert spans[0].phase is Phase.SETTING_UP
        paid_s = sum(span.seconds(ended_at) for span in spans)
        assert paid_s == (ended_at - taken_at).total_seconds()
