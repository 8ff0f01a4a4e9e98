"""A zone that the job has left cannot be reached. Rounds wait for it only if programs of the job
may still run there.

A job moves to another zone if its zone has no capacity. A round is a common start of its members;
after the end of one of them, the next round is held until all are ready.

A gang is the members of a job that start together.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.decisions import Reason
from trainmaster.core.model.vm import DirectiveAction
from trainmaster.core.reporting.next_steps import next_steps

A, B = "us-central1-a", "us-central1-b"


def running_in_b(**options: Any) -> World:
    """Return a job that found no capacity in its first zone."""
    world = World()
    world.fleet.stockout_zones = {A}
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B], **options}})
    world.deliver()
    world.report_all_ready()
    assert (world.state, world.job.zone) == ("RUNNING", B)
    return world


def pass_minutes(world: World, minutes: int) -> None:
    for _ in range(minutes):
        world.wait(60)
        world.sweep()
        world.deliver()


@pytest.mark.parametrize("options", [{}, {"elastic": {"minReplicas": 2}}], ids=["gang", "elastic"])
def test_left_zone_holds_round_of_a_gang_that_never_ran_there_for_seconds(
    options: dict[str, Any],
) -> None:
    world = running_in_b(**options)
    world.fleet.unreachable_zones = {A}
    failed_at = world.now
    world.exit_program(WORKER_0)
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held) == (2, False)
    assert (world.now - failed_at).total_seconds() < 10
    assert Reason.OUT_OF_REACH not in [entry.decision.reason for entry in world.ledger]
    world.check()


def leave_a_after_training(world: World) -> None:
    """Lose all VMs in the zone, which has no others, so that the gang moves."""
    world.fleet.stockout_zones = {A}
    for vm in world.vms:
        world.send("maintenance", vm.replica_id, cause="preemption")
    world.provision()


def test_left_zone_holds_round_while_programs_may_run_there_and_why_says_so() -> None:
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B]}})
    world.deliver()
    world.report_all_ready()
    old = {vm.instance_id for vm in world.vms}
    leave_a_after_training(world)
    world.fleet.unreachable_zones = {A}
    world.deliver()
    pass_minutes(world, 30)
    assert {vm.zone for vm in world.vms} == {B}
    assert world.job.round.is_held
    assert {vm.directive.action for vm in world.vms if vm.directive} == {DirectiveAction.HOLD}
    (cause,) = [text for text in next_steps(world.job, world.replicas, world.ledger) if A in text]
    assert "us-central1-a, where programs of this job may still run" in cause
    world.fleet.unreachable_zones = set()
    pass_minutes(world, 2)
    assert [left.may_run for left in world.job.placement.left] == [False], "the round has begun"
    assert old.isdisjoint(vm.instance_id for vm in world.vms)
    world.check()


def test_left_zone_holds_no_later_round_once_all_members_were_ready_elsewhere() -> None:
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B]}})
    world.deliver()
    world.report_all_ready()
    leave_a_after_training(world)
    world.deliver()
    pass_minutes(world, 2)
    assert (world.job.zone, world.job.round.is_held) == (B, False)
    number = world.job.round.number
    world.fleet.unreachable_zones = {A}
    world.exit_program(CHIEF)
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held) == (number + 1, False)


def test_gang_whose_zone_goes_out_of_reach_while_no_member_has_a_vm_there_moves() -> None:
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B]}})
    world.deliver()
    world.report_all_ready()
    for vm in world.vms:
        world.fleet.delete(vm)
        world.send_about(vm, "maintenance", cause="preemption")
    world.fleet.unreachable_zones = {A}
    world.deliver()
    pass_minutes(world, 3)
    assert {vm.zone for vm in world.vms} == {B}
    assert world.job.round.is_held, "a VM in the zone that was left may still run its program"
    assert WORKER_1 in [vm.replica_id for vm in world.vms]
