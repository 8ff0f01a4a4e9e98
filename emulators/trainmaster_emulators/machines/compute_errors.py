"""Compute Engine's two kinds of errors: ApiError is the response of a call, OperationError the
result of an operation.

Wording and structure are Google's, because clients match on both. Sources: responses quoted in
public issue threads (kubernetes/k8s.io 9834 for the stockout with `zonesAvailable`,
CCExtractor/sample-platform 901 for its operation) and `google.cloud.compute_v1.types.Errors`,
`ErrorDetails`, `QuotaExceededInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from trainmaster_emulators.rest import api_errors

Json = api_errors.Json
"""A JSON object of Google's API."""
_REASONS: Final = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "resourceInUse",
    429: "rateLimitExceeded",
}
"""HTTP status → the most general reason. Source: "Standard error responses" of Google's older
APIs.
"""


@dataclass(eq=False)
class ApiError(api_errors.ApiError):
    """An error response of a call, in the format of Google's older APIs.

    `status`: a reason, such as `notFound`.
    """

    location: str | None = None
    """Name of the wrong parameter or header."""
    location_type: str = "parameter"

    def body(self) -> Json:
        detail: Json = {"message": self.message, "domain": "global", "reason": self.status}
        if self.status == "rateLimitExceeded":
            detail["domain"] = "usageLimits"
        if self.location is not None:
            detail |= {"locationType": self.location_type, "location": self.location}
        return {"error": {"code": self.code, "message": self.message, "errors": [detail]}}


def not_found(resource: str) -> ApiError:
    """Return the error of a missing resource.

    `resource`: its path, which starts with `projects/`.
    """
    return ApiError(404, "notFound", f"The resource '{resource}' was not found")


def already_exists(resource: str) -> ApiError:
    return ApiError(409, "alreadyExists", f"The resource '{resource}' already exists")


def invalid(field_path: str, value: object, why: str) -> ApiError:
    return ApiError(400, "invalid", f"Invalid value for field '{field_path}': '{value}'. {why}")


def required(field_path: str) -> ApiError:
    return ApiError(400, "required", f"Required field '{field_path}' not specified")


def not_ready(resource: str) -> ApiError:
    return ApiError(400, "resourceNotReady", f"The resource '{resource}' is not ready")


def condition_not_met(kind: str) -> ApiError:
    message = f"Supplied fingerprint does not match current {kind} fingerprint."
    return ApiError(412, "conditionNotMet", message, location="If-Match", location_type="header")


def rate_limited() -> ApiError:
    """Return the error of an exhausted per-minute quota: Compute Engine returns 403 for it, not
    429.
    """
    quota = (
        "quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'"
    )
    return ApiError(403, "rateLimitExceeded", f"Quota exceeded for {quota}.")


def disabled(project: str) -> ApiError:
    """Return the error of an API that is not enabled.

    Source: the message that Google's clients quote.
    """
    message = (
        f"Compute Engine API has not been used in project {project} before or it is disabled."
        " Enable it by visiting https://console.developers.google.com/apis/api/"
        f"compute.googleapis.com/overview?project={project} then retry."
    )
    return ApiError(403, "accessNotConfigured", message)


def forbidden(call: str, project: str) -> ApiError:
    return ApiError(
        403, "forbidden", f"Required permission of the call {call} for 'projects/{project}'"
    )


def unreachable(zone: str | None) -> ApiError:
    return ApiError(503, "backendError", f"The zone '{zone}' is unreachable.")


def failed(status: int) -> ApiError:
    """Return an error with this HTTP status, whatever its cause may be.

    412 is an organisation policy, as in Google's answers.
    """
    if status == HTTPStatus.PRECONDITION_FAILED:
        return ApiError(status, "conditionNotMet", api_errors.POLICY_VIOLATED)
    reason = _REASONS.get(status, "backendError")
    return ApiError(status, reason, f"The call fails with {status}, as requested.")


@dataclass(frozen=True, slots=True)
class OperationError:
    """One entry of an operation's `error.errors`."""

    code: str
    message: str
    http_status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE
    """The operation's `httpErrorStatusCode`."""
    details: tuple[Json, ...] = field(default=())

    def as_json(self) -> Json:
        entry: Json = {"code": self.code, "message": self.message}
        if self.details:
            entry["errorDetails"] = list(self.details)
        return entry


def stockout(
    project: str, zone: str, machine_type: str, accelerators: str, zones_available: Iterable[str]
) -> OperationError:
    """Return the error of an insert in a zone without capacity.

    `accelerators`: in Google's form `nvidia-tesla-t4:1`; empty for none.
    """
    elsewhere = ",".join(zones_available)
    with_gpu = f" with {accelerators} accelerator(s)" if accelerators else ""
    hint = ""
    if elsewhere:
        hint = (
            f" Consider trying your request in the {elsewhere} zone(s), which currently has"
            " capacity to accommodate your request."
        )
    sentence = (
        f"A {machine_type} VM instance{with_gpu} is currently unavailable in the {zone} zone."
        f"{hint} Alternatively, you can try your request again with a different VM hardware"
        " configuration or at a later time. For more information, see the troubleshooting"
        " documentation."
    )
    documentation = {
        "description": "Troubleshooting documentation",
        "url": "https://cloud.google.com/compute/docs/resource-error",
    }
    metadatas = {
        "zone": zone,
        "vmType": machine_type,
        "attachment": accelerators,
        "zonesAvailable": elsewhere,
    }
    return OperationError(
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available to"
        " fulfill the request.  '(resource type:compute)'.",
        HTTPStatus.SERVICE_UNAVAILABLE,
        (
            {"help": {"links": [documentation]}},
            {"localizedMessage": {"locale": "en-US", "message": sentence}},
            {
                "errorInfo": {
                    "reason": "resource_availability",
                    "domain": "compute.googleapis.com",
                    "metadatas": metadatas,
                }
            },
        ),
    )


def quota_exceeded(region: str, metric: str, limit: float) -> OperationError:
    info = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limitName": f"{metric}-per-project-region",
        "dimensions": {"region": region},
        "limit": limit,
    }
    message = f"Quota '{metric}' exceeded.  Limit: {limit} in region {region}."
    return OperationError("QUOTA_EXCEEDED", message, HTTPStatus.FORBIDDEN, ({"quotaInfo": info},))


def too_few_created(desired: int) -> OperationError:
    """Return the error that a bulk insert adds to the cause when it misses `minCount` and deletes
    its VMs again.
    """
    message = f"Requested minimum count of {desired} VMs could not be created."
    return OperationError("VM_MIN_COUNT_NOT_REACHED", message)


def preempted_at_start() -> OperationError:
    """Return the error of an insert whose Spot VM was preempted before it ran.

    Sources: scylladb/scylla-cluster-tests 2790 and 2945, by which the stopped VM keeps its name;
    the code is that of SkyPilot's failover handler.
    """
    message = "Instance failed to start due to preemption."
    return OperationError("UNSUPPORTED_OPERATION", message, HTTPStatus.BAD_REQUEST)


def internal_error(message: str) -> OperationError:
    return OperationError("INTERNAL_ERROR", message, HTTPStatus.INTERNAL_SERVER_ERROR)
