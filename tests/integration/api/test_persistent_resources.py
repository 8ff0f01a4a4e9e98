"""Kept machines as persistent resources of Vertex AI: the API, and the real gcloud.

A job may keep its VMs for a later job, which takes all of them. The VMs have one set id in their
names, the id of the job that created them.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.integration.api.client import PROJECT, Api
from tests.integration.api.served import Gcloud
from tests.support.world import World
from trainmaster.core.model.machine_set import SetState

PLACE = ("--region=us-central1",)
LOCATIONS = f"/v1/projects/{PROJECT}/locations"
RESOURCES = f"{LOCATIONS}/us-central1/persistentResources"
SHOWN = "PersistentResource"
LISTED = "ListPersistentResourcesResponse"
POOL = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": "1",
    "containerSpec": {"imageUri": "gcr.io/p/i:1"},
}


def a_document(job_id: str, resource: str | None, **extension: object) -> dict[str, Any]:
    spec: dict[str, object] = {"workerPoolSpecs": [POOL]}
    if resource:
        spec["persistentResourceId"] = resource
    return {
        "jobId": job_id,
        "jobSpec": spec,
        "trainmaster": {"region": "us-central1", **extension},
    }


def run_job(world: World, document: dict[str, Any]) -> None:
    """Run the job of the world to its end. Its agents write heartbeats."""
    world.submit(document, source="cli:1/anna")
    world.deliver()
    world.taken_set_id = world.job.set_id
    world.report_all_ready()
    for vm in world.vms:
        world.fleet.beat(vm.name)
    world.exit_program(world.job.plan.primary, 0)
    world.deliver()


@pytest.fixture
def kept(world: World) -> World:
    run_job(world, a_document(world.job_id, "my-resource"))
    return world


def test_jobs_of_one_resource_take_its_machines_and_others_do_not(kept: World) -> None:
    assert kept.job.plan.keep_s == 300
    other = World("other", kept.now, kept.store, kept.bus, kept.fleet)
    run_job(other, a_document("other", resource=None, keepMachines="60s"))
    assert other.job.set_id == "other"
    assert "the persistent resource is my-resource" in other.ledger[1].decision.text
    same = World("same", other.now, kept.store, kept.bus, kept.fleet)
    run_job(same, a_document("same", "my-resource", keepMachines="60s"))
    assert (same.job.set_id, same.job.plan.keep_s) == (kept.job_id, 60)


def test_kept_machines_are_listed_shown_and_released(api: Api, kept: World) -> None:
    (listed,) = api.send_ok("GET", RESOURCES, schema=LISTED)["persistentResources"]
    assert listed == api.send_ok("GET", f"{RESOURCES}/my-resource", schema=SHOWN)
    assert listed["name"].endswith("/locations/us-central1/persistentResources/my-resource")
    (pool,) = listed["resourcePools"]
    assert pool["machineSpec"] == {"machineType": "n1-standard-4"}
    assert (pool["replicaCount"], pool["usedReplicaCount"]) == ("1", "0")
    assert listed["state"] == "RUNNING"
    assert api.send_ok("GET", f"{LOCATIONS}/europe-west4/persistentResources", schema=LISTED) == {}
    operation = api.send_ok(
        "DELETE", f"{RESOURCES}/my-resource", schema="GoogleLongrunningOperation"
    )
    assert operation["done"]
    kept.deliver()
    assert not kept.vms
    assert kept.store.load(kept.job_id).state.machine_set.state is SetState.RELEASED  # type: ignore[union-attr]
    assert api.send_ok("GET", RESOURCES, schema=LISTED) == {}
    for method in ("GET", "DELETE"):
        assert api.send_refused(method, f"{RESOURCES}/my-resource")["code"] == 404


def test_resource_of_a_job_without_the_field_has_the_name_of_the_job(
    api: Api, world: World
) -> None:
    run_job(world, a_document(world.job_id, resource=None, keepMachines="60s"))
    (listed,) = api.send_ok("GET", RESOURCES, schema=LISTED)["persistentResources"]
    assert listed["displayName"] == world.job_id


def test_resource_called_none_is_a_resource(api: Api, world: World) -> None:
    run_job(world, a_document(world.job_id, "none"))
    assert api.send_ok("GET", f"{RESOURCES}/none", schema=SHOWN)["displayName"] == "none"
    other = World("other", world.now, world.store, world.bus, world.fleet)
    run_job(other, a_document("other", resource=None, keepMachines="60s"))
    assert other.job.set_id == "other"


def test_resource_is_not_created_by_itself(api: Api) -> None:
    error = api.send_refused("POST", RESOURCES, {"resourcePools": []})
    assert (error["code"], error["status"]) == (501, "UNIMPLEMENTED")
    assert "jobSpec.persistentResourceId" in error["message"]


def test_gcloud_lists_describes_and_deletes(gcloud: Gcloud, kept: World) -> None:
    command = ("ai", "persistent-resources")
    listed = gcloud.run(*command, "list", *PLACE, "--format=value(displayName,state)")
    assert listed.stdout.split() == ["my-resource", "RUNNING"], listed.stderr
    described = gcloud.run(*command, "describe", "my-resource", *PLACE)
    assert yaml.safe_load(described.stdout)["resourcePools"][0]["replicaCount"] == "1"
    deleted = gcloud.run(*command, "delete", "my-resource", *PLACE, "--quiet")
    assert deleted.returncode == 0, deleted.stderr
    kept.deliver()
    assert not kept.vms
