"""The real gcloud against the emulator of Cloud TPU"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.compute.emulator import PROJECT
from tests.integration.tpu.slices import ONE_HOST, ZONE, Slices, a_create, a_tpu_job, parent
from tests.support.gcloud import gcloud_environment, run_gcloud
from tests.support.stack import eventually
from trainmaster.core.model.purchase import FlexStart, Purchase
from trainmaster.gcp.tpu_fleet.nodes import resource
from trainmaster.gcp.tpu_fleet.queued_resource_spec import alpha_request, request
from trainmaster.gcp.vm_defaults import VmDefaults


class Gcloud:
    def __init__(self, endpoint: str, folder: Path) -> None:
        self._environment = gcloud_environment(folder, PROJECT, {"tpu": endpoint})

    def run(self, *arguments: str, track: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return run_gcloud(*track, "compute", "tpus", *arguments, environment=self._environment)

    def tpu_vm(self, *arguments: str) -> str:
        done = self.run("tpu-vm", *arguments, f"--zone={ZONE}")
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def gcloud(slices: Slices, tmp_path: Path) -> Gcloud:
    return Gcloud(slices.compute.endpoint, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_gcloud_lists_updates_and_deletes_slices(slices: Slices, gcloud: Gcloud) -> None:
    slices.run("mine", tpu=ONE_HOST, labels={"trainmaster-job": "digits"}, metadata={"a": "1"})
    slices.run("other", tpu=ONE_HOST)
    listed = json.loads(
        gcloud.tpu_vm("list", "--filter=labels.trainmaster-job=digits", "--format=json")
    )
    assert [(node["name"].rpartition("/")[2], node["state"]) for node in listed] == [
        ("mine", "READY")
    ]
    assert "v5litepod-4" in gcloud.tpu_vm("list")
    described = json.loads(gcloud.tpu_vm("describe", "mine", "--format=json"))
    assert described["id"] == str(slices.get("mine").id)
    assert described["acceleratorConfig"] == {"topology": "2x2", "type": "V5LITE_POD"}
    gcloud.tpu_vm("update", "mine", "--update-metadata=b=2")
    eventually(lambda: dict(slices.get("mine").metadata)["b"] == "2")
    assert dict(slices.get("mine").metadata)["a"] == "1"
    gcloud.tpu_vm("delete", "mine", "--quiet")
    assert slices.state("mine") == "DELETED"
    assert slices.state("other") == "READY"
    missing = gcloud.run("tpu-vm", "describe", "mine", f"--zone={ZONE}")
    assert missing.returncode == 1
    assert "was not found" in missing.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_gcloud_creates_a_slice_and_shows_a_stockout(slices: Slices, gcloud: Gcloud) -> None:
    create = ("--accelerator-type=v5litepod-4", "--version=v2-alpha-tpuv5-lite")
    gcloud.tpu_vm("create", "created", *create)
    assert slices.state("created") == "READY"
    slices.compute.faults(stockout_zones=[ZONE])
    failed = gcloud.run("tpu-vm", "create", "more", *create, f"--zone={ZONE}")
    assert failed.returncode == 1
    assert "There is no more capacity in the zone" in failed.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_gcloud_creates_and_deletes_a_queued_resource(slices: Slices, gcloud: Gcloud) -> None:
    def queued(*arguments: str) -> str:
        done = gcloud.run("queued-resources", *arguments, f"--zone={ZONE}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    slices.compute.faults(stockout_zones=[ZONE])
    kind = ("--accelerator-type=v5litepod-4", "--runtime-version=v2-alpha-tpuv5-lite")
    queued("create", "mine", "--node-id=mine", *kind, "--spot", "--valid-until-duration=1h")
    described = json.loads(queued("describe", "mine", "--format=json"))
    assert described["state"]["state"] == "WAITING_FOR_RESOURCES"
    assert described["tpu"]["nodeSpec"][0]["nodeId"] == "mine"
    assert described["spot"] == {}
    slices.compute.faults()
    eventually(lambda: slices.queue_state("mine") == "ACTIVE", 30)
    assert "ACTIVE" in queued("list")
    failed = gcloud.run("queued-resources", "delete", "mine", f"--zone={ZONE}", "--quiet")
    assert "delete is not supported while in state ACTIVE" in failed.stderr
    queued("delete", "mine", "--force", "--quiet")
    assert (slices.queue_state("mine"), slices.state("mine")) == ("DELETED", "DELETED")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_flex_start_request_has_the_fields_of_gclouds_request(
    slices: Slices, gcloud: Gcloud
) -> None:
    """The client library has no fields for flex-start; gcloud's alpha commands do."""
    slices.compute.faults(stockout_zones=[ZONE])
    kind = (
        "--accelerator-type=v5litepod-4",
        "--runtime-version=v2-alpha-tpuv5-lite",
        "--provisioning-model=flex-start",
    )
    limits = ("--max-run-duration=3h", "--valid-until-duration=6h")
    create = (
        "queued-resources",
        "create",
        "mine",
        "--node-id=mine",
        f"--zone={ZONE}",
        *kind,
        *limits,
    )
    assert gcloud.run(*create, track=("alpha",)).returncode == 0
    by_gcloud = slices.compute.call(f"/v2alpha1/{parent()}/queuedResources/mine")
    job = a_tpu_job(ONE_HOST, purchase=Purchase(FlexStart(), is_queued=True), max_running_s=7200)
    queued_resource = request(
        parent(),
        job,
        a_create(job),
        resource(
            job, a_create(job), VmDefaults("p", service_account="", network="n", subnetwork=""), {}
        ),
    )
    ours = alpha_request(queued_resource, FlexStart(), job.plan)
    assert ours is not None
    assert {name: by_gcloud[name] for name in ("provisioningModel", "runDuration")} == {
        name: ours[name] for name in ("provisioningModel", "runDuration")
    }
    assert set(ours) == set(by_gcloud) - {"name", "createTime", "state"}
    assert set(ours["tpu"]["nodeSpec"][0]) == set(by_gcloud["tpu"]["nodeSpec"][0])
