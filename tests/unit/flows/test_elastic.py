"""A synchronous job that goes on without members whose VMs Google does not have,
through the flows.

The members of such a job start together, in a round. When one of them ends, the next round is held:
all others are stopped, and wait until it begins. An elastic job begins it without members that have
no VMs, if the primary and `minReplicas` in all are left. When such a member is ready, all programs
are asked to save, and the round after that has it.

A directive is an order to the agent of a VM: to run the program, to hold, or to stop. An attempt is
one execution of the whole job.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.console.pages.job_rows import situation
from trainmaster.core.decisions import Reason
from trainmaster.core.model.members import state_word
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.reporting.phases import Phase, replica_spans
from trainmaster.core.timeouts import BOOT_MAX, GROWTH_MIN, PARTIAL_GANG_WAIT_MAX_S

A, B = "us-central1-a", "us-central1-b"
NUMBER_OF_WORKER_1 = 2
"""Agents know the members by numbers, in the order of the cluster: the chief is 0."""


def start(least: int = 2, **options: Any) -> World:
    """Return a running elastic job of three members. `least`: its `minReplicas`."""
    world = World()
    elastic = {"minReplicas": least, **options.pop("elastic", {})}
    world.submit({**a_spec(), "trainmaster": {"elastic": elastic, "zones": [A, B], **options}})
    world.deliver()
    world.report_all_ready()
    world.deliver()
    assert world.state == "RUNNING"
    return world


def lose(world: World, *lost: Any) -> None:
    """Google preempts the VMs, and has no others in this zone."""
    world.fleet.capacity[A] = len(world.vms) - len(lost)
    for replica_id in lost:
        vm = world.vm(replica_id)
        world.send("maintenance", replica_id, cause="preemption")
        world.fleet.delete(vm)
    world.deliver()


def pass_minutes(world: World, minutes: int = 1) -> None:
    for _ in range(minutes):
        world.wait(60)
        world.sweep()
        world.deliver()


def directive(world: World, replica_id: Any) -> Directive:
    found = world.vm(replica_id).directive
    assert found is not None
    return found


def running(world: World) -> tuple[int, list[str]]:
    """Return the number of the round that runs, and the members that it goes without."""
    assert not world.job.round.is_held
    return world.job.round.number, [str(member) for member in world.job.round.without]


def charges(world: World) -> list[int]:
    """Return the restarts that chief, worker 0 and worker 1 have used, and the job's reruns."""
    used = [replica.restarts_used for replica in world.replicas]
    return [*used, world.job.budgets.reruns_used]


WORKER_0_PAYS = [0, 1, 0, 0]
FREE = [0, 0, 0, 0]


def grow(world: World) -> None:
    """Let the stockout end, and the new VMs report."""
    world.fleet.capacity.clear()
    pass_minutes(world)


def save(world: World) -> None:
    """Let the primary ask its peers, and the programs save and end."""
    at = world.now.replace(microsecond=0).isoformat()
    world.send("maintenance", CHIEF, cause="notice", gives_up_at=at, unanswered=())
    for member in {CHIEF, WORKER_0, WORKER_1}.difference(world.job.round.without):
        world.send("replica-exit", member, cause="saved", exit_status=0)
    world.deliver()


def test_refused_member_is_left_out_at_once_and_the_others_know_it() -> None:
    world = start()
    began = world.now
    lose(world, WORKER_1)
    assert running(world) == (2, ["worker-1"])
    assert (world.now - began).total_seconds() < 60, "no sweep is needed"
    assert directive(world, CHIEF).to_metadata()["without"] == [NUMBER_OF_WORKER_1]
    assert {directive(world, member).action for member in (CHIEF, WORKER_0)} == {
        DirectiveAction.RUN
    }
    assert charges(world) == FREE
    assert world.ledger[-1].decision.text.endswith(
        "Free of charge. Round 2 goes on without worker 1."
    )
    pass_minutes(world, 40)
    assert running(world) == (2, ["worker-1"]), "the gang does not move"
    assert world.job.zone == A
    world.check()


def start_incomplete(*ready: Any) -> World:
    """Return an elastic job of which these members have reported. No round has begun."""
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B], "elastic": {"minReplicas": 2}}})
    world.deliver()
    for replica_id in ready:
        world.send("vm-ready", replica_id)
    assert world.state == "PREPARING"
    return world


