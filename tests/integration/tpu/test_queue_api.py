"""Queued resources through Cloud TPU's own client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.rpc import code_pb2

from tests.integration.tpu.slices import ZONE, Slices, parent
from tests.support.stack import eventually

PATH = f"{parent()}/queuedResources"


def delete(slices: Slices, name: str, *, force: bool) -> Any:
    return slices.client.delete_queued_resource(
        tpu_v2.DeleteQueuedResourceRequest(name=f"{PATH}/{name}", force=force)
    )


def wait_for_state(slices: Slices, name: str, state: str) -> None:
    eventually(lambda: slices.queue_state(name) == state, 30)


def test_request_waits_for_capacity_and_becomes_a_node(slices: Slices) -> None:
    slices.compute.faults(stockout_zones=[ZONE])
    future = slices.enqueue("q", spot={})
    assert slices.done(future).response.value
    assert slices.queue_state("q") == "WAITING_FOR_RESOURCES"
    assert slices.state("q") == "DELETED"
    assert [queued.name for queued in slices.all_queued()] == [f"{PATH}/q"]
    slices.compute.faults()
    wait_for_state(slices, "q", "ACTIVE")
    node = slices.get("q")
    assert (node.state.name, node.queued_resource, node.scheduling_config.spot) == (
        "READY",
        f"{PATH}/q",
        True,
    )


def test_request_fails_at_its_time_limit(slices: Slices) -> None:
    slices.compute.faults(stockout_zones=[ZONE])
    until = datetime.now(UTC) + timedelta(seconds=1)
    slices.enqueue("q", queueing_policy={"valid_until_time": until})
    wait_for_state(slices, "q", "FAILED")
    error = slices.queued("q").state.failed_data.error
    assert (error.code, error.message) == (
        code_pb2.DEADLINE_EXCEEDED,
        "The resources were not available before the valid-until time.",
    )
    slices.compute.faults()
    with pytest.raises(exceptions.Conflict, match="already exists"):
        slices.enqueue("q")


def test_request_for_an_existing_node_name_fails(slices: Slices) -> None:
    slices.run("q")
    slices.enqueue("q")
    wait_for_state(slices, "q", "FAILED")
    assert "already exists" in slices.queued("q").state.failed_data.error.message
    slices.done(delete(slices, "q", force=True))
    assert slices.state("q") == "READY", "the other node of that name stays"


def test_preempted_node_suspends_its_request_and_is_deleted_with_it(slices: Slices) -> None:
    slices.enqueue("q", spot={})
    wait_for_state(slices, "q", "ACTIVE")
    with pytest.raises(
        exceptions.BadRequest, match="delete is not supported while in state ACTIVE"
    ):
        delete(slices, "q", force=False)
    slices.fault("q", "preempt", notice_s=0.1)
    wait_for_state(slices, "q", "SUSPENDED")
    assert slices.queued("q").state.state_initiator.name == "SERVICE"
    assert slices.state("q") == "PREEMPTED"
    slices.done(delete(slices, "q", force=True))
    assert (slices.queue_state("q"), slices.state("q")) == ("DELETED", "DELETED")


def test_deleted_node_suspends_its_request(slices: Slices) -> None:
    slices.enqueue("q")
    wait_for_state(slices, "q", "ACTIVE")
    slices.done(slices.client.delete_node(name=f"{parent()}/nodes/q"))
    wait_for_state(slices, "q", "SUSPENDED")
    assert slices.queued("q").state.state_initiator.name == "USER"
    slices.done(delete(slices, "q", force=False))
    assert slices.queue_state("q") == "DELETED"


def test_waiting_request_is_deleted_without_force(slices: Slices) -> None:
    slices.compute.faults(stockout_zones=[ZONE])
    slices.done(slices.enqueue("q"))
    slices.done(delete(slices, "q", force=False))
    with pytest.raises(exceptions.NotFound):
        delete(slices, "q", force=True)
    slices.compute.faults()
    assert slices.nodes() == [], "no node is created for a deleted request"


def test_flex_start_needs_the_alpha_api_and_ends_at_its_run_limit(slices: Slices) -> None:
    node = {
        "acceleratorType": "v5litepod-4",
        "runtimeVersion": "v2-alpha-tpuv5-lite",
        "metadata": {"startup-script": "sleep 9"},
    }
    body = {
        "tpu": {"nodeSpec": [{"parent": parent(), "nodeId": "q", "node": node}]},
        "provisioningModel": "FLEX_START",
        "runDuration": {"maxRunDuration": "2s"},
    }
    with pytest.raises(OSError, match="400"):
        slices.compute.call(f"/v2/{PATH}?queuedResourceId=q", body)
    slices.compute.call(f"/v2alpha1/{PATH}?queuedResourceId=q", body)
    wait_for_state(slices, "q", "SUSPENDED")
    assert slices.state("q") == "DELETED"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tpu": {}}, "Exactly one node spec"),
        ({"queueing_policy": {"valid_until_time": datetime(2020, 1, 1, tzinfo=UTC)}}, "has passed"),
        (
            {
                "tpu": {
                    "node_spec": [
                        {"parent": parent(), "node_id": "q", "node": {"runtime_version": "r"}}
                    ]
                }
            },
            "accelerator",
        ),
    ],
)
def test_invalid_queued_resource_fails_the_call(
    slices: Slices, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(exceptions.BadRequest, match=words):
        slices.enqueue("q", **changes)
    assert slices.all_queued() == []
