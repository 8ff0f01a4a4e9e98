"""The system-event audit log, exported to Pub/Sub: one entry for each event that the user did not
request.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.compute.emulator import PROJECT, ZONE, Emulator, running_emulator
from tests.support.stack import eventually
from trainmaster.core.intake.system_events import SystemEvent
from trainmaster.core.model.vm import LossCause
from trainmaster.messaging import google_events
from trainmaster_emulators.compute.__main__ import parse_arguments
from trainmaster_emulators.services.pubsub import PubSub


@dataclass
class Log:
    """The entries that the sink has delivered."""

    emulator: Emulator
    pubsub: PubSub
    subscription: str
    entries: list[dict[str, Any]] = field(default_factory=list)

    def of_vm(self, name: str) -> list[dict[str, Any]]:
        self.entries += [
            json.loads(message["data"]) for message in self.pubsub.pull(self.subscription)
        ]
        suffix = f"/instances/{name}"
        return [
            entry
            for entry in self.entries
            if entry["protoPayload"]["resourceName"].endswith(suffix)
        ]


@pytest.fixture(scope="module")
def exported(pubsub_emulator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    topic = f"system-events-{uuid.uuid4().hex[:8]}"
    pubsub = PubSub(pubsub_emulator, PROJECT)
    pubsub.create_topic(topic)
    pubsub.create_pull(topic, topic)
    path = f"projects/{PROJECT}/topics/{topic}"
    folder = tmp_path_factory.mktemp("compute")
    with running_emulator(
        folder, "--system-events-topic", path, pubsub=pubsub_emulator
    ) as emulator:
        yield Log(emulator, pubsub, topic)


@pytest.fixture
def log(exported: Log) -> Iterator[Log]:
    """The log of all tests. Each test has VMs with names of its own."""
    yield exported
    exported.emulator.delete_all()


@pytest.mark.parametrize(
    ("fault", "method", "cause"),
    [
        ("crash", "hostError", LossCause.HOST_ERROR),
        ("preempt", "preempted", LossCause.PREEMPTION),
        ("maintenance", "terminateOnHostMaintenance", LossCause.MAINTENANCE),
    ],
)
def test_lost_vm_has_one_entry_that_maintenance_can_decode(
    log: Log, fault: str, method: str, cause: LossCause
) -> None:
    vm = log.emulator.run(fault)
    log.emulator.fault(fault, fault, notice_s=0.2)
    eventually(lambda: log.of_vm(fault))
    eventually(lambda: log.emulator.status(fault) == "TERMINATED")
    (entry,) = log.of_vm(fault)
    assert entry["protoPayload"]["methodName"] == f"compute.instances.{method}"
    assert entry["resource"] == {
        "type": "gce_instance",
        "labels": {"project_id": PROJECT, "zone": ZONE, "instance_id": str(vm.id)},
    }
    assert entry["logName"] == f"projects/{PROJECT}/logs/cloudaudit.googleapis.com%2Fsystem_event"
    event = google_events.decode_maintenance(json.dumps(entry).encode())
    assert isinstance(event, SystemEvent)
    assert (event.vm.name, event.vm.zone, event.vm.instance_id, event.loss) == (
        fault,
        ZONE,
        str(vm.id),
        cause,
    )
    assert timedelta() <= datetime.now(UTC) - event.at < timedelta(seconds=30)


def test_migrated_vm_has_an_entry_that_has_no_effect(log: Log) -> None:
    log.emulator.run("migrated", scheduling={"on_host_maintenance": "MIGRATE"})
    log.emulator.fault("migrated", "maintenance", notice_s=0.2)
    eventually(lambda: log.of_vm("migrated"))
    (entry,) = log.of_vm("migrated")
    assert entry["protoPayload"]["methodName"] == "compute.instances.migrateOnHostMaintenance"
    event = google_events.decode_maintenance(json.dumps(entry).encode())
    assert isinstance(event, SystemEvent)
    assert not event.matters
    assert log.emulator.status("migrated") == "RUNNING"


def test_entry_appears_when_the_vm_is_stopping(log: Log) -> None:
    log.emulator.run("stopping")
    log.emulator.fault("stopping", "preempt", notice_s=3)
    eventually(lambda: log.of_vm("stopping"))
    assert log.emulator.status("stopping") in ("STOPPING", "TERMINATED")


def test_stop_and_delete_by_the_user_have_no_entry(log: Log) -> None:
    vm = log.emulator.run("stopped")
    log.emulator.done(
        log.emulator.instances.stop_unary(project=PROJECT, zone=ZONE, instance="stopped")
    )
    log.emulator.done(
        log.emulator.instances.delete_unary(project=PROJECT, zone=ZONE, instance=str(vm.id))
    )
    log.emulator.run("other")
    log.emulator.fault("other", "crash")
    eventually(lambda: log.of_vm("other"))
    assert log.of_vm("stopped") == []


def test_each_name_has_one_address_that_no_other_emulator_uses(
    log: Log, emulator: Emulator
) -> None:
    def address(emulator: Emulator, name: str) -> str:
        return str(emulator.call(f"/emulator/v1/address?name={name}")["address"])

    assert address(emulator, "a") == address(emulator, "a") != address(emulator, "b")
    other_addresses = {address(log.emulator, f"vm-{n}") for n in range(20)}
    assert not other_addresses & {address(emulator, f"vm-{n}") for n in range(20)}


@pytest.mark.parametrize("topic", ["t", "projects/p/topics/"])
def test_malformed_topic_option_is_refused(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    with pytest.raises(SystemExit):
        parse_arguments(
            ["--port", "1", "--state-dir", "x", "--project", "p", "--system-events-topic", topic]
        )


def test_topic_option_without_a_pubsub_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    options = ["--port", "1", "--state-dir", "x", "--project", "p"]
    with pytest.raises(SystemExit):
        parse_arguments([*options, "--system-events-topic", "projects/p/topics/t"])
