"""Cloud TPU's errors. A TpuError is the response of a call, or later the result of an operation.

Wording and structure are Google's, because clients match on both. Sources: responses quoted in
public issue threads, and `google.rpc.Status`.
"""

from __future__ import annotations

from typing import Final

from trainmaster_emulators.rest.api_errors import ApiError, Json

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
}
"""Canonical name to its number (in an operation) and its HTTP status (of a call).

Source: google.rpc.Code.
"""


class TpuError(ApiError):
    """`status`: a canonical name."""

    def __init__(self, status: str, message: str, details: tuple[Json, ...] = ()) -> None:
        super().__init__(_CODES[status][1], status, message, details)

    def as_status(self) -> Json:
        """Return the error as a `google.rpc.Status`, for an operation."""
        status: Json = {"code": _CODES[self.status][0], "message": self.message}
        return status | ({"details": list(self.details)} if self.details else {})


def bad_request(why: str) -> TpuError:
    return TpuError("INVALID_ARGUMENT", f"Cloud TPU received a bad request. {why}")


def not_found(resource: str) -> TpuError:
    return TpuError("NOT_FOUND", f"Resource '{resource}' was not found")


def already_exists(resource: str) -> TpuError:
    return TpuError("ALREADY_EXISTS", f"Resource '{resource}' already exists")


def not_while(verb: str, state: str) -> TpuError:
    why = f"Cloud TPU received a bad request. {verb} is not supported while in state {state}"
    return TpuError("FAILED_PRECONDITION", why)


def no_such_location(zone: str) -> TpuError:
    return TpuError(
        "PERMISSION_DENIED", f"Permission denied on 'locations/{zone}' (or it may not exist)."
    )


def no_such_type(accelerator: str, zone: str) -> TpuError:
    return bad_request(
        f'The requested accelerator configuration for accelerator type, "{accelerator}", could not'
        f' be found in the zonal accelerator configurations for "{zone}".; the accelerator'
        f" {accelerator} was not found in zone {zone}"
    )


def stockout(zone: str) -> TpuError:
    return TpuError(
        "RESOURCE_EXHAUSTED",
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud'
        " TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)",
    )


def no_reservation() -> TpuError:
    why = "Insufficient reserved capacity. Contact customer support to increase your reservation."
    return TpuError("FAILED_PRECONDITION", why)


def quota_exceeded(generation: str, region: str) -> TpuError:
    metric = f"TPU{generation}PerProjectPerRegionForTPUAPI"
    message = f"Quota limit '{metric}' has been exceeded. Limit: 0 in region {region}."
    violation = {"subject": f"region:{region}", "description": message}
    return TpuError(
        "RESOURCE_EXHAUSTED",
        message,
        ({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]},),
    )


def rate_limited() -> TpuError:
    quota = (
        "quota metric 'Requests' and limit 'Requests per minute' of service 'tpu.googleapis.com'"
    )
    reason = {"reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com"}
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", **reason}
    return TpuError("RESOURCE_EXHAUSTED", f"Quota exceeded for {quota}.", (detail,))


def disabled(project: str) -> TpuError:
    message = f"Cloud TPU API has not been used in project {project} before or it is disabled."
    metadata = {"service": "tpu.googleapis.com", "consumer": f"projects/{project}"}
    reason = {"reason": "SERVICE_DISABLED", "domain": "googleapis.com", "metadata": metadata}
    return TpuError(
        "PERMISSION_DENIED",
        message,
        ({"@type": "type.googleapis.com/google.rpc.ErrorInfo", **reason},),
    )


def forbidden(call: str, resource: str) -> TpuError:
    return TpuError(
        "PERMISSION_DENIED", f"The caller lacks the permission of the call {call} on '{resource}'."
    )


def unreachable(zone: str) -> TpuError:
    return TpuError("UNAVAILABLE", f"The zone '{zone}' is unreachable.")
