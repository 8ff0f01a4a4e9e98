"""A job whose document this release cannot read: it stops no other job, and its VMs are
left alone.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest
from google.cloud.firestore import Client

from tests.support.captured_logs import CapturedLogs
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster.errors import TemporaryError
from trainmaster.flows import provision, sweep
from trainmaster.flows.provisioning import vm_check
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.messaging import internal_requests, topics

BAD = "from_the_future"
VCPUS_OF_THREE_JOBS = 36


@pytest.fixture(
    params=[{"schema": 3}, {"state": "SUSPENDED"}], ids=["another schema", "an unknown word"]
)
def world(request: pytest.FixtureRequest, client: Client) -> World:
    """Two jobs have VMs.

    A later release then writes one of them, and this release is installed again.
    """
    world = World(store=FirestoreStore(client), limits={"vcpus": VCPUS_OF_THREE_JOBS})  # type: ignore[arg-type]
    for job_id in (BAD, "digits_1"):
        world.job_id = job_id
        world.submit(a_spec(), f"gs://b/jobs/{job_id}.yaml#1")
        world.deliver()
    client.document(f"jobs/{BAD}").update(request.param)
    return world


def test_sweep_serves_the_other_jobs_and_reports_the_unreadable_one(
    world: World, caplog: CapturedLogs
) -> None:
    caplog.set_level(logging.ERROR)
    assert sweep.handle(world.deps) == ("digits_1",)
    world.deliver()
    assert any(
        "unreadable job" in entry.message and vars(entry)["job_id"] == BAD
        for entry in caplog.records
    )


def test_deadline_of_another_job_is_recorded(world: World) -> None:
    world.report_all_ready()
    world.wait(timedelta(days=8).total_seconds())  # longer than any job may run
    world.sweep()
    assert world.state == JobState.CANCELLED


def test_queued_jobs_are_admitted_and_passes_end(world: World) -> None:
    world.job_id = "next_1"
    world.submit(a_spec(), "gs://b/jobs/next.yaml#1")
    for _ in range(3):
        world.sweep()
        world.deliver()
    assert world.state == JobState.PREPARING
    assert world.bus.drain() == []


def test_vms_of_the_unreadable_job_are_neither_orphans_nor_deleted(world: World) -> None:
    vms = world.fleet.list_vms(BAD)
    assert vms
    world.wait(3600)
    world.bus.drain()
    for _ in range(3):
        world.wait(120)
        vm_check.handle(world.fleet_deps, world.deps)
    assert world.fleet.list_vms(BAD) == vms
    assert world.store.orphans() == ()
    requested = [
        json.loads(message.data)
        for message in world.bus.drain()
        if message.topic == topics.PROVISION
    ]
    assert BAD not in {request.get("job_id") for request in requested}


def test_request_for_the_unreadable_job_waits_for_a_release_that_can_read_it(world: World) -> None:
    with pytest.raises(TemporaryError):
        provision.handle(internal_requests.ProvisionRequest(BAD), world.fleet_deps, world.deps)
