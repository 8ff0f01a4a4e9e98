"""What Cloud TPU's errors mean here: a capacity error, errors that passes, or errors that stays.

One error code stands for several things (429 RESOURCE_EXHAUSTED: no capacity, no quota, too many calls a minute), so
the words decide. Source of the words: responses in public issue threads, and SkyPilot's failover handler for Cloud TPU
(codes 3, 8, 9 and QuotaFailure).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.rpc import code_pb2, status_pb2

from shared.errors import PermanentError, TemporaryError
from shared.ports import CapacityErrorKind, NotCreated

_CAPACITY: Final = re.compile(
    r"no more capacity|insufficient (reserved )?capacity|while in state PREEMPTED"  # the last: lost while it was made
    r"|was not found in zone|could not be found in the zonal"  # this type is not in this zone; another may have it
    r"|on 'locations/",  # there are no TPUs in this zone, or not for this project
    re.IGNORECASE,
)
_TPU_QUOTA: Final = re.compile(r"Quota (limit )?'")
"""Of chips. One of calls is `Quota exceeded for quota metric …` or `Maximum number of … requests per minute`."""
_ZONE_QUOTA: Final = re.compile(r"\bin zone\b")
_DENIED: Final = frozenset(
    {"INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION", "UNIMPLEMENTED"}
)
_NO_ROOM: Final = ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")  # the latter: waited for in vain
_TAKEN: Final = "ALREADY_EXISTS"


@dataclass(frozen=True, slots=True)
class Problem:
    """`code` is the canonical word (`RESOURCE_EXHAUSTED`)."""

    code: str
    message: str


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


def problem(error: exceptions.GoogleAPICallError) -> Problem:
    """Google's word and sentence; the HTTP status and the client's own words where the body is not Google's."""
    try:
        said = error.response.json()["error"]
        return Problem(str(said["status"]), str(said["message"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return Problem(str(error.code), error.message or "")


def problem_of(status: status_pb2.Status) -> Problem:
    """Of a queued resource that failed."""
    return Problem(_word(status.code), status.message)


def problem_in(status: Mapping[str, Any]) -> Problem:
    """Of an operation that failed: google.rpc.Status as JSON."""
    return Problem(_word(int(status.get("code", 0))), str(status.get("message", "")))


def _word(code: int) -> str:
    return str(code_pb2.Code.Name(code)) if code in code_pb2.Code.values() else str(code)


def is_transient(error: exceptions.GoogleAPICallError, found: Problem) -> bool:
    if _CAPACITY.search(found.message) or _TPU_QUOTA.match(found.message):
        return False
    return isinstance(error, (exceptions.ServerError, exceptions.TooManyRequests)) or found.code == "ABORTED"


def refused(found: Problem) -> NotCreated:
    return NotCreated(_kind(found), found.code, found.message)


def is_taken(found: Problem) -> bool:
    return found.code == _TAKEN


def says_no_such_zone(found: Problem) -> bool:
    """Cloud TPU is not in this zone, or not for this project: then no node is."""
    return found.code in ("PERMISSION_DENIED", "NOT_FOUND") and "on 'locations/" in found.message


def _kind(found: Problem) -> CapacityErrorKind:
    """Quota of a zone is requested in the next one, quota of a region is waited for."""
    if _CAPACITY.search(found.message):
        return CapacityErrorKind.STOCKOUT
    if _TPU_QUOTA.match(found.message):
        return CapacityErrorKind.STOCKOUT if _ZONE_QUOTA.search(found.message) else CapacityErrorKind.QUOTA
    if found.code in _NO_ROOM:
        return CapacityErrorKind.STOCKOUT
    return CapacityErrorKind.DENIED if found.code in _DENIED else CapacityErrorKind.INTERNAL
