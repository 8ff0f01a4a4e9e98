"""What each function may, against what its code does: topics that it publishes to, and calls of Compute Engine."""

from __future__ import annotations

import re
from typing import Final

import grimp
import pytest

from emulators.stack.state import ROOT
from infra import stage
from shared.messaging import topics
from tests.infra import iam_table
from tests.infra.conftest import Plan

PUBLISHED: Final = re.compile(r"\bpublish\(\s*topics\.(\w+)")
RECORDED: Final = re.compile(r"\brecord\(")
CALLED: Final = re.compile(r"self\._(instances|zones|regions|policies)\.(\w+)\(")
PERMISSIONS: Final = {
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
    "instances.get_serial_port_output": {"compute.instances.getSerialPortOutput"},
    "instances.set_metadata_unary": {"compute.instances.setMetadata"},
    "policies.delete_unary": {"compute.resourcePolicies.delete"},
    "policies.insert_unary": {"compute.resourcePolicies.create"},
    "regions.wait": {"compute.regionOperations.get"},
    "zones.list": {"compute.zoneOperations.list"},
    "zones.wait": {"compute.zoneOperations.get"},
}
"""Source: Compute Engine's REST reference, "IAM permissions"; of an insert, as far as what we send needs it."""
BESIDES: Final = {
    "compute.disks.setLabels": "labels of boot disks",
    "compute.networks.get": "a network that is named, without a subnetwork",
    "compute.reservations.get": "machines of a reservation",
    "compute.reservations.list": "machines of a reservation",
    "compute.resourcePolicies.get": "a placement that was made by the delivery before",
    "compute.resourcePolicies.use": "VMs in a compact placement",
}


def flows(function: str, graph: grimp.ImportGraph) -> str:
    """What it is made of. `upload` has the others' dependencies at hand, and records nothing."""
    archive = stage.sources(function, graph)
    names = ["shared/flows/upload.py"] if function == "upload" else [name for name in archive if name.endswith(".py")]
    return "".join(archive[name].decode() for name in names)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("functions", "shared", cache_dir=None, exclude_type_checking_imports=True)


@pytest.mark.parametrize("function", stage.FUNCTIONS)
def test_a_function_may_publish_to_what_it_publishes_to(function: str, graph: grimp.ImportGraph) -> None:
    published = set(PUBLISHED.findall(flows(function, graph))) - {"DEAD_LETTER"}
    granted = re.search(rf"(?m)^    {function} += \[(.*)\]$", (ROOT / "infra" / "iam.tf").read_text(encoding="utf-8"))
    assert granted is not None
    desired = {getattr(topics, name).removeprefix("trainmaster-") for name in published}
    assert desired == set(re.findall(r'"([\w-]+)"', granted[1]))


@pytest.mark.parametrize("function", stage.FUNCTIONS)
def test_a_function_may_read_the_jobs_that_it_looks_at_and_write_those_that_it_changes(
    function: str, graph: grimp.ImportGraph
) -> None:
    text = flows(function, graph)
    assert "deps.store" in text
    desired = "roles/datastore.user" if RECORDED.search(text) else "roles/datastore.viewer"
    granted = {each.role for each in iam_table.grants() if each.who == f"function {function}"}
    assert {role for role in granted if role.startswith("roles/datastore.")} == {desired}


def test_provision_may_make_the_calls_that_it_makes_and_no_others(plan: Plan) -> None:
    text = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "shared" / "gcp" / "compute_fleet").glob("*.py")
    )
    called = {f"{client}.{method}" for client, method in CALLED.findall(text)}
    assert called == set(PERMISSIONS), "say here what a new call needs"
    (role,) = [
        each["permissions"]
        for each in plan.of("google_project_iam_custom_role").values()
        if each["role_id"] == "trainmasterProvisioner"
    ]
    needed = set().union(*PERMISSIONS.values())
    assert needed - set(role) == set()
    assert set(role) - needed - set(BESIDES) == set()
