"""Error responses in Google's form: an HTTP and a gRPC status, a sentence, and details.

    {"error": {"code": 404, "message": "…", "status": "NOT_FOUND", "details": [{"@type": "…", …}]}}

Source: google.rpc.Status and its error details; responses of AI Platform Training (the service)
that its users have published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from trainmaster.core.rules.messages import JOB_EXISTS
from trainmaster.jobspec.problems import InvalidJob, service_path

Json = dict[str, object]

_TYPE: Final = "type.googleapis.com/google.rpc."
_PATH_CHARS_MAX: Final = 200
"""Characters of a path that a message repeats."""
# Tells a client how to authenticate (RFC 9110, section 11.6.1).
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'}


class ApiError(Exception):
    """Ends a request with an error response.

    `code`: HTTP status. `status`: name of the gRPC status. `details`: messages of google.rpc, each
    with its `@type`.
    """

    def __init__(
        self,
        code: int,
        status: str,
        message: str,
        details: Iterable[Json] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.details = list(details)
        self.headers = dict(headers or {})

    @property
    def body(self) -> Json:
        error: Json = {"code": self.code, "message": str(self), "status": self.status}
        if self.details:
            error["details"] = self.details
        return {"error": error}


def missing_token() -> ApiError:
    """Return the error for a request without a token."""
    message = (
        "Request is missing required authentication credential. Expected an OAuth 2 access token in"
        " the Authorization header."
    )
    return ApiError(
        401,
        "UNAUTHENTICATED",
        message,
        [_error_info("CREDENTIALS_MISSING", metadata={})],
        _CHALLENGE,
    )


def invalid_token() -> ApiError:
    """Return the error for a token that Google does not know."""
    message = (
        "Request had invalid authentication credentials: the OAuth 2 access token is expired,"
        " revoked or malformed. Log in again (gcloud auth login, or gcloud auth application-default"
        " login). With a key file, give the credentials the scope"
        " https://www.googleapis.com/auth/cloud-platform: without a scope, the library sends a"
        " signed JWT instead of an access token."
    )
    return ApiError(
        401,
        "UNAUTHENTICATED",
        message,
        [_error_info("ACCESS_TOKEN_EXPIRED", metadata={})],
        _CHALLENGE,
    )


def permission_denied(permission: str, project: str) -> ApiError:
    """Return the error for a caller who lacks a permission that the method needs."""
    resource = f"//cloudresourcemanager.googleapis.com/projects/{project}"
    message = (
        f"Permission '{permission}' denied on resource '{resource}' (or it may not exist)."
        " Trainmaster's administrator grants it by the variables api_users and api_viewers."
    )
    info = _error_info(
        "IAM_PERMISSION_DENIED", {"permission": permission, "resource": f"projects/{project}"}
    )
    return ApiError(403, "PERMISSION_DENIED", message, [info])


def insufficient_scope() -> ApiError:
    """Return the error for a token that may only read. Source: Google's answer to such a token."""
    message = (
        "Request had insufficient authentication scopes. Creating, changing and cancelling jobs"
        " requires an access token with the scope https://www.googleapis.com/auth/cloud-platform."
    )
    info = _error_info("ACCESS_TOKEN_SCOPE_INSUFFICIENT", {"service": "trainmaster"})
    return ApiError(403, "PERMISSION_DENIED", message, [info])


def cannot_use(field: str, name: str, permissions: Sequence[str]) -> ApiError:
    """Return the error for a resource that the job names, but the caller may not use."""
    needed = " and ".join(permissions)
    message = (
        f"Field: {service_path(field)} Error: You do not have permission to use {name} (or it may"
        f" not exist): {needed}."
    )
    info = _error_info("IAM_PERMISSION_DENIED", {"permission": permissions[0], "resource": name})
    return ApiError(403, "PERMISSION_DENIED", message, [info])


def unchecked_permission(remedy: str) -> ApiError:
    """Return the error for a caller whose permissions Google does not check.

    `remedy`: why it does not, and what to do.
    """
    return ApiError(
        403, "PERMISSION_DENIED", remedy, [_error_info("SERVICE_DISABLED", metadata={})]
    )


def cannot_act_as(account: str) -> ApiError:
    """Return the error for a service account that the caller may not use.

    The message is Vertex AI's, because users search for it.
    """
    message = (
        f"You do not have permission to act as service_account: {account}. (or it may not exist)."
    )
    info = _error_info(
        "IAM_PERMISSION_DENIED", {"permission": "iam.serviceAccounts.actAs", "resource": account}
    )
    return ApiError(403, "PERMISSION_DENIED", message, [info])


