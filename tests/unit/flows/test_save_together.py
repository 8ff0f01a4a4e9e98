"""A notice through the flows: directives for those that did not answer, and another VM for the one
that goes.

A notice says that Google is about to take a VM. The agent there asks all members to save. It
reports those that did not answer by their numbers, in the order of the cluster: the chief is 0,
worker 0 is 1. Then the control plane asks these through the directives of their VMs.

A round is one common start of all members of a job.
"""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.core.decisions import Reason
from trainmaster.core.model.vm import DirectiveAction

GIVES_UP = timedelta(seconds=25)


@pytest.fixture
def world() -> World:
    world = World()
    world.start_running()
    world.deliver()
    return world


def notice(world: World, silent: tuple[int, ...]) -> None:
    """Report the notice for worker 1's VM. `silent`: the members that did not answer."""
    at = (world.now.replace(microsecond=0) + GIVES_UP).isoformat()
    world.send("maintenance", WORKER_1, cause="notice", gives_up_at=at, unanswered=silent)
    world.deliver()


def actions(world: World) -> dict[str, DirectiveAction]:
    """Return what the directive of each VM orders."""
    return {str(vm.replica_id): vm.directive.action for vm in world.vms if vm.directive}


def test_members_of_a_synchronous_job_save_together_by_default(world: World) -> None:
    assert world.job.plan.saving.on_notice == "gang"
    config = json.loads(world.fleet.metadata(world.vm(WORKER_1).name)["trainmaster-vm-config"])
    assert config["save_on_notice"] == "gang"
    assert config["channel"]["first"] == 1, "the number of worker 0, the first of its role"
    names = [world.vm(replica_id).name for replica_id in (CHIEF, WORKER_0, WORKER_1)]
    assert config["channel"]["members"] == [
        [f"{names[0]}.us-central1-a:2221"],
        [f"{name}.us-central1-a:2221" for name in names[1:]],
    ]


def test_unanswered_notice_becomes_directives_and_the_gang_saves_ends_and_goes_on(
    world: World,
) -> None:
    notice(world, (0,))
    assert actions(world) == {
        "chief-0": DirectiveAction.SAVE,
        "worker-0": DirectiveAction.RUN,
        "worker-1": DirectiveAction.RUN,
    }
    notice(world, (0, 1))
    assert actions(world)["worker-0"] is DirectiveAction.SAVE, "it did not answer, either"
    notice(world, (0, 1))
    world.send("replica-exit", CHIEF, cause="saved", exit_status=0)
    assert (world.state, world.job.round.number, world.job.round.is_held) == ("RUNNING", 2, True)
    world.send("maintenance", WORKER_1, cause="preemption", incarnation=1)
    world.deliver()
    assert world.vm(WORKER_1).vm_generation == 2
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held) == (2, False)
    assert [replica.restarts_used for replica in world.replicas] == [0, 0, 0]
    reasons = [entry.decision.reason for entry in world.ledger]
    assert reasons.count(Reason.MEMBERS_SAVE) == 2, "the third notice changes nothing"
    assert set(actions(world).values()) == {DirectiveAction.RUN}
    world.check()


def test_withdrawn_notice_changes_nothing(world: World) -> None:
    notice(world, silent=())
    world.wait(3600)
    world.sweep()
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held) == (1, False)
    world.exit_program(CHIEF, 0)
    assert world.state == "SUCCEEDED"
