"""The loss of a VM that is judged while a round is held, and stored after the round has begun, is
evidence about that round.

A round is a common start of all members of a job. When one of them ends, the next round is held:
the others are stopped, and it begins when all are ready. A loss of a VM in the hold delays it. A
loss in the round ends it, and excuses failures of the other members.
"""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.core.events import IncarnationRef, VmLost, VmRef
from trainmaster.core.model.vm import LossCause
from trainmaster.flows.commit.record import record


@pytest.fixture
def world() -> World:
    """A job that has run for longer than the ten minutes after which a lost VM was of use."""
    world = World()
    world.start_running()
    world.deliver()
    world.wait(700)
    return world


def test_member_that_fails_because_of_a_loss_that_was_judged_in_the_hold_does_not_pay(
    world: World,
) -> None:
    world.silent.add(CHIEF)  # so that the second round stays held
    world.kill(WORKER_0)
    world.deliver()
    assert world.job.round.is_held
    worker, vm = world.replica(WORKER_1), world.vm(WORKER_1)
    in_the_hold = world.store.load_attempt(world.job_id)
    assert in_the_hold is not None
    world.silent.discard(CHIEF)
    world.send("vm-ready", CHIEF)
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held) == (2, False)
    subject = IncarnationRef(
        world.job_id,
        attempt=1,
        replica_id=WORKER_1,
        incarnation=worker.incarnation,
        vm_generation=1,
        vm=VmRef(vm.name, vm.zone, vm.instance_id),
    )
    event = VmLost(subject, world.now, LossCause.PREEMPTION)
    loss = record(event, world.deps, loaded=in_the_hold)
    assert "restarts on another VM" in loss.entry.decision.text, "judged in the hold"
    world.fleet.vanish(vm.name)
    world.exit_program(
        CHIEF, 1, error={"type": "UnavailableError", "message": "Socket closed", "frame": ""}
    )
    world.deliver()
    for _ in range(4):
        world.provision()
        world.deliver()
        world.wait(60)
    assert (world.job.round.number, world.job.round.is_held) == (3, False)
    assert world.replica(CHIEF).restarts_used == 0
    assert world.replica(WORKER_1).restarts_used == 0
    verdict = next(entry for entry in reversed(world.ledger) if entry.key == "1-round-3-all-ready")
    assert (
        verdict.decision.text == "Round 2 ended: the VM of worker 1 was preempted. Free of charge."
    )
