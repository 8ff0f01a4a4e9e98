"""Scheduled host maintenance, as a VM's programs read it, and the agent's reaction."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.integration.agent.support.cloud import Cloud
from tests.integration.agent.support.vm import install_agent, vm_config
from tests.integration.compute.emulator import ZONE, Emulator
from tests.support.stack import eventually
from trainmaster.agent.shutdown.vm_shutdown_notice import REPLACEMENT_S
from trainmaster_emulators.machines.metadata_tree import Document, MetadataTree

GPU: dict[str, Any] = {
    "guest_accelerators": [
        {
            "accelerator_type": f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4",
            "accelerator_count": 1,
        }
    ]
}
KEY = "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/upcoming-maintenance?alt=json"
READ_KEY = f'curl -s -H Metadata-Flavor:Google "{KEY}"'


def test_vm_without_gpus_has_neither_the_key_nor_the_fault(emulator: Emulator) -> None:
    emulator.run("vm", f"{READ_KEY} -o /dev/null -w 'status %{{http_code}}\\n'; sleep 600")
    eventually(lambda: "status 404" in emulator.serial("vm"))
    with pytest.raises(HTTPError, match="400"):
        emulator.fault("vm", "upcoming-maintenance")


def test_maintenance_begins_at_the_start_of_the_announced_window(emulator: Emulator) -> None:
    watch = (
        f'{READ_KEY} -w "\\n"; until {READ_KEY} | grep window; do sleep 0.05; done; echo; sleep 600'
    )
    emulator.run("vm", watch, **GPU)
    eventually(lambda: "{}" in emulator.serial("vm"))
    before = datetime.now(UTC)
    announced = emulator.fault("vm", "upcoming-maintenance", notice_s=3)
    starts_at = datetime.fromisoformat(announced["window_start_time"])
    notice = timedelta(seconds=3)
    latest = datetime.now(UTC) + notice
    assert before + notice - timedelta(seconds=1) < starts_at <= latest, "in whole seconds"
    assert (announced["maintenance_status"], announced["type"]) == ("PENDING", "SCHEDULED")
    assert announced["can_reschedule"] == "true"
    eventually(lambda: json.dumps(announced) in emulator.serial("vm"))
    assert emulator.status("vm") == "RUNNING"
    eventually(lambda: emulator.status("vm") == "TERMINATED", within_s=30)
    assert datetime.now(UTC) >= starts_at


def test_maintenance_is_announced_an_hour_ahead_by_default(emulator: Emulator) -> None:
    emulator.run("vm", **GPU)
    announced = emulator.fault("vm", "upcoming-maintenance")
    ahead = datetime.fromisoformat(announced["window_start_time"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < ahead <= timedelta(hours=1)


def test_document_is_a_leaf_with_unchanged_keys() -> None:
    tree = MetadataTree({"instance": {"id": 1, "upcoming-maintenance": Document({"a_b": "c"})}})
    assert tree.get("instance/", {}).body == b"id\nupcoming-maintenance"
    for query in ({}, {"alt": "json"}, {"recursive": "true"}):
        assert json.loads(tree.get("instance/upcoming-maintenance", query).body) == {"a_b": "c"}
    assert json.loads(tree.get("", {"recursive": "true"}).body) == {
        "instance": {"id": 1, "upcomingMaintenance": {"a_b": "c"}}
    }
    assert (
        b'upcoming-maintenance {"a_b": "c"}'
        in tree.get("", {"recursive": "true", "alt": "text"}).body
    )


# The real agent in a VM of the emulator, with the fake Pub/Sub of the agent's tests.


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.close()


def boot(emulator: Emulator, cloud: Cloud, on_signal: str) -> None:
    """Start a VM with a GPU. Its program runs the statement `on_signal` when it receives the
    checkpoint signal.
    """
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
    files = install_agent(cloud)
    metadata = {
        "trainmaster-agent": files["trainmaster-agent"],
        "trainmaster-vm-config": json.dumps(
            vm_config(vm_names=["vm"], checkpoint_signal="SIGUSR1")
        ),
        "trainmaster-directive": json.dumps({"attempt": 1, "incarnation": 1, "action": "run"}),
    }
    variables = (
        f"TRAINMASTER_PUBSUB_ENDPOINT={cloud.host} STORAGE_EMULATOR_HOST={cloud.host}"
        " PYTHONPATH=$HOME"
    )
    setup = f"export {variables}\nmkdir -p $HOME/trainer\n"
    write = f"touch $HOME/trainer/__init__.py\ncat >$HOME/trainer/task.py <<'END'\n{program}END\n"
    emulator.run("vm", setup + write + files["startup-script"], metadata=metadata, **GPU)
    eventually(lambda: "START" in emulator.serial("vm"), within_s=60)
    cloud.wait_for_message("vm-ready")


def test_program_that_ends_after_saving_is_reported_lost_at_once(
    emulator: Emulator, cloud: Cloud
) -> None:
    boot(emulator, cloud, "raise SystemExit")
    emulator.fault("vm", "upcoming-maintenance")
    assert cloud.wait_for_message("maintenance").body["cause"] == "maintenance"
    assert "SAVED" in emulator.serial("vm")
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_stopping"


def test_program_that_continues_is_replaced_in_the_last_part_of_the_notice(
    emulator: Emulator, cloud: Cloud
) -> None:
    boot(emulator, cloud, "pass")
    announced_at = time.monotonic()
    before_last_part_s = 4
    emulator.fault("vm", "upcoming-maintenance", notice_s=REPLACEMENT_S + before_last_part_s)
    eventually(lambda: "SAVED" in emulator.serial("vm"), within_s=60)
    message = cloud.wait_for_message("maintenance")
    rounded_off_s = 1.5
    assert message.at - announced_at > before_last_part_s - rounded_off_s, (
        "the announcement has whole seconds"
    )
    assert [topic for topic, _ in cloud.published()] == [
        "vm-ready",
        "maintenance",
    ], "the program is still running"
    assert emulator.status("vm") == "RUNNING"
