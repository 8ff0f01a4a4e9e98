"""Who may report the loss of a VM: its agent, and Compute Engine's audit log."""

from __future__ import annotations

import json

import pytest

from tests.support.jobs import WORKER_0
from tests.support.world import World
from tests.unit.functions.senders import NOW, Sender
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import LossCause
from trainmaster.messaging import topics

AUDIT_LOG = "projects/my-project/logs/cloudaudit.googleapis.com%2Fsystem_event"


def an_audit_log_entry(world: World, log: str = AUDIT_LOG) -> bytes:
    vm = world.vm(WORKER_0)
    path = f"projects/my-project/zones/{vm.zone}/instances/{vm.name}"
    return json.dumps(
        {
            "logName": log,
            "protoPayload": {"methodName": "compute.instances.preempted", "resourceName": path},
            "resource": {"type": "gce_instance", "labels": {"instance_id": vm.instance_id}},
            "timestamp": NOW.isoformat(),
        }
    ).encode()


def test_audit_log_entry_is_accepted_only_on_its_own_topic(sender: Sender) -> None:
    sender.send(sender.token())
    sender.name = "maintenance"
    assert sender.post(an_audit_log_entry(sender.world), None, NOW, topics.MAINTENANCE) == 204
    assert (sender.state, len(sender.reasons())) == (ReplicaState.RUNNING, 1)
    assert sender.post(an_audit_log_entry(sender.world), None, NOW, topics.SYSTEM_EVENTS) == 204
    assert sender.state is ReplicaState.REPLACING


@pytest.mark.parametrize(
    "log",
    [
        "projects/my-project/logs/mine-cloudaudit.googleapis.com%2Fsystem_event",
        "projects/other/logs/cloudaudit.googleapis.com%2Fsystem_event",
        "projects/my-project/logs/cloudaudit.googleapis.com%2Fsystem_event-2",
        "",
    ],
)
def test_entry_of_a_log_that_a_program_may_write_reports_no_loss(sender: Sender, log: str) -> None:
    """Every VM may write to a log of its own choice, with any resource and any payload."""
    sender.send(sender.token())
    sender.name = "maintenance"
    before = sender.world.ledger
    assert (
        sender.post(an_audit_log_entry(sender.world, log), None, NOW, topics.SYSTEM_EVENTS) == 204
    )
    assert "the entry is in the log" in sender.reasons()[0]
    assert (sender.state, sender.world.ledger) == (ReplicaState.RUNNING, before)


def test_maintenance_message_of_an_agent_needs_its_token(sender: Sender) -> None:
    sender.name = "maintenance"
    sender.send(None, cause=LossCause.PREEMPTION.value)
    assert (sender.state, len(sender.reasons())) == (ReplicaState.WAITING, 1)
    sender.send(sender.token(), cause=LossCause.PREEMPTION.value)
    assert sender.state is ReplicaState.REPLACING
