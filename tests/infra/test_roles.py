"""The roles of each function, compared with its code: topics that it publishes to, and calls of
Compute Engine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import grimp
import pytest

from infra import stage
from tests.infra import iam_table
from tests.infra.conftest import Plan
from trainmaster.messaging import topics
from trainmaster_emulators.checkout import ROOT

OPERATOR: Final = "console_operator"
"""The service of the function `console` whose users may act. tests/infra/test_console.py covers the
other one.
"""
COMPUTE_CLIENTS: Final = ("_instances", "_zones", "_regions", "_policies", "_advice")
PERMISSIONS: Final = {
    "advice.capacity": {"compute.advice.capacity"},
    "instances.aggregated_list": {"compute.instances.list"},
    "instances.bulk_insert_unary": {
        "compute.disks.create",
        "compute.images.useReadOnly",
        "compute.instances.create",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
        "compute.subnetworks.use",
    },
    "instances.delete_unary": {"compute.instances.delete"},
    "instances.get": {"compute.instances.get"},
    "instances.list": {"compute.instances.list"},
    "instances.get_guest_attributes": {"compute.instances.getGuestAttributes"},
    "instances.get_serial_port_output": {"compute.instances.getSerialPortOutput"},
    "instances.set_labels_unary": {"compute.instances.setLabels"},
    "instances.set_metadata_unary": {"compute.instances.setMetadata"},
    "policies.delete_unary": {"compute.resourcePolicies.delete"},
    "policies.insert_unary": {"compute.resourcePolicies.create"},
    "regions.wait": {"compute.regionOperations.get"},
    "zones.list": {"compute.zoneOperations.list"},
    "zones.wait": {"compute.zoneOperations.get"},
}
"""Client and method → permissions that the call needs.

For inserts, only those that our requests need.

Source: Compute Engine's REST reference, "IAM permissions".
"""
PERMISSIONS_FOR_ARGUMENTS: Final = {
    "compute.disks.setLabels": "labels of boot disks",
    "compute.networks.get": "an insert that names a network without a subnetwork",
    "compute.reservations.get": "VMs of a reservation",
    "compute.reservations.list": "VMs of a reservation",
    "compute.resourcePolicies.get": "a placement policy that an earlier delivery created",
    "compute.resourcePolicies.use": "VMs in a compact placement",
}
"""Permission → the argument of an insert that needs it."""


@cache  # the archives of ten functions share most modules
def calls(source: str) -> tuple[ast.Call, ...]:
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))


@cache
def published_topics(source: str) -> frozenset[str]:
    """Return NAME for each call `….publish(topics.NAME, …)`."""
    published = set()
    for call in calls(source):
        match call:
            case ast.Call(
                func=ast.Attribute(attr="publish"),
                args=[ast.Attribute(ast.Name("topics"), name), *_],
            ):
                published.add(name)
    return frozenset(published)


def compute_calls(source: str) -> Iterator[str]:
    """Yield `instances.get` for each method `self._instances.get`, called here or by a helper."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(ast.Attribute(ast.Name("self"), client), method) if (
                client in COMPUTE_CLIENTS and method != "transport"
            ):
                yield f"{client.removeprefix('_')}.{method}"


@cache
def records_events(source: str) -> bool:
    return any(
        isinstance(call.func, ast.Name) and call.func.id == "record" for call in calls(source)
    )


@pytest.fixture(scope="module")
def modules() -> dict[str, list[str]]:
    """Return the modules of each function's archive.

    Of those in `upload`, only its own flow publishes or records.
    """
    graph = grimp.build_graph(
        "functions", "trainmaster", cache_dir=None, exclude_type_checking_imports=True
    )
    own = {"upload": ["trainmaster/flows/upload.py"]}
    result = {}
    for function in stage.FUNCTIONS:
        archive = stage.sources(function, graph)
        names = own.get(function, [name for name in archive if name.endswith(".py")])
        result[function] = [archive[name].decode() for name in names]
    return result


def test_function_may_publish_to_exactly_the_topics_in_its_code(
    modules: dict[str, list[str]],
) -> None:
    local = iam_table.local_values()
    console = local["consoles"][OPERATOR]["publishes"]
    for function in stage.FUNCTIONS:
        names = {name for source in modules[function] for name in published_topics(source)} - {
            "DEAD_LETTER"
        }
        granted = iam_table.strings(
            console if function == "console" else local["publishes"][function]
        )
        assert {getattr(topics, name).removeprefix("trainmaster-") for name in names} == set(
            granted
        ), function


def test_function_may_write_to_the_database_only_if_it_records_events(
    modules: dict[str, list[str]],
) -> None:
    grants = iam_table.grants()
    for function in stage.FUNCTIONS:
        # The flow of `upload` leaves the store to the module that creates jobs.
        if function != "upload":
            assert any("deps.store" in source for source in modules[function]), function
        role = (
            "roles/datastore.user"
            if any(map(records_events, modules[function]))
            else "roles/datastore.viewer"
        )
        member = OPERATOR if function == "console" else f"function {function}"
        granted = {grant.role for grant in grants if grant.member == member}
        assert {name for name in granted if name.startswith("roles/datastore.")} == {role}, function


def test_provision_has_exactly_the_permissions_of_its_compute_calls(plan: Plan) -> None:
    folder: Path = ROOT / "shared" / "trainmaster" / "gcp" / "compute_fleet"
    methods = {
        name
        for path in folder.glob("*.py")
        for name in compute_calls(path.read_text(encoding="utf-8"))
    }
    assert methods == set(PERMISSIONS), "add the permissions of a new call to PERMISSIONS"
    granted = set[str]()
    for role in plan.of("google_project_iam_custom_role").values():
        if role["role_id"] in ("trainmasterProvisioner", "trainmasterCapacityAdviser"):
            granted.update(role["permissions"])
    needed = set().union(*PERMISSIONS.values())
    assert needed - granted == set()
    assert granted - needed - set(PERMISSIONS_FOR_ARGUMENTS) == set()
