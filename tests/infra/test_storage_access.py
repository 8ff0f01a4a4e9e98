"""The local stack's IAM of Cloud Storage has the grants of infra/iam.tf, with their conditions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tests.infra import iam_table
from trainmaster_emulators.realism.storage_access import GRANTS, WORKER, StorageGrant

ACCOUNTS = {WORKER, "upload", "submit", "api", "console", "console_operator"}
VIEWER = "trainmasterResourceViewer"
FOLDER = re.compile(r"objects\}?/(\w+)/'")
"""The folder in a condition that names one, such as `stage/objects/restore/'`."""


def bucket_grants() -> set[StorageGrant]:
    """Return the grants of infra/ on buckets to functions and VMs."""
    found = set[StorageGrant]()
    files = ("iam.tf", "console.tf")
    for entry in (
        entry for file in files for entry in iam_table.load(iam_table.INFRA / file)["resource"]
    ):
        for kind, resources in entry.items():
            if kind.strip('"') == "google_storage_bucket_iam_member":
                for body in resources.values():
                    found |= set(_grants_of(body))
    return {grant for grant in found if grant.account in ACCOUNTS}


def _grants_of(body: dict[str, Any]) -> list[StorageGrant]:
    """Return the grants of a resource, of which there is one for each key of its `for_each`.

    The table of grants is for readers: there, a member is `function submit`, and a role of the
    project's own ends with the file that defines it.
    """
    condition = str(body["condition"][0]["expression"]) if "condition" in body else ""
    names = FOLDER.findall(condition)
    if "for folder in" in condition:
        names = re.findall(r'"(\w+)"', condition.partition("for folder in")[2].partition("]")[0])
    assert bool(condition) == bool(names), f"no folder is found in the condition {condition}"
    folders = tuple(sorted(f"{name}/" for name in names))
    excludes = "!resource.name" in condition
    bucket = "stage" if "bucket.stage" in str(body["bucket"]) else "this"
    return [
        StorageGrant(
            grant.member.removeprefix("function "),
            grant.role.removesuffix(" (iam.tf)"),
            bucket,
            only=() if excludes else folders,
            excluded=folders if excludes else (),
        )
        for grant in iam_table._expand(body)
    ]


def test_grants_of_the_local_stack_are_those_of_infra() -> None:
    local = {
        replace(grant, only=tuple(sorted(grant.only)), excluded=tuple(sorted(grant.excluded)))
        for grant in GRANTS
        if grant.role != VIEWER
    }
    assert local == bucket_grants()


def test_role_on_the_project_is_a_grant_on_both_buckets() -> None:
    of_infra = {grant for grant in iam_table.grants() if grant.role.startswith(VIEWER)}
    assert {grant.resource for grant in of_infra} == {"project"}
    accounts = {grant.member.removeprefix("function ") for grant in of_infra}
    local = {(grant.account, grant.bucket) for grant in GRANTS if grant.role == VIEWER}
    assert local == {(account, bucket) for account in accounts for bucket in ("this", "stage")}
