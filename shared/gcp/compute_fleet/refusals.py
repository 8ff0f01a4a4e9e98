"""What Google's errors mean here: a capacity error, errors that passes, or errors that stays.

Source of the table: SkyPilot's failover handler for Compute Engine, and the error codes of
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import compute_v1

from shared.errors import PermanentError, TemporaryError
from shared.ports import CapacityErrorKind, CreateOutcome, NotCreated

_KINDS: Final = {
    # No capacity in the zone. The last three are seen when a zone is under pressure: a VM preempted while it is made, a
    # VM or disk that vanished under the insert, too many operations on one resource.
    "ZONE_RESOURCE_POOL_EXHAUSTED": CapacityErrorKind.STOCKOUT,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": CapacityErrorKind.STOCKOUT,
    "insufficientCapacity": CapacityErrorKind.STOCKOUT,
    "UNSUPPORTED_OPERATION": CapacityErrorKind.STOCKOUT,
    "RESOURCE_NOT_READY": CapacityErrorKind.STOCKOUT,
    "RESOURCE_NOT_FOUND": CapacityErrorKind.STOCKOUT,
    "RESOURCE_OPERATION_RATE_EXCEEDED": CapacityErrorKind.STOCKOUT,
    "QUOTA_EXCEEDED": CapacityErrorKind.QUOTA,
    "quotaExceeded": CapacityErrorKind.QUOTA,
    "VPC_NOT_FOUND": CapacityErrorKind.DENIED,
    "IAM_PERMISSION_DENIED": CapacityErrorKind.DENIED,
    "PERMISSIONS_ERROR": CapacityErrorKind.DENIED,
    "SERVICE_ACCOUNT_ACCESS_DENIED": CapacityErrorKind.DENIED,
    "CONDITION_NOT_MET": CapacityErrorKind.DENIED,
    "INVALID_USAGE": CapacityErrorKind.DENIED,
    "INVALID_FIELD_VALUE": CapacityErrorKind.DENIED,
}
_NAME_TAKEN: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})
CONSEQUENCES: Final = frozenset({"VM_MIN_COUNT_NOT_REACHED"})
"""What a bulk insert adds to say that it gave up; the cause stands beside it, or in an operation of its group."""
_NOT_IN_ZONE: Final = re.compile(r"/(machineTypes|acceleratorTypes)/|does not exist in zone")
"""A machine or accelerator type that this zone does not have: another may."""
_RATE_LIMITS: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})


@dataclass(frozen=True, slots=True)
class Problem:
    """What Google said, from a call or an operation."""

    code: str
    message: str
    zones_available: tuple[str, ...] = ()


@contextmanager
def trouble(doing: str) -> Iterator[None]:
    """What passes by itself is a TemporaryError, what never will a PermanentError."""
    try:
        yield
    except exceptions.GoogleAPICallError as error:
        found = problem(error)
        family = TemporaryError if is_transient(error, found) else PermanentError
        raise family(f"{doing}: {found.code}: {found.message}") from error
    except (requests.RequestException, auth_exceptions.TransportError, auth_exceptions.RefreshError) as error:
        raise TemporaryError(f"{doing}: {error}") from error


def is_transient(error: exceptions.GoogleAPICallError, found: Problem) -> bool:
    """5xx, 429 and Compute's own rate limit; but not the 503 that says in so many words that a zone is full."""
    if found.code in _KINDS:
        return False
    return (
        isinstance(error, (exceptions.ServerError, exceptions.TooManyRequests))
        or found.code in _RATE_LIMITS
        or found.code == "resourceNotReady"
    )


def problem(error: exceptions.GoogleAPICallError) -> Problem:
    """Google's machine word and sentence; the HTTP status and the client's own words where there is no such body."""
    for detail in error.errors:
        if isinstance(detail, dict) and detail.get("reason"):
            return Problem(str(detail["reason"]), str(detail.get("message", "")))
    return Problem(str(error.code), error.message or "")


def problems(operation: compute_v1.Operation) -> Iterator[Problem]:
    for error in operation.error.errors:
        zones = ""
        for detail in error.error_details:
            zones = zones or detail.error_info.metadatas.get("zonesAvailable", "")
        yield Problem(error.code, error.message, tuple(zone.strip() for zone in zones.split(",") if zone.strip()))


def refused(found: Problem, otherwise: CapacityErrorKind = CapacityErrorKind.INTERNAL) -> NotCreated:
    kind = _KINDS.get(found.code, otherwise)
    if kind is CapacityErrorKind.DENIED and _NOT_IN_ZONE.search(found.message):
        kind = CapacityErrorKind.STOCKOUT
    return NotCreated(kind, found.code, found.message, found.zones_available)


def is_taken(outcome: CreateOutcome) -> bool:
    return isinstance(outcome, NotCreated) and outcome.code in _NAME_TAKEN
