"""What the API tells of a project and of a job's policy. Jobs have no policy of their own: the project's is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shared.api import errors
from shared.api.errors import Json
from shared.api.jobs import BODY, find
from shared.api.permissions import CALLED
from shared.api.request import Call, Service
from shared.jobspec import parse_document
from shared.jobspec.catalog.regions import REGION_ZONES

NO_POLICY: Final[Json] = {"etag": "ACAB"}
"""Source: what Google's services answer for a resource on which no policy was ever set."""


def get_config(call: Call, service: Service) -> Json:
    """The account that the jobs' machines run as, TPU nodes too; its project's number where that is this project."""
    account = service.service_account
    if not account:
        return {}
    config: Json = {"serviceAccount": account, "config": {"tpuServiceAccount": account}}
    if account.endswith(f"@{call.project}.iam.gserviceaccount.com"):
        config["serviceAccountProject"] = service.access.project_number(call.token)
    return config


def list_locations(call: Call, service: Service) -> Json:
    return {"locations": [_location(call, region) for region in sorted(REGION_ZONES)]}


def get_location(call: Call, service: Service) -> Json:
    region = call.params["location"]
    if region not in REGION_ZONES:
        raise errors.not_found(f"projects/{call.project}/locations/{region}")
    return _location(call, region)


def get_policy(call: Call, service: Service) -> Json:
    find(call, service)
    return dict(NO_POLICY)


def set_policy(call: Call, service: Service) -> Json:
    """Nothing can be set, and setting nothing succeeds."""
    find(call, service)
    policy = _body(call).get("policy")
    if isinstance(policy, Mapping) and (policy.get("bindings") or policy.get("auditConfigs")):
        raise errors.too_early("A job has no policy of its own: grant roles on the project instead.")
    return dict(NO_POLICY)


def test_permissions(call: Call, service: Service) -> Json:
    """Those of the asked that the caller has on the project, under today's names or the old service's."""
    asked = _body(call).get("permissions")
    if not isinstance(asked, list) or not all(isinstance(each, str) for each in asked):
        raise errors.invalid("permissions", "must be a list of names of permissions")
    meant = {each: permission for each in asked if (permission := CALLED.get(each)) is not None}
    if not meant:
        return {}
    granted = service.access.granted(call.token, sorted(set(meant.values())))
    held = [each for each, permission in meant.items() if permission in granted]
    return {"permissions": held} if held else {}


def _location(call: Call, region: str) -> Json:
    return {"name": f"projects/{call.project}/locations/{region}", "capabilities": [{"type": "TRAINING"}]}


def _body(call: Call) -> Mapping[str, object]:
    return parse_document(call.request.body, BODY) if call.request.body.strip() else {}
