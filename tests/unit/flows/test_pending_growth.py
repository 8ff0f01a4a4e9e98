"""Ledger entries are confirmed while VMs are missing.

An entry of a job's ledger is pending until what it orders, such as a request for VMs, has happened.
Each delivery of a message for the job reads all pending ones. If entries stayed pending as long as
there is no capacity (a stockout), their number would grow with its length.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_1, a_spec
from tests.support.world import World
from tests.unit.flows.test_hang_in_stockout import lose
from trainmaster.core.model.vm_names import vm_name

A, B = "us-central1-a", "us-central1-b"
HOURS = 12


def pass_hours(world: World, hours: int = HOURS) -> list[int]:
    """Return how many entries were pending after each minute's sweep."""
    pending = []
    for _ in range(60 * hours):
        world.wait(60)
        world.sweep()
        world.deliver()
        pending.append(len(world.store.pending_keys(world.job_id)))
    return pending


@pytest.mark.parametrize(
    "options",
    [{"elastic": {"minReplicas": 2}}, {"gang": False, "independentReplicas": True}, {}],
    ids=["elastic", "optional", "gang that moves"],
)
def test_pending_growth_in_a_stockout_of_twelve_hours_is_one_entry_at_most(
    options: dict[str, Any],
) -> None:
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A], **options}})
    world.deliver()
    world.report_all_ready()
    world.deliver()
    lose(world, WORKER_1)
    assert max(pass_hours(world)) <= 1
    world.check()


def test_pending_growth_in_a_search_before_running_is_one_entry_at_most() -> None:
    world = World()
    world.fleet.stockout_zones = {A, B}
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B]}})
    world.deliver()
    assert max(pass_hours(world)) <= 1
    assert len(world.ledger) > HOURS


def test_pending_growth_in_the_queue_of_cloud_tpu_is_no_entry() -> None:
    world = World()
    image = {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"}
    machine = {"machineType": "ct5lp-hightpu-8t"}
    pool = {"machineSpec": machine, "replicaCount": 1, "containerSpec": image}
    extension = {"region": "us-west4", "queue": "standard"}
    world.submit(
        {
            "displayName": "digits_1",
            "jobSpec": {"workerPoolSpecs": [pool]},
            "trainmaster": extension,
        }
    )
    world.deliver()
    assert set(pass_hours(world)) == {0}  # the request is in the queue, and that is all it orders
    world.fleet.admit(vm_name(world.job_id, CHIEF))
    world.report_all_ready()
    world.deliver()
    assert world.state == "RUNNING"
