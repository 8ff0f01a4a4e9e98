"""Error responses in the format of Google's newer APIs: a code, a status, a message, details.

`machines.compute_errors` has those of Compute Engine, an older API.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

Json = dict[str, Any]
"""A JSON object of Google's API."""
_CODES: Final = {
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "ALREADY_EXISTS": (6, 409),
    "PERMISSION_DENIED": (7, 403),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
    "UNAUTHENTICATED": (16, 401),
}
"""Canonical name → its number and its HTTP status. Source: google.rpc.Code."""


@dataclass(eq=False)
class ApiError(Exception):
    """The error of a call."""

    code: int
    """HTTP status."""
    status: str
    """Canonical name, such as INVALID_ARGUMENT."""
    message: str
    details: tuple[Json, ...] = ()
    """Objects that tell programs more, such as the field that is wrong."""

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"

    def body(self) -> Json:
        """Return the body of the response."""
        error: Json = {"code": self.code, "message": self.message, "status": self.status}
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}


class StatusError(ApiError):
    """The error of a call, or later of its operation, by the canonical name of its status."""

    def __init__(self, status: str, message: str, *details: Json) -> None:
        self.number, http_status = _CODES[status]
        super().__init__(http_status, status, message, details)

    def as_status(self) -> Json:
        """Return the error as a `google.rpc.Status`, for an operation."""
        status: Json = {"code": self.number, "message": self.message}
        if self.details:
            status["details"] = list(self.details)
        return status


def invalid(message: str, *details: Json) -> StatusError:
    """Return the error of a request whose content is wrong (400)."""
    return StatusError("INVALID_ARGUMENT", message, *details)


POLICY_VIOLATED = (
    "Constraint constraints/compute.disableGuestAttributesAccess violated for project 1234567890"
)
"""Google's sentence about a call that an organisation policy forbids, verbatim from the log of a
public controller but for the number.
"""


def failed(status: int) -> ApiError:
    """Return an error with this HTTP status, whatever its cause may be.

    412 is an organisation policy, as in Google's answers. It has no canonical name of its own.
    """
    name = next((name for name, (_, code) in _CODES.items() if code == status), "UNKNOWN")
    if status == HTTPStatus.PRECONDITION_FAILED:
        return ApiError(status, "FAILED_PRECONDITION", POLICY_VIOLATED)
    return ApiError(status, name, f"The call fails with {status}, as requested.")
