"""The conditions of IAM grants, evaluated: which objects and VMs an account may change.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on, `reduced_plan`
nothing that can be left out (`conftest.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.infra.conftest import INFRA, Plan

BUCKET: Final = "my-project-trainmaster"
RUNBOOKS: Final = INFRA.parent / "docs" / "runbooks.md"
STAGE: Final = f"{BUCKET}-stage"
OBJECT_PERMISSIONS: Final = {
    "roles/storage.objectUser": {"read", "create", "write"},
    "roles/storage.objectViewer": {"read"},
    "roles/storage.objectCreator": {"create"},
}
PYTHON: Final = (
    ("&&", " and "),
    ("||", " or "),
    ("!resource", "not resource"),
    ("startsWith", "startswith"),
)
"""Operators and methods of Common Expression Language → Python.

The conditions in infra/ use no others.
"""


class Name(str):
    """The resource name in a condition, with IAM's method `extract`."""

    __slots__ = ()

    def extract(self, template: str) -> Name:
        """Return the part in place of `{…}` up to the next slash; empty if the text before it is
        absent.

        Source: "Resource attributes for IAM Conditions", the function extract.
        """
        before = template.partition("{")[0]
        _, found, rest = self.partition(before)
        return Name(rest.split("/")[0] if found else "")


@dataclass(frozen=True, slots=True)
class Resource:
    type: str
    name: Name


def is_met(condition: str, kind: str, name: str) -> bool:
    for cel, python in PYTHON:
        condition = condition.replace(cel, python)
    return bool(eval(condition, {"__builtins__": {}}, {"resource": Resource(kind, Name(name))}))  # noqa: S307


def conditions(grant: dict[str, Any]) -> list[str]:
    return [condition["expression"] for condition in grant.get("condition") or ()]


def object_access(plan: Plan, bucket: str, name: str, grants: str) -> set[str]:
    """Return what the grants whose address contains `grants` permit for an object.

    `read`, `create`, and `write`, which replaces and deletes.
    """
    resource = f"projects/_/buckets/{bucket}/objects/{name}"
    return {
        permission
        for address, grant in plan.of("google_storage_bucket_iam_member").items()
        if grants in address and grant["bucket"] == bucket
        if all(
            is_met(condition, "storage.googleapis.com/Object", resource)
            for condition in conditions(grant)
        )
        for permission in OBJECT_PERMISSIONS[grant["role"]]
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("packages/digits/trainer-0.1.tar.gz", {"read"}),
        ("agent/0123abcd.zip", {"read"}),
        ("jobs/digits.yaml", set()),
        ("digits/checkpoint-7", {"read", "create", "write"}),
        ("packages-of-mine", {"read", "create", "write"}),
    ],
)
def test_workers_write_neither_code_nor_job_files_and_do_not_read_job_files(
    plan: Plan, name: str, expected: set[str]
) -> None:
    """A worker that may overwrite a package runs code in every other job; a job file contains the
    job's variables.
    """
    assert object_access(plan, BUCKET, name, ".worker") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prices/v1.json", {"read"}),
        ("packages/digits/trainer-0.1.tar.gz", {"read", "create"}),
        ("agent/0123abcd.zip", set()),
        ("jobs/digits.yaml", {"read", "create", "write"}),
        ("digits/checkpoint-7", {"read", "create", "write"}),
    ],
)
def test_clients_write_no_prices_and_replace_no_packages(
    full_plan: Plan, name: str, expected: set[str]
) -> None:
    """Limits and budgets are computed from the prices; jobs of others name the packages."""
    assert object_access(full_plan, BUCKET, name, ".clients") == expected


def test_price_writers_write_the_price_list_and_nothing_else(full_plan: Plan) -> None:
    def access(name: str) -> set[str]:
        return object_access(full_plan, BUCKET, name, ".price_writers")

    assert access("prices/v1.json") == {"read", "create", "write"}
    assert access("packages/digits/trainer-0.1.tar.gz") == set()
    assert access("jobs/digits.yaml") == set()


@pytest.mark.parametrize("function", ["upload", "submit", "api"])
def test_functions_that_accept_jobs_read_packages_and_never_write_them(
    plan: Plan, function: str
) -> None:
    grants = f'package_versions["{function}"]'
    assert object_access(plan, BUCKET, "packages/digits/trainer-0.1.tar.gz", grants) == {"read"}


