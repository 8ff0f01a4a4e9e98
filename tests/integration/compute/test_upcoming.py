"""Maintenance that is announced long before: as a VM's programs see it, and as the agent acts on it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError

import pytest

from emulators.compute.metadata_server import Document, GuestMetadata
from shared.agent.shutdown.vm_shutdown_notice import REPLACE_S
from shared.wiring.agent_archive import agent_files
from tests.integration.agent.support.cloud import Cloud
from tests.integration.agent.support.vm import gang
from tests.integration.compute.emulator import ZONE, Emulator, eventually

GPU: dict[str, Any] = {
    "guest_accelerators": [
        {"accelerator_type": f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4", "accelerator_count": 1}
    ]
}
KEY = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/upcoming-maintenance?alt=json"
ASK = f'curl -s -H Metadata-Flavor:Google "{KEY}"'


def test_a_vm_without_gpus_has_no_such_key_and_no_such_fault(emulator: Emulator) -> None:
    emulator.run("vm", f"{ASK} -o /dev/null -w 'status %{{http_code}}\\n'; sleep 600")
    eventually(lambda: "status 404" in emulator.serial("vm"))
    with pytest.raises(HTTPError, match="400"):
        emulator.fault("vm", "upcoming-maintenance")


def test_it_is_announced_with_its_window_and_begins_when_that_does(emulator: Emulator) -> None:
    watch = f'{ASK} -w "\\n"; until {ASK} | grep window; do sleep 0.05; done; echo; sleep 600'
    emulator.run("vm", watch, **GPU)
    eventually(lambda: "{}" in emulator.serial("vm"))
    told = emulator.fault("vm", "upcoming-maintenance", in_s=3)
    starts_at = datetime.fromisoformat(told["window_start_time"])
    assert timedelta(0) < starts_at - datetime.now(UTC) < timedelta(seconds=3)
    assert (told["maintenance_status"], told["type"], told["can_reschedule"]) == ("PENDING", "SCHEDULED", "true")
    eventually(lambda: json.dumps(told) in emulator.serial("vm"))
    assert emulator.status("vm") == "RUNNING"
    eventually(lambda: emulator.status("vm") == "TERMINATED", within_s=30)
    assert datetime.now(UTC) >= starts_at


def test_it_is_an_hour_ahead_where_nothing_else_is_said(emulator: Emulator) -> None:
    emulator.run("vm", **GPU)
    told = emulator.fault("vm", "upcoming-maintenance")
    ahead = datetime.fromisoformat(told["window_start_time"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < ahead <= timedelta(hours=1)


def test_a_document_is_a_leaf_wherever_it_is_seen() -> None:
    guest = GuestMetadata({"instance": {"id": 1, "upcoming-maintenance": Document({"a_b": "c"})}})
    assert guest.answer("instance/", {}).body == b"id\nupcoming-maintenance"
    for query in ({}, {"alt": "json"}, {"recursive": "true"}):
        assert json.loads(guest.answer("instance/upcoming-maintenance", query).body) == {"a_b": "c"}
    assert json.loads(guest.answer("", {"recursive": "true"}).body) == {
        "instance": {"id": 1, "upcomingMaintenance": {"a_b": "c"}}
    }
    assert b'upcoming-maintenance {"a_b": "c"}' in guest.answer("", {"recursive": "true", "alt": "text"}).body


# The real agent in the emulator's VM; Pub/Sub is the agent's tests' own.


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.close()


def boot(emulator: Emulator, cloud: Cloud, on_signal: str) -> None:
    """A VM with a GPU whose program does this when it is asked to save."""
    program = f"""
import signal
def save(*_):
    print("SAVED", flush=True)
    {on_signal}
signal.signal(signal.SIGUSR1, save)
print("START", flush=True)
while True:
    signal.pause()
"""
    files = agent_files()
    metadata = {
        "trainmaster-agent": files["trainmaster-agent"],
        "trainmaster-vm-config": json.dumps(gang(vm_names=["vm"], checkpoint_signal="SIGUSR1")),
        "trainmaster-directive": json.dumps({"attempt": 1, "incarnation": 1, "action": "run"}),
    }
    setup = f"export PUBSUB_EMULATOR_HOST={cloud.host} PYTHONPATH=$HOME\nmkdir -p $HOME/trainer\n"
    write = f"touch $HOME/trainer/__init__.py\ncat >$HOME/trainer/task.py <<'END'\n{program}END\n"
    emulator.run("vm", setup + write + files["startup-script"], metadata=metadata, **GPU)
    eventually(lambda: "START" in emulator.serial("vm"), within_s=60)
    cloud.wait_for_message("vm-ready")


def test_a_program_that_saves_and_ends_is_replaced_at_once_though_the_window_is_an_hour_away(
    emulator: Emulator, cloud: Cloud
) -> None:
    boot(emulator, cloud, "raise SystemExit")
    emulator.fault("vm", "upcoming-maintenance")
    assert cloud.wait_for_message("maintenance").body["cause"] == "maintenance"
    assert "SAVED" in emulator.serial("vm")
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_stopping"


def test_a_program_that_goes_on_is_replaced_when_the_rest_of_the_notice_is_needed_for_that(
    emulator: Emulator, cloud: Cloud
) -> None:
    boot(emulator, cloud, "pass")
    announced_at = time.monotonic()
    emulator.fault("vm", "upcoming-maintenance", in_s=REPLACE_S + 4)
    eventually(lambda: "SAVED" in emulator.serial("vm"), within_s=60)
    told = cloud.wait_for_message("maintenance")
    assert told.at - announced_at > 2.5, "the time is told in whole seconds"
    assert [topic for topic, _ in cloud.said()] == ["vm-ready", "maintenance"], "it trains on"
    assert emulator.status("vm") == "RUNNING"
