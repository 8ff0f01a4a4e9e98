"""The real gcloud against the Compute emulator"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.compute.emulator import OTHER_ZONE, PROJECT, ZONE, Emulator, an_instance
from tests.support.gcloud import gcloud_environment, run_gcloud
from tests.support.stack import eventually


class Gcloud:
    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self._environment = gcloud_environment(
            folder, PROJECT, {"compute": f"{emulator.endpoint}/compute/v1"}
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_gcloud("compute", *arguments, environment=self._environment)

    def instances(self, *arguments: str) -> str:
        done = self.run("instances", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def gcloud(emulator: Emulator, tmp_path: Path) -> Gcloud:
    return Gcloud(emulator, tmp_path)


def test_gcloud_lists_and_describes_vms(emulator: Emulator, gcloud: Gcloud) -> None:
    emulator.run(
        "vm-a", "echo hello from the script; sleep 600", labels={"trainmaster-job": "digits"}
    )
    emulator.run("vm-b", labels={"trainmaster-job": "other"})
    listed = json.loads(
        gcloud.instances("list", "--filter=labels.trainmaster-job=digits", "--format=json")
    )
    assert [(vm["name"], vm["status"]) for vm in listed] == [("vm-a", "RUNNING")]
    described = json.loads(gcloud.instances("describe", "vm-a", f"--zone={ZONE}", "--format=json"))
    assert described["id"] == str(emulator.get("vm-a").id)
    eventually(lambda: "hello" in emulator.serial("vm-a"))
    assert "hello from the script" in gcloud.instances(
        "get-serial-port-output", "vm-a", f"--zone={ZONE}"
    )
    missing = gcloud.run("instances", "describe", "missing", f"--zone={ZONE}")
    assert missing.returncode == 1
    assert (
        f"The resource 'projects/{PROJECT}/zones/{ZONE}/instances/missing' was not found"
        in missing.stderr
    )


def test_gcloud_changes_and_restarts_vms(emulator: Emulator, gcloud: Gcloud) -> None:
    emulator.run("vm", "echo up; sleep 600")
    gcloud.instances("add-metadata", "vm", f"--zone={ZONE}", "--metadata=key=value")
    assert {item.key: item.value for item in emulator.get("vm").metadata.items}["key"] == "value"
    gcloud.instances("reset", "vm", f"--zone={ZONE}")
    gcloud.instances("stop", "vm", f"--zone={ZONE}")
    assert emulator.status("vm") == "TERMINATED"
    gcloud.instances("start", "vm", f"--zone={ZONE}")
    assert emulator.status("vm") == "RUNNING"
    gcloud.instances("simulate-maintenance-event", "vm", f"--zone={ZONE}")
    assert emulator.status("vm") == "TERMINATED", "VMs of jobs do not migrate live"


def test_gcloud_creates_and_deletes_several_vms_by_batch_requests(
    emulator: Emulator, gcloud: Gcloud
) -> None:
    gcloud.instances(
        "create", "a", "b", f"--zone={ZONE}", "--machine-type=e2-standard-2", "--image=image"
    )
    resource = an_instance("c", script="", machine_type="n1-standard-1")
    emulator.done(
        emulator.instances.insert_unary(
            project=PROJECT, zone=OTHER_ZONE, instance_resource=resource
        ),
        OTHER_ZONE,
    )
    assert emulator.names() == {"a", "b", "c"}
    gcloud.instances("delete", "a", "b", f"--zone={ZONE}", "--quiet")
    assert emulator.names() == {"c"}


def test_gcloud_shows_a_stockout_with_the_available_zones(
    emulator: Emulator, gcloud: Gcloud
) -> None:
    emulator.faults(stockout_zones=[ZONE])
    failed = gcloud.run(
        "instances",
        "create",
        "a",
        f"--zone={ZONE}",
        "--machine-type=e2-standard-2",
        "--image=image",
    )
    assert failed.returncode == 1
    assert "code: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS" in failed.stderr
    assert "zonesAvailable: us-central1-b,us-central1-c,us-central1-f" in failed.stderr