@pytest.mark.parametrize("function", ["api", "submit", "upload"])
@pytest.mark.parametrize("bucket", [BUCKET, "my-data", "my-models", "open.data", "others"])
def test_functions_open_no_package_that_programs_of_jobs_cannot_read(
    full_plan: Plan, function: str, bucket: str
) -> None:
    """They open it with their own rights, and its submitter learns what is wrong with it."""
    for name in ("packages/x.tar.gz", "staging/x.tar.gz", "jobs/x.tar.gz", "exports/x.tar.gz"):
        of_function = object_access(full_plan, bucket, name, f'["{function}')
        of_programs = object_access(full_plan, bucket, name, ".worker")
        assert "read" not in of_function - of_programs, name


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (
            "compute.googleapis.com/Instance",
            "projects/p/zones/us-central1-a/instances/tm-digits-1-chief-0",
            True,
        ),
        (
            "compute.googleapis.com/Instance",
            "projects/p/zones/us-central1-a/instances/payments-db",
            False,
        ),
        ("compute.googleapis.com/Instance", "projects/p/zones/us-central1-a/instances/", True),
        (
            "compute.googleapis.com/Disk",
            "projects/p/zones/us-central1-a/disks/tm-digits-1-chief-0",
            True,
        ),
        ("cloudresourcemanager.googleapis.com/Project", "projects/p", True),
    ],
)
def test_provision_manages_training_vms_and_no_other_vm(
    plan: Plan, kind: str, name: str, expected: bool
) -> None:
    """Otherwise a fault in `provision` could put an SSH key into any VM of the project."""
    (condition,) = conditions(
        plan.of("google_project_iam_member")["google_project_iam_member.provisioner"]
    )
    assert is_met(condition, kind, name) is expected


@pytest.mark.parametrize("plan_of_users", ["full_plan", "reduced_plan"], ids=["False", "True"])
def test_users_of_ssh_log_in_to_training_vms_and_to_no_other_vm(
    request: pytest.FixtureRequest, plan_of_users: str
) -> None:
    """Without and with sudo."""
    grants = request.getfixturevalue(plan_of_users).of("google_project_iam_member")
    logins = [grants[address] for address in grants if re.search(r"\.ssh_(login|sudo)\[", address)]
    instances = "projects/p/zones/us-central1-a/instances"
    for login in logins:
        (condition,) = conditions(login)
        kind = "compute.googleapis.com/Instance"
        assert is_met(condition, kind, f"{instances}/tm-digits-1-chief-0")
        assert not is_met(condition, kind, f"{instances}/payments-db")
        assert is_met(condition, "cloudresourcemanager.googleapis.com/Project", "projects/p")
    assert len(logins) == (2 if plan_of_users == "reduced_plan" else 1)


def test_builder_reads_archives_and_no_export_of_the_database(plan: Plan) -> None:
    """An export has the variables of all jobs, and a build runs pip."""
    address = "google_storage_bucket_iam_member.builder_archives"
    (condition,) = conditions(plan.of("google_storage_bucket_iam_member")[address])
    bucket = "projects/_/buckets/my-project-trainmaster-stage"
    readable = {
        name: is_met(condition, "storage.googleapis.com/Object", f"{bucket}/objects/{name}")
        for name in ("api-0123.zip", "restore/all.overall_export_metadata")
    }
    assert readable == {"api-0123.zip": True, "restore/all.overall_export_metadata": False}
    exports = re.findall(r"gs://PROJECT-trainmaster-stage/(\S+)", RUNBOOKS.read_text("utf-8"))
    assert {folder.partition("/")[0] for folder in exports} == {"restore"}
    assert is_met(condition, "storage.googleapis.com/Bucket", bucket)


def test_builder_has_no_role_on_all_buckets_or_repositories_of_the_project(plan: Plan) -> None:
    """A build runs pip: its account must not replace the images that workers run, or
    read models.
    """
    on_project = {
        grant["role"]: grant.get("condition")
        for address, grant in plan.of("google_project_iam_member").items()
        if ".builder" in address
    }
    assert set(on_project) == {"roles/logging.logWriter", "roles/storage.objectViewer"}
    sources = on_project["roles/storage.objectViewer"]
    assert sources
    assert sources[0]["title"] == "bucket gcf-v2-sources only"
    images = "google_artifact_registry_repository_iam_member.builder_images"
    repository = plan.of("google_artifact_registry_repository")[
        "google_artifact_registry_repository.functions"
    ]
    assert (
        plan.of("google_artifact_registry_repository_iam_member")[images]["role"]
        == "roles/artifactregistry.writer"
    )
    assert {
        function["build_config"][0]["docker_repository"].rpartition("/")[2]
        for function in plan.of("google_cloudfunctions2_function").values()
    } == {repository["repository_id"]}
    assert object_access(plan, STAGE, "api-0123.zip", ".builder") == {"read"}
    assert object_access(plan, BUCKET, "digits/model", ".builder") == set()