def wrong_project(project: str) -> ApiError:
    """Return the error for a project other than the installation's."""
    message = f"Permission denied on project {project}: this installation serves another project."
    return ApiError(403, "PERMISSION_DENIED", message)


def not_found(resource: str) -> ApiError:
    """Return the error for a resource that does not exist, such as `projects/P/jobs/J`."""
    return ApiError(404, "NOT_FOUND", f"Field: name Error: The resource {resource} was not found.")


def unknown_method(method: str, path: str) -> ApiError:
    """Return the error for an address that no route has."""
    return ApiError(404, "NOT_FOUND", f"There is no method {method} {path[:_PATH_CHARS_MAX]}.")


def job_exists() -> ApiError:
    """Return the error for a used job id, with the field and the description of `JOB_EXISTS`."""
    field, _, description = JOB_EXISTS.removeprefix("Field: ").partition(" Error: ")
    return ApiError(409, "ALREADY_EXISTS", JOB_EXISTS, [_bad_request([(field, description)])])


def etag_mismatch() -> ApiError:
    """Return the error for a change of labels that have changed since they were read."""
    message = (
        "Field: job.etag Error: The job has changed since it was read. Read it again and repeat the"
        " change."
    )
    return ApiError(409, "ABORTED", message)


def failed_precondition(message: str) -> ApiError:
    """Return the error for a request that the state of its resource does not permit."""
    return ApiError(400, "FAILED_PRECONDITION", message)


def invalid_argument(field: str, description: str) -> ApiError:
    """Return the error for a wrong parameter or field of a body. `field`: in the API's names."""
    message = f"Field: {field} Error: {description}"
    return ApiError(400, "INVALID_ARGUMENT", message, [_bad_request([(field, description)])])


def invalid_job(error: InvalidJob) -> ApiError:
    """Return the error for a document with problems, each of which is a field violation."""
    violations = [
        (service_path(problem.field), f"{problem.problem} (for example {problem.example})")
        for problem in error.problems
    ]
    return ApiError(400, "INVALID_ARGUMENT", str(error), [_bad_request(violations)])


def invalid_document(error: InvalidJob) -> ApiError:
    """Return the same for a document of any format, whose fields are named as its sender wrote
    them.
    """
    violations = [
        (problem.field, f"{problem.problem} (for example {problem.example})")
        for problem in error.problems
    ]
    message = "\n".join(problem.as_sent for problem in error.problems)
    return ApiError(400, "INVALID_ARGUMENT", message, [_bad_request(violations)])


def quota_exceeded(project: str, description: str) -> ApiError:
    """Return the error for a request above a quota. `description`: which quota, as a sentence.

    Source: the service's own response to too many accelerators.
    """
    detail: Json = {
        "@type": f"{_TYPE}QuotaFailure",
        "violations": [{"subject": f"project:{project}", "description": description}],
    }
    return ApiError(
        429, "RESOURCE_EXHAUSTED", f"Quota failure for project {project}. {description}", [detail]
    )


def rate_limited(project: str, counted: str, per_minute: int, wait_s: int) -> ApiError:
    """Return the error for too many requests per minute.

    `counted`: what the quota counts, in the plural. `wait_s`: seconds until the next request is
    accepted. Source of the details: google.api.ErrorReason, RetryInfo.
    """
    error = quota_exceeded(
        project, f"The request exceeds the allowed maximum of {per_minute} {counted} per minute."
    )
    error.details += [
        _error_info(
            "RATE_LIMIT_EXCEEDED",
            {"consumer": f"projects/{project}", "quota_limit_value": str(per_minute)},
        ),
        {"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{wait_s}s"},
    ]
    error.headers["Retry-After"] = str(wait_s)
    return error


def unavailable() -> ApiError:
    """Return the error for a transient problem: the client may repeat its request."""
    return ApiError(503, "UNAVAILABLE", "The service is currently unavailable. Try again.")


def internal() -> ApiError:
    """Return the error for a bug, of which the client learns nothing."""
    return ApiError(500, "INTERNAL", "Internal error encountered.")


def _bad_request(violations: Iterable[tuple[str, str]]) -> Json:
    """Return the detail for wrong fields: pairs of field and description."""
    listed = [{"field": field, "description": description} for field, description in violations]
    return {"@type": f"{_TYPE}BadRequest", "fieldViolations": listed}


def _error_info(reason: str, metadata: Mapping[str, str]) -> Json:
    return {
        "@type": f"{_TYPE}ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": dict(metadata),
    }
