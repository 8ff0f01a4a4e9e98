"""Shells on VMs in infra/: closed by default, and what `ssh_users` opens.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on, `reduced_plan`
nothing that can be left out (`conftest.py`).
"""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from tests.infra.conftest import SSH_USERS, Plan
from trainmaster import settings
from trainmaster.wiring import fleet

IAP: Final = "35.235.240.0/20"
"""Source: "Using IAP for TCP forwarding": the range that all its connections come from."""


def project_roles(plan: Plan, member: str) -> dict[str, str]:
    """Return role → condition of the project's grants to the member; empty for no condition."""
    grants = [
        grant
        for grant in plan.of("google_project_iam_member").values()
        if grant.get("member") == member
    ]
    return {
        grant["role"]: (grant["condition"] or [{"expression": ""}])[0]["expression"]
        for grant in grants
        if "role" in grant
    }


def grants_of(plan: Plan) -> dict[str, str]:
    """Return the grants of roles of our own to SSH_USERS: resource → its condition."""
    return {
        address.split(".")[1].partition("[")[0]: (grant["condition"] or [{"expression": ""}])[0][
            "expression"
        ]
        for address, grant in plan.of("google_project_iam_member").items()
        if grant.get("member") == SSH_USERS and "role" not in grant
    }


def permissions_of_roles(plan: Plan) -> dict[str, list[str]]:
    """Return the permissions of the roles that exist for SSH only."""
    return {
        role["role_id"].removeprefix("trainmaster"): role["permissions"]
        for address, role in plan.of("google_project_iam_custom_role").items()
        if "ssh" in address or "tpu_reader" in address
    }


TRAINING_VMS = (
    "resource.type != 'compute.googleapis.com/Instance' ||"
    " resource.name.extract('/instances/{name}').startsWith('tm-')"
)


def test_no_vm_accepts_connections_by_default(plan: Plan) -> None:
    assert not [
        rule
        for rule in plan.of("google_compute_firewall").values()
        if IAP in (rule.get("source_ranges") or ())
    ]
    assert not [name for name in plan.of("google_project_iam_member") if "ssh" in name]
    for function in plan.of("google_cloudfunctions2_function").values():
        assert function["service_config"][0]["environment_variables"]["TRAINMASTER_SSH"] == "false"


def test_permitted_users_reach_port_22_of_all_workers_through_identity_aware_proxy(
    plan: Plan, full_plan: Plan, reduced_plan: Plan
) -> None:
    rules = [
        rule
        for rule in full_plan.of("google_compute_firewall").values()
        if IAP in (rule.get("source_ranges") or ())
    ]
    assert {rule["network"] for rule in rules} == {
        "trainmaster",
        "trainmaster-finance",
        "trainmaster-research",
    }
    for rule in rules:
        assert rule["source_ranges"] == [IAP]
        assert [(allow["protocol"], allow["ports"]) for allow in rule["allow"]] == [("tcp", ["22"])]
    assert project_roles(full_plan, SSH_USERS) == {
        "roles/iap.tunnelResourceAccessor": "destination.port == 22",
    }
    assert grants_of(full_plan) == {"ssh_login": TRAINING_VMS, "ssh_tpu": ""}
    assert permissions_of_roles(full_plan) == {
        "SshUser": ["compute.instances.get", "compute.instances.osLogin", "compute.projects.get"],
        "TpuReader": ["tpu.nodes.get", "tpu.nodes.list"],
    }
    grants = full_plan.of("google_service_account_iam_member").values()
    assert [grant["role"] for grant in grants if grant.get("member") == SSH_USERS] == [
        "roles/iam.serviceAccountUser"
    ]
    services = {
        service["service"] for service in reduced_plan.of("google_project_service").values()
    }
    assert {"iap.googleapis.com", "oslogin.googleapis.com"} <= services
    settings_of_functions = full_plan.environments()
    assert {settings_of_functions[name]["TRAINMASTER_SSH"] for name in plan.environments()} == {
        "true"
    }


def test_sudo_requires_a_separate_role(reduced_plan: Plan) -> None:
    assert set(project_roles(reduced_plan, SSH_USERS)) == {"roles/iap.tunnelResourceAccessor"}
    assert grants_of(reduced_plan) == {"ssh_login": TRAINING_VMS, "ssh_sudo": TRAINING_VMS}
    roles = permissions_of_roles(reduced_plan)
    assert roles.keys() == {"SshUser", "SshAdministrator"}
    assert roles["SshAdministrator"] == ["compute.instances.osAdminLogin"]


def test_no_user_of_a_shell_may_list_vms(full_plan: Plan, reduced_plan: Plan) -> None:
    """A list shows the metadata of all VMs, and with it the variables of all jobs: no condition
    restricts it.
    """
    for plan in (full_plan, reduced_plan):
        permissions = [*itertools.chain(*permissions_of_roles(plan).values())]
        assert [name for name in permissions if "instances" in name and ".list" in name] == []


@pytest.mark.parametrize(("variable", "expected"), [("", None), ("false", None), ("true", "TRUE")])
def test_vms_get_os_login_only_where_it_is_set(
    monkeypatch: pytest.MonkeyPatch, variable: str, expected: str | None
) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_COMPUTE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("TRAINMASTER_AGENT", f"gs://b/agent/{'0' * 64}.zip")
    if variable:
        monkeypatch.setenv("TRAINMASTER_SSH", variable)
    settings.settings.cache_clear()
    fleet.fleet_deps.cache_clear()
    try:
        assert fleet.fleet_deps().agent_files.get("enable-oslogin") == expected
    finally:
        settings.settings.cache_clear()
        fleet.fleet_deps.cache_clear()
