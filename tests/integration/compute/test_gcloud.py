"""The real gcloud against the emulator, in one story: each call takes a second or two."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.compute.emulator import OTHER_ZONE, PROJECT, ZONE, Emulator, an_instance, eventually


class Gcloud:
    def __init__(self, emulator: Emulator, folder: Path) -> None:
        token = folder / "token"
        token.write_text("not-a-secret")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK_", "GOOGLE_"))}
        self._environment = {
            **kept,
            "CLOUDSDK_CONFIG": str(folder / "config"),
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{emulator.endpoint}/compute/v1/",
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = ["gcloud", "compute", *arguments]
        return subprocess.run(argv, env=self._environment, capture_output=True, text=True, timeout=60, check=False)

    def instances(self, *arguments: str) -> str:
        done = self.run("instances", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def gcloud(emulator: Emulator, tmp_path: Path) -> Gcloud:
    return Gcloud(emulator, tmp_path)


def test_looking_at_vms(emulator: Emulator, gcloud: Gcloud) -> None:
    emulator.run("vm-a", "echo hello from the script; sleep 600", labels={"trainmaster-job": "digits"})
    emulator.run("vm-b", labels={"trainmaster-job": "other"})
    found = json.loads(gcloud.instances("list", "--filter=labels.trainmaster-job=digits", "--format=json"))
    assert [(each["name"], each["status"]) for each in found] == [("vm-a", "RUNNING")]
    shown = json.loads(gcloud.instances("describe", "vm-a", f"--zone={ZONE}", "--format=json"))
    assert shown["id"] == str(emulator.get("vm-a").id)
    eventually(lambda: "hello" in emulator.serial("vm-a"))
    assert "hello from the script" in gcloud.instances("get-serial-port-output", "vm-a", f"--zone={ZONE}")
    missing = gcloud.run("instances", "describe", "nobody", f"--zone={ZONE}")
    assert missing.returncode == 1
    assert f"The resource 'projects/{PROJECT}/zones/{ZONE}/instances/nobody' was not found" in missing.stderr


def test_changing_vms(emulator: Emulator, gcloud: Gcloud) -> None:
    emulator.run("vm", "echo up; sleep 600")
    gcloud.instances("add-metadata", "vm", f"--zone={ZONE}", "--metadata=key=value")
    assert {item.key: item.value for item in emulator.get("vm").metadata.items}["key"] == "value"
    gcloud.instances("reset", "vm", f"--zone={ZONE}")
    gcloud.instances("stop", "vm", f"--zone={ZONE}")
    assert emulator.status("vm") == "TERMINATED"
    gcloud.instances("start", "vm", f"--zone={ZONE}")
    assert emulator.status("vm") == "RUNNING"
    gcloud.instances("simulate-maintenance-event", "vm", f"--zone={ZONE}")
    assert emulator.status("vm") == "TERMINATED"


def test_creating_and_deleting_several_in_two_zones_at_once(emulator: Emulator, gcloud: Gcloud) -> None:
    """More than one goes through the batch endpoint."""
    gcloud.instances("create", "a", "b", f"--zone={ZONE}", "--machine-type=e2-standard-2", "--image=image")
    resource = an_instance("c", "", machine_type="n1-standard-1")
    emulator.done(
        emulator.instances.insert_unary(project=PROJECT, zone=OTHER_ZONE, instance_resource=resource), OTHER_ZONE
    )
    assert emulator.names() == {"a", "b", "c"}
    gcloud.instances("delete", "a", "b", f"--zone={ZONE}", "--quiet")
    assert emulator.names() == {"c"}


def test_a_stockout_is_shown_with_the_zones_that_have_capacity(emulator: Emulator, gcloud: Gcloud) -> None:
    emulator.faults(stockout_zones=[ZONE])
    refused = gcloud.run("instances", "create", "a", f"--zone={ZONE}", "--machine-type=e2-standard-2", "--image=image")
    assert refused.returncode == 1
    assert "code: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS" in refused.stderr
    assert "zonesAvailable: us-central1-b,us-central1-c,us-central1-f" in refused.stderr
