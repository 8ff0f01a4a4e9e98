"""The Cloud TPU API through its own client."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf import field_mask_pb2
from google.rpc import code_pb2

from tests.integration.compute.emulator import PROJECT
from tests.integration.tpu.slices import ONE_HOST, OTHER_ZONE, RUNTIME, ZONE, Slices, parent


def test_locations_types_and_versions_are_listed(slices: Slices) -> None:
    locations = slices.client.list_locations({"name": f"projects/{PROJECT}"}).locations
    assert {ZONE, OTHER_ZONE, "us-central2-b"} <= {location.location_id for location in locations}
    types = {kind.type_: kind for kind in slices.client.list_accelerator_types(parent=parent())}
    assert "v5litepod-16" in types
    assert types["v5litepod-16"].accelerator_configs[0].topology == "4x4"
    assert types["v5litepod-16"].accelerator_configs[0].type_.name == "V5LITE_POD"
    assert "v4-8" not in types
    assert "v4-8" in {
        kind.type_ for kind in slices.client.list_accelerator_types(parent=parent("us-central2-b"))
    }
    assert RUNTIME in {
        runtime.version for runtime in slices.client.list_runtime_versions(parent=parent())
    }


def test_node_has_the_requested_properties(slices: Slices) -> None:
    requested = tpu_v2.Node(
        accelerator_config=tpu_v2.AcceleratorConfig(type_="V5LITE_POD", topology="2x2"),
        runtime_version=RUNTIME,
        labels={"team": "vision"},
        metadata={"key": "value"},
        scheduling_config=tpu_v2.SchedulingConfig(spot=True),
        service_account=tpu_v2.ServiceAccount(email="worker@example.com", scope=["s"]),
        network_config=tpu_v2.NetworkConfig(network="projects/p/global/networks/default"),
    )
    slices.done(slices.client.create_node(parent=parent(), node_id="n", node=requested))
    node = slices.get("n")
    assert node.accelerator_type == "v5litepod-4"
    assert (node.state.name, node.health.name, node.api_version.name) == ("READY", "HEALTHY", "V2")
    for field in (
        "labels",
        "metadata",
        "scheduling_config",
        "service_account",
        "network_config",
        "runtime_version",
    ):
        assert getattr(node, field) == getattr(requested, field), field
    assert node.id
    assert node.create_time


def test_operation_has_its_target_and_can_be_deleted(slices: Slices) -> None:
    future = slices.client.create_node(
        parent=parent(),
        node_id="n",
        node=tpu_v2.Node(accelerator_type="v5litepod-4", runtime_version=RUNTIME),
    )
    operation = slices.done(future)
    metadata = tpu_v2.OperationMetadata()
    assert operation.metadata.Unpack(tpu_v2.OperationMetadata.pb(metadata))
    assert (metadata.target, metadata.verb, metadata.api_version) == (
        f"{parent()}/nodes/n",
        "create",
        "v2",
    )
    assert metadata.end_time >= metadata.create_time
    assert future.result(timeout=10).name == f"{parent()}/nodes/n", "the client's future ends, too"
    listed = slices.client.list_operations(
        operations_pb2.ListOperationsRequest(name=parent())
    ).operations
    assert operation.name in {item.name for item in listed}
    slices.client.delete_operation(operations_pb2.DeleteOperationRequest(name=operation.name))
    with pytest.raises(exceptions.NotFound):
        slices.client.get_operation(operations_pb2.GetOperationRequest(name=operation.name))


def test_failed_operation_has_a_status(slices: Slices) -> None:
    slices.compute.faults(stockout_zones=[ZONE])
    future = slices.client.create_node(
        parent=parent(),
        node_id="n",
        node=tpu_v2.Node(accelerator_type="v5litepod-4", runtime_version=RUNTIME),
    )
    operation = slices.done(future)
    assert operation.error.code == code_pb2.RESOURCE_EXHAUSTED
    assert f'There is no more capacity in the zone "{ZONE}"' in operation.error.message
    assert slices.state("n") == "DELETED"
    with pytest.raises(exceptions.GoogleAPICallError, match="no more capacity"):
        future.result(timeout=10)


def test_nodes_of_one_zone_and_of_all_zones_are_listed_in_pages(slices: Slices) -> None:
    slices.run("a", tpu=ONE_HOST)
    node = tpu_v2.Node(accelerator_type="v5litepod-4", runtime_version=RUNTIME)
    slices.done(slices.client.create_node(parent=parent(OTHER_ZONE), node_id="b", node=node))
    assert [node.name.rpartition("/")[2] for node in slices.client.list_nodes(parent=parent())] == [
        "a"
    ]
    assert [node.name.rpartition("/")[2] for node in slices.nodes()] == ["a", "b"]
    pages = slices.client.list_nodes(tpu_v2.ListNodesRequest(parent=parent("-"), page_size=1)).pages
    assert [len(page.nodes) for page in pages] == [1, 1]


GOOD = {"accelerator_type": "v5litepod-4", "runtime_version": RUNTIME}


@pytest.mark.parametrize(
    ("node_id", "zone", "node", "error", "words"),
    [
        ("n", ZONE, {"runtime_version": RUNTIME}, exceptions.BadRequest, "accelerator_type"),
        ("n", ZONE, {"accelerator_type": "v5litepod-4"}, exceptions.BadRequest, "runtime version"),
        (
            "n",
            ZONE,
            {**GOOD, "accelerator_type": "v4-8"},
            exceptions.BadRequest,
            "v4-8 was not found in zone",
        ),
        ("n", ZONE, {**GOOD, "runtime_version": "v0"}, exceptions.NotFound, "v0"),
        ("n", ZONE, {**GOOD, "labels": {"A": "b"}}, exceptions.BadRequest, "Invalid label"),
        (
            "n",
            ZONE,
            {**GOOD, "metadata": {"a": "x" * 300_000}},
            exceptions.BadRequest,
            "262144 bytes",
        ),
        (
            "n",
            ZONE,
            {**GOOD, "scheduling_config": {"spot": True, "reserved": True}},
            exceptions.BadRequest,
            "both",
        ),
        ("-", ZONE, GOOD, exceptions.BadRequest, "Invalid node id"),
        (
            "n",
            "us-nowhere1-a",
            GOOD,
            exceptions.Forbidden,
            "Permission denied on 'locations/us-nowhere1-a'",
        ),
    ],
)
def test_invalid_request_fails_the_call(
    slices: Slices,
    node_id: str,
    zone: str,
    node: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        slices.client.create_node(parent=parent(zone), node_id=node_id, node=tpu_v2.Node(node))
    assert slices.nodes() == []


def test_duplicate_name_missing_node_and_wrong_state_fail_the_call(slices: Slices) -> None:
    node = slices.run("n", tpu=ONE_HOST)
    with pytest.raises(exceptions.Conflict, match="already exists"):
        slices.client.create_node(parent=parent(), node_id="n", node=tpu_v2.Node(GOOD))
    for call in (slices.client.get_node, slices.client.delete_node):
        with pytest.raises(exceptions.NotFound, match="was not found"):
            call(name=f"{parent()}/nodes/other")
    with pytest.raises(exceptions.BadRequest, match="start is not supported while in state READY"):
        slices.client.start_node({"name": node.name})


def test_update_replaces_all_metadata_and_nothing_else(slices: Slices) -> None:
    node = slices.run("n", tpu=ONE_HOST, metadata={"a": "1", "b": "2"})
    changed = tpu_v2.Node(name=node.name, metadata={"a": "3"}, runtime_version="other")
    mask = field_mask_pb2.FieldMask(paths=["metadata"])
    slices.done(slices.client.update_node(node=changed, update_mask=mask))
    assert dict(slices.get("n").metadata) == {"a": "3"}
    assert slices.get("n").runtime_version == RUNTIME
    with pytest.raises(exceptions.BadRequest, match="Cannot update runtimeVersion"):
        slices.client.update_node(
            node=changed, update_mask=field_mask_pb2.FieldMask(paths=["runtime_version"])
        )
