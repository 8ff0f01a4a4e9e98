"""Variables that give the worker account more access: what they grant, and what they refuse.

The fixture `plan` has the defaults, `full_plan` has all that can be switched on (`conftest.py`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.infra import iam_table
from tests.infra.conftest import REQUIRED, Plan, Terraform

BUCKET = "google_storage_bucket_iam_member"
REGISTRY = "google_artifact_registry_repository_iam_member"
PROJECT = "google_project_iam_member"


def test_worker_has_no_further_access_by_default(plan: Plan) -> None:
    further = ("_more[", "worker_roles[", "packages_elsewhere[")
    for kind in (BUCKET, REGISTRY, PROJECT):
        assert not [
            address for address in plan.of(kind) if any(name in address for name in further)
        ]


def test_each_variable_grants_the_worker_account_what_it_names(full_plan: Plan) -> None:
    buckets = full_plan.of(BUCKET)
    readers = {
        grant["bucket"]: grant["role"]
        for address, grant in buckets.items()
        if "worker_reads_more[" in address
    }
    assert readers == {
        "my-data": "roles/storage.objectViewer",
        "open.data": "roles/storage.objectViewer",
    }
    writers = {
        grant["bucket"]: grant["role"]
        for address, grant in buckets.items()
        if "worker_writes_more[" in address
    }
    assert writers == {
        "my-models": "roles/storage.objectUser",
        "my-data": "roles/storage.objectUser",
    }
    (registry,) = (
        grant
        for address, grant in full_plan.of(REGISTRY).items()
        if "worker_pulls_more[" in address
    )
    assert (
        registry["project"],
        registry["location"],
        registry["repository"],
        registry["role"],
    ) == (
        "other",
        "europe-west4",
        "training",
        "roles/artifactregistry.reader",
    )
    roles = {
        (grant["project"], grant["role"])
        for address, grant in full_plan.of(PROJECT).items()
        if "worker_roles[" in address
    }
    assert roles == {
        ("my-data", "roles/bigquery.dataViewer"),
        ("my-data", "roles/bigquery.jobUser"),
        ("my-project", "roles/bigquery.jobUser"),
    }


def test_functions_that_accept_jobs_may_look_up_packages_where_workers_read(
    full_plan: Plan,
) -> None:
    grants = {
        address: grant
        for address, grant in full_plan.of(BUCKET).items()
        if "packages_elsewhere[" in address
    }
    readers = {
        (address.split('"')[1].partition("=")[0], grant["bucket"])
        for address, grant in grants.items()
    }
    functions, buckets = ("upload", "submit", "api"), ("my-data", "my-models", "open.data")
    assert readers == {(function, bucket) for function in functions for bucket in buckets}
    assert {grant["role"] for grant in grants.values()} == {"roles/storage.objectViewer"}
    # The accounts are known after an apply only; the table of grants has them as they are in the
    # file.
    elsewhere = [
        grant for grant in iam_table.grants() if "worker_read_buckets and" in grant.resource
    ]
    assert [grant.member for grant in elsewhere] == [
        "function api",
        "function submit",
        "function upload",
    ]


BUCKET_OF_INSTALLATION: Final = "must not contain a bucket of an installation"
Wrong = dict[str, tuple[object, tuple[str, ...]]]


def _allowed_in_own_project() -> str:
    """Return the allow list of roles in infra/worker_access.tf."""
    text = (iam_table.INFRA / "worker_access.tf").read_text(encoding="utf-8")
    (pattern,) = re.findall(r'lookup\(.*?regex\("([^"]+)", role\)', text)
    return str(pattern)


@pytest.mark.parametrize(
    "role",
    [
        "roles/aiplatform.user",
        "roles/aiplatform.admin",
        "roles/artifactregistry.writer",
        "roles/bigquery.admin",
        "roles/compute.viewer",
        "roles/container.admin",
        "roles/dataproc.editor",
        "roles/datastore.viewer",
        "roles/deploymentmanager.editor",
        "roles/iap.admin",
        "roles/pubsub.publisher",
        "roles/storage.objectViewer",
        "roles/workflows.admin",
    ],
)
def test_role_that_is_not_on_data_is_refused_in_the_own_project(role: str) -> None:
    """Each of them reaches jobs, their variables, images or accounts."""
    assert not re.search(_allowed_in_own_project(), role)


@pytest.mark.parametrize(
    "role", ["roles/bigquery.jobUser", "roles/bigtable.user", "projects/my-project/roles/own"]
)
def test_role_on_data_is_accepted_in_the_own_project(role: str) -> None:
    assert re.search(_allowed_in_own_project(), role)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            {
                "worker_read_buckets": (["gs://my-data"], ("names of buckets without gs://",)),
                "worker_write_buckets": (
                    ["my-data/models", "my-project-trainmaster"],
                    ("without a path", BUCKET_OF_INSTALLATION),
                ),
                "worker_registries": (
                    ["us-docker.pkg.dev/p/training"],
                    ("projects/my-project/locations",),
                ),
                "worker_project_roles": (
                    {"my-data": ["roles/writer", "bigquery.dataViewer"]},
                    ("every program could then use everything", "must contain names of roles"),
                ),
            },
            id="forms and contents",
        ),
        pytest.param(
            {
                "worker_project_roles": (
                    {"my-project": ["roles/bigquery.jobUser", "roles/aiplatform.user"]},
                    ("could then do what the functions do",),
                ),
                "worker_write_buckets": (["my-project-tmstaging-stage"], (BUCKET_OF_INSTALLATION,)),
            },
            id="those of functions",
        ),
        pytest.param(
            {
                "worker_project_roles": (
                    {"123456789012": ["roles/datastore.user"]},
                    ("must name projects by their ids",),
                ),
                "worker_write_buckets": (
                    ["my-project-trainmaster-terraform"],
                    (BUCKET_OF_INSTALLATION,),
                ),
            },
            id="by number; state",
        ),
        pytest.param(
            {
                "worker_write_buckets": (
                    ["gcf-v2-sources-123456789012-us-central1"],
                    (BUCKET_OF_INSTALLATION,),
                ),
            },
            id="sources of functions",
        ),
    ],
)
def test_wrong_or_dangerous_access_is_refused_by_its_variable(
    terraform: Terraform, archives: dict[str, Path], wrong: Wrong
) -> None:
    given = {**REQUIRED, "stage": str(next(iter(archives.values())).parent)}
    given |= {name: json.dumps(value) for name, (value, _) in wrong.items()}
    words = [f"-var={name}={value}" for name, value in given.items()]
    done = terraform("plan", "-input=false", "-no-color", "-refresh=false", *words)
    assert done.returncode == 1
    _, *errors = (" ".join(text.split()) for text in done.stderr.replace("│", " ").split("Error: "))
    expected = [
        (variable, message) for variable, (_, messages) in wrong.items() for message in messages
    ]
    assert len(errors) == len(expected)
    for variable, message in expected:
        assert (
            len([text for text in errors if f'variable "{variable}"' in text and message in text])
            == 1
        ), message
