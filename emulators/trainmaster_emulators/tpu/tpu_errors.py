"""Cloud TPU's errors: responses of calls, or later results of operations.

Wording and structure are Google's, because clients match on both. Sources: responses quoted in
public issue threads, and `google.rpc.Status`.
"""

from __future__ import annotations

from trainmaster_emulators.rest.api_errors import Json, StatusError


def bad_request(why: str) -> StatusError:
    return StatusError("INVALID_ARGUMENT", f"Cloud TPU received a bad request. {why}")


def not_found(resource: str) -> StatusError:
    return StatusError("NOT_FOUND", f"Resource '{resource}' was not found")


def already_exists(resource: str) -> StatusError:
    return StatusError("ALREADY_EXISTS", f"Resource '{resource}' already exists")


def not_while(verb: str, state: str) -> StatusError:
    why = f"Cloud TPU received a bad request. {verb} is not supported while in state {state}"
    return StatusError("FAILED_PRECONDITION", why)


def no_such_location(zone: str) -> StatusError:
    return StatusError(
        "PERMISSION_DENIED", f"Permission denied on 'locations/{zone}' (or it may not exist)."
    )


def no_such_type(accelerator: str, zone: str) -> StatusError:
    return bad_request(
        f'The requested accelerator configuration for accelerator type, "{accelerator}", could not'
        f' be found in the zonal accelerator configurations for "{zone}".; the accelerator'
        f" {accelerator} was not found in zone {zone}"
    )


def stockout(zone: str) -> StatusError:
    return StatusError(
        "RESOURCE_EXHAUSTED",
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud'
        " TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)",
    )


def no_reservation() -> StatusError:
    why = "Insufficient reserved capacity. Contact customer support to increase your reservation."
    return StatusError("FAILED_PRECONDITION", why)


def quota_exceeded(generation: str, region: str) -> StatusError:
    metric = f"TPU{generation}PerProjectPerRegionForTPUAPI"
    message = f"Quota limit '{metric}' has been exceeded. Limit: 0 in region {region}."
    violation = {"subject": f"region:{region}", "description": message}
    detail: Json = {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [violation],
    }
    return StatusError("RESOURCE_EXHAUSTED", message, detail)


def rate_limited() -> StatusError:
    quota = (
        "quota metric 'Requests' and limit 'Requests per minute' of service 'tpu.googleapis.com'"
    )
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "RATE_LIMIT_EXCEEDED",
        "domain": "googleapis.com",
    }
    return StatusError("RESOURCE_EXHAUSTED", f"Quota exceeded for {quota}.", detail)


def disabled(project: str) -> StatusError:
    message = f"Cloud TPU API has not been used in project {project} before or it is disabled."
    detail: Json = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
        "metadata": {"service": "tpu.googleapis.com", "consumer": f"projects/{project}"},
    }
    return StatusError("PERMISSION_DENIED", message, detail)


def forbidden(call: str, resource: str) -> StatusError:
    return StatusError(
        "PERMISSION_DENIED", f"The caller lacks the permission of the call {call} on '{resource}'."
    )


def unreachable(zone: str) -> StatusError:
    return StatusError("UNAVAILABLE", f"The zone '{zone}' is unreachable.")
