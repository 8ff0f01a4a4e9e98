"""Meaning of Compute Engine's errors: a capacity error, a transient error, or a refusal.

None is permanent: the sweep, every minute, repeats each of these calls, so an event that Google
refuses stays in Pub/Sub until an operator has repaired the cause.
`tests/contract/test_call_statuses.py` has a table of what each status means for each call.

Source of the table: SkyPilot's failover handler for Compute Engine, and the error codes of
https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from google.api_core import exceptions
from google.api_core.retry import Retry
from google.cloud import compute_v1

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.vm import Vm
from trainmaster.errors import TemporaryError
from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.errors import REQUEST_TIMEOUT, google_errors, refused, violates_policy
from trainmaster.gcp.retries import FLEET_CALL_S, FLEET_READ
from trainmaster.ports import CreateOutcome, NotCreated

Result = TypeVar("Result")

_KINDS: Final = {
    # The zone has no capacity. The last three occur in zones that run out of capacity: a VM that
    # was preempted while it was created, a VM or disk that disappeared during the insert, too many
    # operations on one resource.
    "ZONE_RESOURCE_POOL_EXHAUSTED": CapacityErrorKind.STOCKOUT,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": CapacityErrorKind.STOCKOUT,
    "insufficientCapacity": CapacityErrorKind.STOCKOUT,
    "UNSUPPORTED_OPERATION": CapacityErrorKind.STOCKOUT,
    "RESOURCE_NOT_READY": CapacityErrorKind.STOCKOUT,
    "RESOURCE_NOT_FOUND": CapacityErrorKind.STOCKOUT,
    "RESOURCE_OPERATION_RATE_EXCEEDED": CapacityErrorKind.STOCKOUT,
    "QUOTA_EXCEEDED": CapacityErrorKind.QUOTA,
    "quotaExceeded": CapacityErrorKind.QUOTA,
    "VPC_NOT_FOUND": CapacityErrorKind.BLOCKED,
    "IAM_PERMISSION_DENIED": CapacityErrorKind.BLOCKED,
    "PERMISSIONS_ERROR": CapacityErrorKind.BLOCKED,
    "SERVICE_ACCOUNT_ACCESS_DENIED": CapacityErrorKind.BLOCKED,
    "CONDITION_NOT_MET": CapacityErrorKind.DENIED,
    "INVALID_USAGE": CapacityErrorKind.DENIED,
    "INVALID_FIELD_VALUE": CapacityErrorKind.DENIED,
}
_NAME_EXISTS: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS"})
_CONSEQUENCES: Final = frozenset({"VM_MIN_COUNT_NOT_REACHED"})
"""Codes that only mean that a bulk insert gave up.

