"""Meaning of Cloud TPU's errors: a capacity error, a transient error, or a refusal.

None is permanent: the sweep, every minute, repeats each of these calls, so an event that Google
refuses stays in Pub/Sub until an operator has repaired the cause.
`tests/contract/test_call_statuses.py` has a table of what each status means for each call.

One error code has several meanings (429 RESOURCE_EXHAUSTED: no capacity, no quota, too many calls a
minute), so the message decides. Source of the messages: responses in public issue threads, and
SkyPilot's failover handler for Cloud TPU (codes 3, 8, 9 and QuotaFailure).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from google.api_core import exceptions
from google.rpc import code_pb2, status_pb2

from trainmaster.core.events import CapacityErrorKind
from trainmaster.errors import TemporaryError
from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.errors import REQUEST_TIMEOUT, google_errors, refused, violates_policy
from trainmaster.ports import NotCreated

_CAPACITY: Final = re.compile(
    r"no more capacity|insufficient (reserved )?capacity"
    # The node was lost during its creation.
    r"|while in state PREEMPTED"
    # This type is not in this zone; another zone may have it.
    r"|was not found in zone|could not be found in the zonal"
    # There are no TPUs in this zone, or not for this project.
    r"|on 'locations/",
    re.IGNORECASE,
)
_CHIP_QUOTA: Final = re.compile(r"Quota (limit )?'")
"""A quota of chips.

A quota of calls reads `Quota exceeded for quota metric …` or `Maximum number of … requests per
minute`.
"""
_ZONE_QUOTA: Final = re.compile(r"\bin zone\b")
_BLOCKED: Final = frozenset({"NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED"})
_DENIED: Final = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED"})
_REPAIRABLE_TEXT: Final = re.compile(r"\bbilling\b|has not been used|is disabled", re.IGNORECASE)
_NO_CAPACITY: Final = (
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",  # a queued resource that waited until its time limit
)
_NAME_EXISTS: Final = "ALREADY_EXISTS"


def tpu_errors(action: str) -> AbstractContextManager[None]:
    """Raise TemporaryError for a transient error, and RefusedError for any other.

    `action` begins the message.
    """
    return google_errors(action, _translate)


def problem_of(error: exceptions.GoogleAPICallError) -> Problem:
    """Return Google's status and sentence; the HTTP status and the client's message if the body is
    not Google's.

    The code is the canonical name, such as RESOURCE_EXHAUSTED.
    """
    try:
        status = error.response.json()["error"]
        return Problem(str(status["status"]), str(status["message"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return Problem(str(error.code), error.message or "")


def problem_of_status(status: status_pb2.Status) -> Problem:
    """Return the problem of a failed queued resource."""
    return Problem(_code_name(status.code), status.message)


def problem_of_operation(status: Mapping[str, Any]) -> Problem:
    """Return the problem of a failed operation, whose error is a google.rpc.Status in JSON."""
    code = int(status.get("code", code_pb2.UNKNOWN))
    return Problem(_code_name(code), str(status.get("message", "")))


def is_transient(error: exceptions.GoogleAPICallError, problem: Problem) -> bool:
    """Return whether the same call may succeed soon. `problem`: that of the error.

    Missing capacity, a used-up quota of chips, and a name in use are not transient.
    """
    if _CAPACITY.search(problem.message) or _CHIP_QUOTA.match(problem.message):
        return False
    if name_exists(problem):
        return False
    is_transient_status = isinstance(
        error, (exceptions.ServerError, exceptions.TooManyRequests, exceptions.Conflict)
    )
    is_transient_status |= error.code == REQUEST_TIMEOUT
    return is_transient_status or problem.code == "ABORTED"


def not_created(problem: Problem) -> NotCreated:
    """Return the outcome of a create that failed with this problem."""
    return NotCreated(_kind(problem), problem.code, problem.message)


def name_exists(problem: Problem) -> bool:
    return problem.code == _NAME_EXISTS


def has_no_tpus(problem: Problem) -> bool:
    """Whether Cloud TPU is not in the zone, or not for this project. Then the zone has no nodes."""
    return (
        problem.code in ("PERMISSION_DENIED", "NOT_FOUND") and "on 'locations/" in problem.message
    )


def _kind(problem: Problem) -> CapacityErrorKind:
    """Return the kind.

    A used-up quota of a zone counts as a stockout, so that the job moves to the next zone.
    """
    if _CAPACITY.search(problem.message):
        return CapacityErrorKind.STOCKOUT
    if _CHIP_QUOTA.match(problem.message):
        is_of_zone = _ZONE_QUOTA.search(problem.message)
        return CapacityErrorKind.STOCKOUT if is_of_zone else CapacityErrorKind.QUOTA
    if problem.code in _NO_CAPACITY:
        return CapacityErrorKind.STOCKOUT
    is_repairable = _REPAIRABLE_TEXT.search(problem.message) or violates_policy(problem.message)
    if problem.code in _BLOCKED or is_repairable:
        return CapacityErrorKind.BLOCKED
    if problem.code in _DENIED:
        return CapacityErrorKind.DENIED
    return CapacityErrorKind.INTERNAL


def _code_name(code: int) -> str:
    """Return the canonical name of a google.rpc.Code, or an unknown number as text."""
    return str(code_pb2.Code.Name(code)) if code in code_pb2.Code.values() else str(code)


def _translate(error: exceptions.GoogleAPICallError) -> Exception:
    problem = problem_of(error)
    text = f"{problem.code}: {problem.message}"
    return TemporaryError(text) if is_transient(error, problem) else refused(error, text)
