"""Methods about the project, its locations, and the IAM policies of jobs, which are all empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainmaster.api import errors
from trainmaster.api.errors import Json
from trainmaster.api.jobs import find, parse_body
from trainmaster.api.permissions import EQUIVALENT_PERMISSIONS
from trainmaster.api.request import Call, Service
from trainmaster.jobspec.catalog.regions import REGION_ZONES

EMPTY_POLICY: Final[Json] = {"etag": "ACAB"}
"""Source: the response of Google's services for a resource on which no policy has been set."""


def get_config(call: Call, service: Service) -> Json:
    """Return the service account of the VMs and TPU nodes.

    The project's number is added if the account belongs to this project and the caller may see it.
    """
    account = service.service_account
    if not account:
        return {}
    config: Json = {"serviceAccount": account, "config": {"tpuServiceAccount": account}}
    if account.endswith(f"@{call.project}.iam.gserviceaccount.com"):
        number = service.access.project_number(call.token)
        if number:
            config["serviceAccountProject"] = number
    return config


def list_locations(call: Call, service: Service) -> Json:
    """Return the regions in which jobs are accepted without a network of their own."""
    regions = service.deps.regions or REGION_ZONES
    return {"locations": [_location_view(call, region) for region in sorted(regions)]}


def get_location(call: Call, service: Service) -> Json:
    """Return a region. Raises ApiError for an unknown one."""
    region = call.params["location"]
    if region not in REGION_ZONES:
        raise errors.not_found(f"projects/{call.project}/locations/{region}")
    return _location_view(call, region)


def get_policy(call: Call, service: Service) -> Json:
    """Return the empty policy of a job."""
    find(call, service)
    return dict(EMPTY_POLICY)


def set_policy(call: Call, service: Service) -> Json:
    """Accept an empty policy only."""
    find(call, service)
    policy = parse_body(call).get("policy")
    grants = policy if isinstance(policy, Mapping) else {}
    if grants.get("bindings") or grants.get("auditConfigs"):
        raise errors.failed_precondition(
            "A job has no policy of its own. Grant roles on the project instead."
        )
    return dict(EMPTY_POLICY)


def test_permissions(call: Call, service: Service) -> Json:
    """Return those of the named permissions that the caller has."""
    names = parse_body(call).get("permissions")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise errors.invalid_argument("permissions", "must be a list of names of permissions")
    checked = {
        name: EQUIVALENT_PERMISSIONS[name] for name in names if name in EQUIVALENT_PERMISSIONS
    }
    if not checked:
        return {}
    granted = service.access.api_permissions(call.token, sorted(set(checked.values())))
    held = [name for name, permission in checked.items() if permission in granted]
    return {"permissions": held} if held else {}


def _location_view(call: Call, region: str) -> Json:
    return {
        "name": f"projects/{call.project}/locations/{region}",
        "capabilities": [{"type": "TRAINING"}],
    }
