"""The sweep finds changes that no event will report any more."""

from __future__ import annotations

import json

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.flows.commit.record import record
from trainmaster.messaging import agent_messages


def test_sweep_starts_a_job_whose_last_ready_report_was_handled_halfway(world: World) -> None:
    """The function committed the report, and died before it counted the ready replicas."""
    world.submit()
    world.deliver()
    world.send("vm-ready", CHIEF)
    world.send("vm-ready", WORKER_0)
    data = json.dumps(world.message_fields(WORKER_1)).encode()
    record(agent_messages.decode_vm_ready(data), world.deps)
    assert world.state == "PREPARING"
    world.wait(60)
    world.sweep()
    world.deliver()
    assert world.state == "RUNNING"
    world.check()