@pytest.mark.parametrize("ready", [(CHIEF, WORKER_1), (CHIEF, WORKER_0, WORKER_1)])
def test_gang_whose_first_round_has_not_begun_moves_as_a_whole(ready: Any) -> None:
    world = start_incomplete(*ready)
    lose(world, WORKER_1)
    assert (world.job.zone, [vm.zone for vm in world.vms]) == (B, [B, B, B])


def test_first_round_waits_for_all_members_of_an_elastic_job() -> None:
    world = start_incomplete(CHIEF, WORKER_1)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.fleet.delete(world.vm(WORKER_1))
    world.deliver()
    world.send("vm-ready", WORKER_0)
    pass_minutes(world)
    assert (world.state, world.job.round.is_held) == ("PREPARING", True)
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert running(world) == (1, [])


def test_job_without_the_field_waits_and_moves() -> None:
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B]}})
    world.deliver()
    world.report_all_ready()
    lose(world, WORKER_1)
    assert world.job.round.is_held
    pass_minutes(world, PARTIAL_GANG_WAIT_MAX_S // 60 + 2)
    assert (world.job.zone, world.job.attempt) == (B, 2)


def test_new_vm_joins_after_all_have_saved_and_nobody_pays() -> None:
    world = start()
    lose(world, WORKER_1)
    grow(world)
    assert running(world) == (2, ["worker-1"])
    assert directive(world, WORKER_1).action is DirectiveAction.HOLD, (
        "it prepares, and starts nothing"
    )
    asked = directive(world, CHIEF)
    assert (asked.action, asked.asks_peers) == (DirectiveAction.SAVE, True)
    assert directive(world, WORKER_0).action is DirectiveAction.RUN, "the agents tell each other"
    save(world)
    assert running(world) == (3, [])
    assert {directive(world, member).action for member in (CHIEF, WORKER_0, WORKER_1)} == {
        DirectiveAction.RUN
    }
    assert "without" not in directive(world, CHIEF).to_metadata()
    assert charges(world) == FREE
    reasons = [entry.decision.reason for entry in world.ledger]
    assert reasons.count(Reason.MEMBERS_SAVE) == 1
    world.check()


def test_members_that_the_primary_does_not_reach_get_a_directive() -> None:
    world = start()
    lose(world, WORKER_1)
    grow(world)
    at = world.now.replace(microsecond=0).isoformat()
    for _ in range(2):  # worker 1 does not answer, because it runs nothing
        world.send("maintenance", CHIEF, cause="notice", gives_up_at=at, unanswered=(1, 2))
        world.deliver()
    assert directive(world, WORKER_0).action is DirectiveAction.SAVE
    assert not directive(world, WORKER_0).asks_peers
    assert directive(world, WORKER_1).action is DirectiveAction.HOLD
    save(world)
    assert running(world) == (3, [])


def test_further_growth_waits_ten_minutes() -> None:
    world = start()
    pass_minutes(world, 11)  # a later loss is no early one
    for lost, is_second_growth, expected_round in ((WORKER_1, False, 3), (WORKER_0, True, 5)):
        lose(world, lost)
        grow(world)
        if is_second_growth:
            assert directive(world, CHIEF).action is DirectiveAction.RUN
            pass_minutes(world, int(GROWTH_MIN.total_seconds()) // 60)
        assert directive(world, CHIEF).action is DirectiveAction.SAVE
        save(world)
        assert running(world) == (expected_round, [])


def test_without_save_on_notice_a_member_joins_when_a_round_begins_anyway() -> None:
    world = start(saveOnNotice="off")
    lose(world, WORKER_1)
    grow(world)
    assert directive(world, CHIEF).action is DirectiveAction.RUN
    world.exit_program(WORKER_0, 1)
    world.deliver()
    assert running(world) == (3, [])
    assert charges(world) == WORKER_0_PAYS


def test_vm_that_boots_and_does_not_report_is_waited_for_five_minutes() -> None:
    world = start()
    world.silent.add(WORKER_1)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    pass_minutes(world, int(BOOT_MAX.total_seconds()) // 60 - 1)
    assert world.job.round.is_held
    pass_minutes(world, 2)
    assert running(world) == (2, ["worker-1"])
    assert directive(world, WORKER_1).action is DirectiveAction.HOLD


def test_after_delays_the_smaller_round() -> None:
    world = start(elastic={"after": "90s"})
    lose(world, WORKER_1)
    assert world.job.round.is_held
    pass_minutes(world)
    assert world.job.round.is_held
    pass_minutes(world)
    assert running(world) == (2, ["worker-1"])


@pytest.mark.parametrize(
    ("least", "lost"), [(2, (WORKER_0, WORKER_1)), (1, (CHIEF,)), (1, (CHIEF, WORKER_1))]
)
def test_without_the_primary_or_enough_members_the_gang_waits_and_moves(
    least: int, lost: tuple[Any, ...]
) -> None:
    world = start(least)
    lose(world, *lost)
    pass_minutes(world, 10)
    assert (world.job.round.is_held, world.job.attempt) == (True, 1)
    pass_minutes(world, 8)
    assert (world.job.zone, world.job.attempt, world.job.round.without) == (B, 2, ())


@pytest.mark.parametrize("lost", [CHIEF, WORKER_0])
def test_loss_while_short_waits_for_fifteen_minutes_from_then_on(lost: Any) -> None:
    world = start()
    lose(world, WORKER_1)
    pass_minutes(world, 60)
    lose(world, lost)
    assert (world.job.round.is_held, world.job.attempt) == (True, 1)
    pass_minutes(world, 12)
    assert world.job.attempt == 1
    pass_minutes(world, 8)
    assert (world.job.zone, world.job.attempt) == (B, 2)
    pass_minutes(world)
    assert running(world) == (1, [])


def test_two_losses_one_after_the_other_shrink_the_gang_twice() -> None:
    world = start(1)
    lose(world, WORKER_1)
    lose(world, WORKER_0)
    assert running(world) == (3, ["worker-0", "worker-1"])
    assert directive(world, CHIEF).without == (1, 2)
    grow(world)
    save(world)
    assert running(world) == (4, [])
    assert charges(world) == FREE


def test_member_that_fails_while_short_pays_and_the_next_round_is_short_too() -> None:
    world = start()
    lose(world, WORKER_1)
    world.exit_program(WORKER_0, 1)
    world.deliver()
    assert running(world) == (3, ["worker-1"])
    assert charges(world) == WORKER_0_PAYS


def test_loss_of_a_vm_that_has_not_joined_changes_no_round_and_excuses_no_failure() -> None:
    world = start()
    lose(world, WORKER_1)
    grow(world)
    for _ in range(4):  # also early losses in a row move no job that trains
        vm = world.vm(WORKER_1)
        world.send("maintenance", WORKER_1, cause="preemption")
        world.fleet.delete(vm)
        world.deliver()
        pass_minutes(world, 9)
    assert running(world) == (2, ["worker-1"])
    world.exit_program(WORKER_0, 1)
    world.deliver()
    assert charges(world) == WORKER_0_PAYS
    assert (world.job.zone, world.job.attempt) == (A, 1)


@pytest.mark.parametrize("cause", ["setup", "install", "unfit"])
def test_vm_that_cannot_be_set_up_is_replaced_and_the_others_train(cause: str) -> None:
    world = start()
    lose(world, WORKER_1)
    world.silent.add(WORKER_1)
    grow(world)
    before = world.vm(WORKER_1).vm_generation
    world.send("replica-exit", WORKER_1, cause=cause, exit_status=1)
    world.deliver()
    assert running(world) == (2, ["worker-1"])
    assert world.replica(WORKER_1).vm_generation == before + 1
    assert (world.state, charges(world)) == ("RUNNING", FREE)


def test_late_events_of_the_lost_vm_change_nothing() -> None:
    world = start()
    fields = world.message_fields(WORKER_1)
    lose(world, WORKER_1)
    grow(world)
    before = world.replicas, world.job
    for kind, more in (
        ("vm-ready", {}),
        ("replica-exit", {"cause": "process", "exit_status": 1}),
        ("maintenance", {"cause": "preemption"}),
        (
            "maintenance",
            {"cause": "notice", "gives_up_at": world.now.isoformat(), "unanswered": ()},
        ),
    ):
        world.send(kind, WORKER_1, **{**fields, "at": world.now.isoformat(), **more})
        world.deliver()
    assert (world.replicas, world.job) == before


def test_notice_while_short_asks_the_members_of_the_round_only() -> None:
    world = start(1)
    lose(world, WORKER_1)
    at = (world.now.replace(microsecond=0) + timedelta(seconds=25)).isoformat()
    world.send("maintenance", WORKER_0, cause="notice", gives_up_at=at, unanswered=(0, 2))
    world.deliver()
    assert directive(world, CHIEF).action is DirectiveAction.SAVE
    assert world.job.round.saving is not None
    assert world.job.round.saving.asked == (CHIEF,)


def test_end_of_the_job_leaves_no_vm_and_no_request() -> None:
    world = start()
    lose(world, WORKER_1)
    world.exit_program(CHIEF, 0)
    world.fleet.capacity.clear()
    world.deliver()
    pass_minutes(world, 3)
    assert (world.state, world.vms) == ("SUCCEEDED", ())


def test_nobody_is_asked_once_a_member_has_completed() -> None:
    world = start()
    lose(world, WORKER_1)
    world.exit_program(WORKER_0, 0)
    grow(world)
    assert world.replica(WORKER_1).state is ReplicaState.RUNNING
    assert directive(world, CHIEF).action is DirectiveAction.RUN


def test_before_the_job_runs_it_waits_for_all_members() -> None:
    world = World()
    world.fleet.capacity[A] = 2
    world.submit({**a_spec(), "trainmaster": {"elastic": {"minReplicas": 1}, "zones": [A]}})
    world.deliver()
    world.send("vm-ready", CHIEF)
    pass_minutes(world, 5)
    assert (world.state, world.job.round.number, world.job.round.without) == ("PREPARING", 1, ())


def test_missing_member_is_not_requested_without_a_pause() -> None:
    """Also not while the others stop, although the held round needs the VM if it comes."""
    world = start()
    world.silent.update((CHIEF, WORKER_0))
    lose(world, WORKER_1)
    errors = [entry for entry in world.ledger if entry.event.kind == "vms_not_created"]
    assert (world.job.round.is_held, len(errors)) == (True, 1)
    world.silent.clear()
    world.deliver()
    pass_minutes(world)
    assert running(world) == (2, ["worker-1"])


def test_loss_in_a_hold_beside_a_member_that_has_come_is_not_requested_without_a_pause_either() -> (
    None
):
    world = start(saveOnNotice="off")
    lose(world, WORKER_1)
    grow(world)
    world.silent.add(CHIEF)
    world.exit_program(WORKER_0, 1)
    world.deliver()
    lose(world, WORKER_0)
    errors = [entry for entry in world.ledger if entry.event.kind == "vms_not_created"]
    assert (world.job.round.is_held, len(errors)) == (True, 2)
    world.silent.clear()
    world.deliver()
    pass_minutes(world)
    assert running(world) == (3, ["worker-0"])


def test_programs_know_the_full_size() -> None:
    world = start()
    config = json.loads(world.fleet.metadata(world.vm(CHIEF).name)["trainmaster-vm-config"])
    assert (config["environment"]["TRAINMASTER_REPLICAS"], config["environment"]["WORLD_SIZE"]) == (
        "3",
        "3",
    )


def test_why_and_the_phases_tell_who_trains_and_who_waits() -> None:
    world = start()
    lose(world, WORKER_1)
    steps = next_steps(world.job, world.replicas, world.ledger)
    assert steps[0] == "worker 1 waits for another VM of the same name."
    assert f"no capacity in {A}" in steps[1]
    assert steps[2].startswith("The job runs with 2 of 3 replicas since 03:")
    assert situation(world.job, None) in steps[2]
    grow(world)
    assert state_word(world.job, world.replica(WORKER_1)) == "HELD"
    assert state_word(world.job, world.replica(CHIEF)) == "RUNNING"
    last = {span.replica_id: span.phase for span in replica_spans(world.history)}
    assert last == {CHIEF: Phase.RUNNING, WORKER_0: Phase.RUNNING, WORKER_1: Phase.HELD}


def test_several_vms_that_come_together_join_together() -> None:
    world = start(1)
    pass_minutes(world, 11)
    lose(world, WORKER_0, WORKER_1)
    assert running(world)[1] == ["worker-0", "worker-1"]
    world.silent.add(WORKER_1)
    grow(world)
    assert directive(world, CHIEF).action is DirectiveAction.RUN, "worker 1 boots"
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert directive(world, CHIEF).action is DirectiveAction.SAVE
    save(world)
    world.silent.clear()
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert running(world)[1] == []
