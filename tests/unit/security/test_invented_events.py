"""A program invents events about its own replica, one member of its job.

Events about what never existed are not stored. A message names the attempt, the execution of the
whole job; the incarnation, the execution of the replica's program in it; and the VM's generation.
"""

from __future__ import annotations

import json

import pytest

from tests.support.jobs import WORKER_0, a_spec
from tests.support.world import World
from trainmaster.core.model.replica import ReplicaState
from trainmaster.flows import replica_exit
from trainmaster.messaging.agent_messages import decode_replica_exit


def send_invented_events(world: World, attempt: int) -> None:
    """Send each kind of event about worker 0, with numbers that never existed."""
    for changes in ({"attempt": 777_777}, {"incarnation": 999}, {"vm_generation": 999}):
        invented = {"attempt": attempt, **changes}
        world.send("vm-ready", WORKER_0, **invented)
        world.exit_program(WORKER_0, 0, **invented)
        world.exit_program(WORKER_0, 1, **invented)
        # A VM is lost whatever incarnation is named; the loss has one key.
        if "incarnation" not in changes:
            world.send("maintenance", WORKER_0, cause="preemption", **invented)


def test_event_about_what_never_existed_is_not_stored() -> None:
    world = World()
    world.start_running()
    before = world.ledger
    send_invented_events(world, attempt=1)
    assert world.ledger == before
    assert world.replica(WORKER_0).state is ReplicaState.RUNNING


def test_event_about_what_never_existed_in_an_earlier_attempt_is_not_stored() -> None:
    world = World()
    world.submit({**a_spec(), "trainmaster": {"exitPolicy": {"rerun": ["75"]}}})
    world.deliver()
    world.report_all_ready()
    world.exit_program(WORKER_0, 75)
    world.deliver()
    assert world.job.attempt == 2
    before = world.ledger
    send_invented_events(world, attempt=1)
    assert world.ledger == before
    world.check()


@pytest.mark.parametrize("attempt", [1, 2])
def test_event_about_what_never_existed_is_not_stored_after_the_end(attempt: int) -> None:
    world = World()
    world.start_running()
    fields = world.message_fields(WORKER_0)
    world.exit_program(world.job.plan.primary, 0)
    world.deliver()
    assert world.state == "SUCCEEDED"
    before = world.ledger
    for incarnation in range(2, 50):
        changes = {
            "attempt": attempt,
            "incarnation": incarnation,
            "cause": "process",
            "exit_status": 1,
        }
        replica_exit.handle(
            decode_replica_exit(json.dumps({**fields, **changes}).encode()), world.deps
        )
    assert world.ledger == before
