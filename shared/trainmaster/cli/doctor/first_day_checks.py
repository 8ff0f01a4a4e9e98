"""Checks of what stops the first apply or job: the project, accounts, a database, images, listings,
builds, roles, permissions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from trainmaster.cli.doctor.findings import (
    Finding,
    limit,
    not_checked,
    ok,
    permissions,
    problem,
    unknown,
)
from trainmaster.core.model.installation import name_in_installation
from trainmaster.errors import TemporaryError
from trainmaster.gcp.tools.inspection import Inspection, InspectionError
from trainmaster.jobspec.catalog.runtimes import RUNTIMES

BUILD_REGIONS: Final = (
    "us-central1",
    "us-west2",
    "europe-west1",
    "asia-east1",
    "australia-southeast1",
    "southamerica-east1",
)
"""Where Cloud Build builds for every project.

Source: its page of locations, "Restricted regions for some projects".
"""
INSTALLER_PERMISSIONS: Final = (
    "compute.networks.create",
    "iam.roles.create",
    "iam.serviceAccounts.create",
    "pubsub.topics.create",
    "resourcemanager.projects.setIamPolicy",
    "serviceusage.services.enable",
)
"""One of each kind that the first apply needs.

Those of APIs that it enables itself are not known before.
"""
_PROJECT_ID: Final = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
"""As infra/variables.tf has it."""
_GCLOUD_S: Final = 20.0
"""Seconds that gcloud may take to print its account."""


def check_project(inspection: Inspection) -> Iterator[Finding]:
    """Check that the project exists, and that this is its id."""
    project = inspection.project
    if inspection.endpoints.is_local_stack:
        return
    if not _PROJECT_ID.fullmatch(project):
        yield problem(
            f"{project} is not a project's id (6 to 30 lower-case letters, digits and hyphens)",
            "find the id, which is neither the number nor the name: `gcloud projects list`",
        )
        return
    try:
        inspection.read_project()
    except InspectionError as error:
        if error.disabled_api or error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            raise
        yield problem(
            f"there is no project {project}, or you may not see it",
            "compare its id with `gcloud projects list`, and your account with `gcloud auth list`",
        )
        return
    yield ok(f"project {project}")


def check_database(inspection: Inspection) -> Iterator[Finding]:
    """Check that the database that the first apply creates does not exist yet."""
    name = name_in_installation("(default)")
    if inspection.endpoints.is_local_stack:
        return
    try:
        location = inspection.database_location(name)
    except InspectionError as error:
        if not error.disabled_api:
            raise
        yield ok("no database of Firestore")  # the first apply enables the API
        return
    if location is None:
        yield ok(f"no database {name} of Firestore")
        return
    yield problem(
        f"the project has a database {name} of Firestore in {location}, as every project that used"
        " App Engine, Firebase or Datastore: the first apply would stop at it",
        'give this installation a name, and with it a database of its own: `installation = "ml"` in'
        " terraform.tfvars; or, if the database is one of Trainmaster that is to be kept,"
        f" `terraform import google_firestore_database.this"
        f" 'projects/{inspection.project}/databases/{name}'`",
    )


def check_accounts(inspection: Inspection) -> Iterator[Finding]:
    """Check that gcloud, which Terraform runs, acts as the account of Terraform's credentials."""
    if inspection.endpoints.is_local_stack:
        return
    try:
        ours = inspection.account()
    except TemporaryError as error:  # no other check needs this service
        yield not_checked("accounts of gcloud and Terraform", str(error))
        return
    gcloud = _account_of_gcloud()
    if not ours or not gcloud:
        yield not_checked(
            "accounts of gcloud and Terraform", "one of them does not say its account"
        )
    elif ours == gcloud:
        yield ok(f"gcloud and Terraform act as {ours}")
    else:
        yield problem(
            f"gcloud acts as {gcloud}, and Terraform as {ours} (application default credentials):"
            " the last step of the first apply runs gcloud",
            f"`gcloud config set account {ours}`, or log in as {gcloud}: `gcloud auth"
            " application-default login`",
        )


def _account_of_gcloud() -> str:
    """Return the active account. Empty: gcloud has none, or is not installed."""
    program = shutil.which("gcloud")
    if program is None:
        return ""
    command = [program, "config", "get-value", "account", "--quiet"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_GCLOUD_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    account = done.stdout.strip()
    return account if "@" in account else ""


def check_images(inspection: Inspection) -> Iterator[Finding]:
    """Check that the boot images of all runtimes exist: Google retires their families."""
    if inspection.endpoints.is_local_stack:
        yield not_checked("boot images", "local VMs have none")
        return
    images = {runtime.image for runtime in RUNTIMES.values() if runtime.image}
    retired = sorted(image for image in images if not inspection.has_image(image))
    for image in retired:
        text = (
            f"there is no image {image}: Google has retired the family, or its project may not be"
            " read"
        )
        yield problem(
            text, "map it to its successor in `boot_images` of infra/ (docs/faster-starts.md)"
        )
    if not retired:
        yield ok("boot images of all runtimes")


def check_listings(inspection: Inspection) -> Iterator[Finding]:
    """List VMs and TPU nodes as `provision` does."""
    yield from _check_reached("VMs", inspection.unreachable_zones)
    try:
        yield from _check_reached("TPU nodes", inspection.unreachable_tpu_zones)
    except InspectionError as error:
        if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            raise
        yield not_checked(
            "TPU nodes",
            f"Cloud TPU refuses the list ({error}); with `tpu = true`, infra/ enables it",
        )


def _check_reached(what: str, list_zones: Callable[[], frozenset[str]]) -> Iterator[Finding]:
    unreachable = ", ".join(sorted(list_zones()))
    if unreachable:
        text = f"Google cannot reach {unreachable}: {what} there are left as they are until it can"
        yield limit(text, "see status.cloud.google.com; submit urgent jobs in another region")
    else:
        yield ok(f"{what} can be listed in all zones")


def check_installation_place(inspection: Inspection, region: str | None) -> Iterator[Finding]:
    """Check region, deleted roles and permissions before the first apply."""
    if region is not None and region not in BUILD_REGIONS:
        yield limit(
            f"Cloud Build may refuse to build the functions in {region}: new projects may build"
            f" only in {', '.join(BUILD_REGIONS)}",
            "install in one of these regions (jobs may run in others: `worker_regions`), or request"
            " quota",
        )
    if inspection.endpoints.is_local_stack:
        return
    granted = inspection.permissions(INSTALLER_PERMISSIONS)
    fix = "get roles/owner on the project, which the first apply needs"
    yield permissions(INSTALLER_PERMISSIONS, granted, "permissions for the first apply", fix)
    try:
        deleted = sorted(
            name
            for name in inspection.deleted_roles()
            if name.startswith(name_in_installation("trainmaster"))
        )
    except InspectionError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        if error.disabled_api:
            yield ok("no deleted custom role: the project has never used IAM's API")
        else:
            fix = "get roles/iam.roleViewer on the project"
            yield unknown("deleted custom roles", f"IAM refuses the list ({error})", fix)
        return
    if deleted:
        names = ", ".join(deleted)
        text = (
            f"the roles {names} of an earlier installation are deleted, and their ids reserved for"
            " 37 days"
        )
        yield limit(text, 'set `role_suffix = "2"`, or another one, in terraform.tfvars')
