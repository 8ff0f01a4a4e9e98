"""The local IAM has the grants of infra/ to functions, consoles and VMs."""

from __future__ import annotations

from tests.infra import iam_table
from trainmaster_emulators.realism import call_access, compute_access, http_access, storage_access
from trainmaster_emulators.realism.call_access import (
    FULFILLED,
    ROLES,
    TABLE,
    Access,
    granted_access,
)

NOT_EMULATED = {"roles/artifactregistry.reader"}
"""The local stack has no registry."""


def test_grants_of_each_function_are_those_of_infra() -> None:
    expected: dict[str, set[Access]] = {}
    for grant in iam_table.grants():
        kind, _, function = grant.member.partition(" ")
        if kind == "function" and grant.condition in FULFILLED:
            accesses = {
                Access(permission, grant.resource) for permission in ROLES.get(grant.role, ())
            }
            expected.setdefault(function, set()).update(accesses)
    table = TABLE.read_text(encoding="utf-8")
    assert {function: granted_access(function, table) for function in expected} == expected
    assert all(expected.values())


def test_roles_of_pubsub_and_firestore_are_known() -> None:
    roles = {grant.role for grant in iam_table.grants() if grant.member.startswith("function ")}
    assert {
        role for role in roles if role.startswith(("roles/pubsub.", "roles/datastore."))
    } <= set(ROLES)


def test_roles_of_functions_consoles_and_vms_are_known_to_the_local_iam() -> None:
    """Each API of the local stack has a table of its own: a role is in at least one."""
    members = ("function ", "console", "worker")
    own = {
        grant.role
        for grant in iam_table.grants()
        if grant.member.startswith(members) and "var." not in grant.resource
    }
    custom = call_access.custom_roles(
        (iam_table.INFRA / compute_access.ROLES_FILE).read_text(encoding="utf-8")
    )
    known = {*ROLES, *http_access.ROLES, *custom, *storage_access.ROLES, *NOT_EMULATED}
    assert own <= known
    assert all(custom.values())
