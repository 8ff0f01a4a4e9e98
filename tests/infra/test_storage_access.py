"""The local stack's IAM of Cloud Storage has the grants of infra/iam.tf, with their conditions."""

from __future__ import annotations

import re
from typing import Any

from tests.infra import iam_table
from trainmaster_emulators.realism.storage_access import GRANTS, WORKER, StorageGrant

ACCOUNTS = {WORKER, "upload", "submit", "api", "console", "console_operator"}
VIEWER = "trainmasterResourceViewer"
FOLDER = re.compile(r"objects\}?/(\w+)/'")


def bucket_grants() -> set[tuple[str, str, str, str, tuple[str, ...]]]:
    """Return account, role, bucket, kind of condition and folders of each grant of infra/ to
    functions and VMs.
    """
    found = set()
    files = ("iam.tf", "console.tf")
    for entry in (
        entry for file in files for entry in iam_table.load(iam_table.INFRA / file)["resource"]
    ):
        for kind, resources in entry.items():
            if kind.strip('"') == "google_storage_bucket_iam_member":
                for body in resources.values():
                    found |= set(_grants_of(body))
    return {grant for grant in found if grant[0] in ACCOUNTS}


def _grants_of(body: dict[str, Any]) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    condition = str(body["condition"][0]["expression"]) if "condition" in body else ""
    folders = FOLDER.findall(condition)
    if "for folder in" in condition:
        folders = re.findall(r'"(\w+)"', condition.partition("for folder in")[2].partition("]")[0])
    kind = ("excluded" if "!resource.name" in condition else "only") if condition else ""
    bucket = "stage" if "bucket.stage" in str(body["bucket"]) else "this"
    return [
        (
            grant.member.removeprefix("function "),
            grant.role.removesuffix(" (iam.tf)"),
            bucket,
            kind,
            tuple(sorted(f"{folder}/" for folder in folders)),
        )
        for grant in iam_table._expand(body)
    ]


def condition_of(grant: StorageGrant) -> str:
    if grant.only:
        return "only"
    return "excluded" if grant.excluded else ""


def test_grants_of_the_local_stack_are_those_of_infra() -> None:
    local = {
        (
            grant.account,
            grant.role,
            grant.bucket,
            condition_of(grant),
            tuple(sorted(grant.only or grant.excluded)),
        )
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