Its cause is another error of the insert, or an error in the operations of its VMs.
"""
_NOT_IN_ZONE: Final = re.compile(r"/(machineTypes|acceleratorTypes)/|does not exist in zone")
"""The zone does not offer a machine type or an accelerator type. Another zone may."""
_REPAIRABLE_STATUSES: Final = (401, 403, 404, 412)
"""No permission, a disabled API, suspended billing, a missing image, network, account or key, an
organisation policy.
"""
_MISSING: Final = re.compile(
    r"cannot be found|not found|\bbilling\b|is (disabled|deprecated|obsolete)", re.IGNORECASE
)
"""The 400 of a missing reference: an image of a retired family "cannot be found"."""
_RATE_LIMITS: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
_TRANSIENT_STATUSES: Final = (
    exceptions.ServerError,
    exceptions.TooManyRequests,
    exceptions.Conflict,
)
_NOT_READY: Final = "resourceNotReady"
"""Another call is creating or deleting the resource."""


def _is_rate_limit(error: Exception) -> bool:
    if not isinstance(error, exceptions.GoogleAPICallError):
        return False
    is_too_many = isinstance(error, exceptions.TooManyRequests)
    return is_too_many or problem_of(error).code in _RATE_LIMITS


FLEET_CHANGE: Final[dict[str, Any]] = {
    "retry": Retry(_is_rate_limit, initial=1.0, maximum=8.0, multiplier=2.0, timeout=FLEET_CALL_S),
    "timeout": FLEET_CALL_S,
}
"""For changes of VMs: a change that Compute Engine's rate limits refuse is sent again, with backoff
and jitter. It has had no effect. Every change may be repeated, because it names a fingerprint, a
numeric id or a request id.
"""


def compute_errors(action: str) -> AbstractContextManager[None]:
    """Raise TemporaryError for a transient error, and RefusedError for any other.

    `action` begins the message.
    """
    return google_errors(action, _translate)


def is_transient(error: exceptions.GoogleAPICallError, problem: Problem) -> bool:
    """Whether the error is a 5xx, a 429, Compute Engine's own rate limit or another change of the
    same resource, but not the 503 that reports a zone without capacity, nor a name in use.
    """
    if problem.code in _KINDS:
        return False
    is_transient_status = (
        isinstance(error, _TRANSIENT_STATUSES) and problem.code not in _NAME_EXISTS
    )
    is_transient_status |= error.code == REQUEST_TIMEOUT
    return is_transient_status or problem.code in (*_RATE_LIMITS, _NOT_READY)


def problem_of(error: exceptions.GoogleAPICallError) -> Problem:
    """Return Google's reason and sentence, or the HTTP status and the client's message if the body
    has none.
    """
    for detail in error.errors:
        if isinstance(detail, dict) and detail.get("reason"):
            return Problem(str(detail["reason"]), str(detail.get("message", "")))
    return Problem(str(error.code), error.message or "")


def problems_in(operation: compute_v1.Operation) -> Iterator[Problem]:
    """Yield the errors of a finished operation; none if it succeeded."""
    for error in operation.error.errors:
        zones = ""
        for detail in error.error_details:
            zones = zones or detail.error_info.metadatas.get("zonesAvailable", "")
        zones_available = tuple(zone.strip() for zone in zones.split(",") if zone.strip())
        yield Problem(error.code, error.message, zones_available=zones_available)


def is_cause(problem: Problem) -> bool:
    """Whether the problem says why an operation failed, not only that it did."""
    return problem.code not in _CONSEQUENCES


def not_created(
    problem: Problem, otherwise: CapacityErrorKind = CapacityErrorKind.INTERNAL
) -> NotCreated:
    """Return the outcome that reports the problem.

    `otherwise`: the kind of a code that the table does not have.
    """
    kind = _KINDS.get(problem.code, otherwise)
    if kind is CapacityErrorKind.DENIED and _MISSING.search(problem.message):
        kind = CapacityErrorKind.BLOCKED
    is_refused = kind in (CapacityErrorKind.DENIED, CapacityErrorKind.BLOCKED)
    if kind is CapacityErrorKind.DENIED and violates_policy(problem.message):
        kind = CapacityErrorKind.BLOCKED
    if is_refused and _NOT_IN_ZONE.search(problem.message):
        kind = CapacityErrorKind.STOCKOUT
    return NotCreated(kind, problem.code, problem.message, problem.zones_available)


def refused_call(error: exceptions.GoogleAPICallError) -> NotCreated:
    """Return the outcome of a call that Google refuses for another reason than a rate limit."""
    is_repairable = error.code in _REPAIRABLE_STATUSES
    otherwise = CapacityErrorKind.BLOCKED if is_repairable else CapacityErrorKind.DENIED
    return not_created(problem_of(error), otherwise)


def name_exists(outcome: CreateOutcome) -> bool:
    """Whether the insert failed because one of the names is in use."""
    return isinstance(outcome, NotCreated) and outcome.code in _NAME_EXISTS


def _translate(error: exceptions.GoogleAPICallError) -> Exception:
    problem = problem_of(error)
    text = f"{problem.code}: {problem.message}"
    return TemporaryError(text) if is_transient(error, problem) else refused(error, text)


def by_id(
    instances: compute_v1.InstancesClient,
    project: str,
    vm: Vm,
    call: Callable[..., Result],
    **options: Any,
) -> Result:
    """Call a method about a VM with the VM's id. If Google refuses that, and the VM of this name
    has the id, call it with the name.

    It is unconfirmed whether the condition on names in provision's role admits ids. Between the
    check and the second call, no newer VM can get the name: the deletion of this one takes longer.
    Raises NotFound if the VM does not exist any more.
    """
    place: dict[str, Any] = {"project": project, "zone": vm.zone}
    try:
        return call(**place, instance=vm.instance_id, **options)
    except exceptions.Forbidden as error:
        if is_transient(error, problem_of(error)):
            raise
        named = instances.get(**place, instance=vm.name, **FLEET_READ)
        if str(named.id) != vm.instance_id:
            raise exceptions.NotFound(f"{vm.name} is another VM now") from error
        return call(**place, instance=vm.name, **options)
