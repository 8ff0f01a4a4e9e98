"""Refusals in Google's form: a status of HTTP and of gRPC, a sentence, and details that programs read.

    {"error": {"code": 404, "message": "…", "status": "NOT_FOUND", "details": [{"@type": "…", …}]}}

Source: google.rpc.Status, its error details, and the answers of the old service that its users have published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from shared.core.rules.messages import JOB_EXISTS
from shared.jobspec import InvalidJob, Problem
from shared.jobspec.reading.problems import service_path

Json = dict[str, object]

_TYPE: Final = "type.googleapis.com/google.rpc."
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'}


class ApiError(Exception):
    """Ends a request. `headers` are sent beside the body."""

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


def no_token() -> ApiError:
    message = (
        "Request is missing required authentication credential. Expected an OAuth 2 access token in the Authorization "
        "header."
    )
    return ApiError(401, "UNAUTHENTICATED", message, [_info("CREDENTIALS_MISSING", {})], _CHALLENGE)


def bad_token() -> ApiError:
    message = (
        "Request had invalid authentication credentials: the OAuth 2 access token is expired, revoked or malformed. "
        "Log in again (gcloud auth login, or gcloud auth application-default login)."
    )
    return ApiError(401, "UNAUTHENTICATED", message, [_info("ACCESS_TOKEN_EXPIRED", {})], _CHALLENGE)


def denied(permission: str, project: str) -> ApiError:
    resource = f"//cloudresourcemanager.googleapis.com/projects/{project}"
    message = f"Permission '{permission}' denied on resource '{resource}' (or it may not exist)."
    info = _info("IAM_PERMISSION_DENIED", {"permission": permission, "resource": f"projects/{project}"})
    return ApiError(403, "PERMISSION_DENIED", message, [info])


def not_as(account: str) -> ApiError:
    """In Vertex AI's words, which its users search for."""
    message = f"You do not have permission to act as service_account: {account}. (or it may not exist)."
    info = _info("IAM_PERMISSION_DENIED", {"permission": "iam.serviceAccounts.actAs", "resource": account})
    return ApiError(403, "PERMISSION_DENIED", message, [info])


def other_project(project: str) -> ApiError:
    message = f"Permission denied on project {project}: this installation serves another one."
    return ApiError(403, "PERMISSION_DENIED", message)


def not_found(resource: str) -> ApiError:
    return ApiError(404, "NOT_FOUND", f"Field: name Error: The resource {resource} was not found.")


def no_method(method: str, path: str) -> ApiError:
    """Vertex AI's training pipelines are custom jobs with models and data sets around them, which are not served."""
    hint = " Create a custom job instead (aiplatform.CustomJob)." if "/trainingPipelines" in path else ""
    return ApiError(404, "NOT_FOUND", f"There is no method {method} {path[:200]}.{hint}")


def job_exists() -> ApiError:
    field, _, description = JOB_EXISTS.removeprefix("Field: ").partition(" Error: ")
    return ApiError(409, "ALREADY_EXISTS", JOB_EXISTS, [_violations([(field, description)])])


def changed_meanwhile() -> ApiError:
    message = "Field: job.etag Error: The job was changed since it was read: read it again and repeat the change."
    return ApiError(409, "ABORTED", message)


def too_early(message: str) -> ApiError:
    return ApiError(400, "FAILED_PRECONDITION", message)


def invalid(field: str, description: str) -> ApiError:
    """A parameter or a body that is no job: one field, in the names of the API."""
    return ApiError(
        400, "INVALID_ARGUMENT", f"Field: {field} Error: {description}", [_violations([(field, description)])]
    )


def invalid_job(error: InvalidJob) -> ApiError:
    return ApiError(400, "INVALID_ARGUMENT", str(error), [_violations(map(_violation, error.problems))])


def quota(project: str, description: str) -> ApiError:
    """Source: the service's own answer to too many accelerators."""
    detail: Json = {
        "@type": f"{_TYPE}QuotaFailure",
        "violations": [{"subject": f"project:{project}", "description": description}],
    }
    return ApiError(429, "RESOURCE_EXHAUSTED", f"Quota failure for project {project}. {description}", [detail])


def too_often(project: str, what: str, per_minute: int, wait_s: int) -> ApiError:
    """A quota of requests. Source of its details: google.api.ErrorReason and google.rpc.RetryInfo."""
    error_kind = quota(project, f"The request exceeds the allowed maximum of {per_minute} {what} per minute.")
    error_kind.details += [
        _info("RATE_LIMIT_EXCEEDED", {"consumer": f"projects/{project}", "quota_limit_value": str(per_minute)}),
        {"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{wait_s}s"},
    ]
    error_kind.headers["Retry-After"] = str(wait_s)
    return error_kind


def unavailable() -> ApiError:
    return ApiError(503, "UNAVAILABLE", "The service is currently unavailable. Try again.")


def internal() -> ApiError:
    return ApiError(500, "INTERNAL", "Internal error encountered.")


def _violation(problem: Problem) -> tuple[str, str]:
    return service_path(problem.field), f"{problem.problem} (for example {problem.example})"


def _violations(found: Iterable[tuple[str, str]]) -> Json:
    listed = [{"field": field, "description": description} for field, description in found]
    return {"@type": f"{_TYPE}BadRequest", "fieldViolations": listed}


def _info(reason: str, metadata: Mapping[str, str]) -> Json:
    return {"@type": f"{_TYPE}ErrorInfo", "reason": reason, "domain": "googleapis.com", "metadata": dict(metadata)}
