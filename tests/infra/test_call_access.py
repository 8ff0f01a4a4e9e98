"""The local IAM of Pub/Sub and Firestore has the grants of infra/ to functions."""

from __future__ import annotations

from emulators.realism.call_access import ROLES, TABLE, Access, granted
from tests.infra import iam_table


def test_grants_of_each_function_are_those_of_infra() -> None:
    expected: dict[str, set[Access]] = {}
    for grant in iam_table.grants():
        kind, _, function = grant.member.partition(" ")
        if kind == "function" and not grant.condition:
            accesses = {Access(permission, grant.resource) for permission in ROLES.get(grant.role, ())}
            expected.setdefault(function, set()).update(accesses)
    table = TABLE.read_text(encoding="utf-8")
    assert {function: granted(function, table) for function in expected} == expected
    assert all(expected.values())


def test_roles_of_pubsub_and_firestore_are_known() -> None:
    roles = {grant.role for grant in iam_table.grants() if grant.member.startswith("function ")}
    assert {role for role in roles if role.startswith(("roles/pubsub.", "roles/datastore."))} <= set(ROLES)
