"""Checks of what stops the first apply or job: images, listings, builds, roles, permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

from trainmaster.cli.doctor.findings import Finding, limit, not_checked, ok, permissions, problem
from trainmaster.core.model.installation import own
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


def check_images(inspection: Inspection) -> Iterator[Finding]:
    """Check that the boot images of all runtimes exist: Google retires their families."""
    if inspection.endpoints.compute:
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
    if inspection.endpoints.compute:
        return
    granted = inspection.permissions(INSTALLER_PERMISSIONS)
    fix = "get roles/owner on the project, which the first apply needs"
    yield permissions(INSTALLER_PERMISSIONS, granted, "permissions for the first apply", fix)
    try:
        deleted = sorted(
            name for name in inspection.deleted_roles() if name.startswith(own("trainmaster"))
        )
    except InspectionError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        yield not_checked(
            "deleted custom roles",
            f"IAM refuses the list ({error}); a project that never used it has none",
        )
        return
    if deleted:
        names = ", ".join(deleted)
        text = (
            f"the roles {names} of an earlier installation are deleted, and their ids reserved for"
            " 37 days"
        )
        yield limit(text, 'set `role_suffix = "2"`, or another one, in terraform.tfvars')
