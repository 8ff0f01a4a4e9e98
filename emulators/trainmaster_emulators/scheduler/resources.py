"""The job resource: its fields, their limits, and changes by `updateMask`.

Source of fields and limits:
https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from trainmaster_emulators.rest.api_errors import Json, invalid
from trainmaster_emulators.scheduler.field_formats import (
    UNSPECIFIED,
    Base64,
    Duration,
    Method,
    Schedule,
    TimeZone,
)

URI_CHARS_MAX: Final = 2083
OUTPUT_ONLY: Final = (
    "state",
    "status",
    "scheduleTime",
    "userUpdateTime",
    "lastAttemptTime",
    "satisfiesPzs",
)
METHODS_WITH_BODY: Final = ("POST", "PUT", "PATCH")
TARGETS: Final = ("pubsubTarget", "httpTarget")
_NAME: Final = re.compile(r"projects/([^/]+)/locations/([a-z0-9-]+)/jobs/([A-Za-z0-9_-]{1,500})")
_SNAKE: Final = re.compile(r"_([a-z])")


class JobState(StrEnum):
    ENABLED = "ENABLED"
    PAUSED = "PAUSED"


class Resource(BaseModel):
    """JSON with the names of the API; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class PubsubTarget(Resource):
    topic_name: str = Field(pattern=r"^projects/[^/]+/topics/[^/]+$")
    data: Base64 = ""
    attributes: dict[str, str] = {}

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if not self.data and not self.attributes:
            raise ValueError("a message needs data or an attribute")
        return self


class OAuthToken(Resource):
    service_account_email: str
    scope: str = ""


class OidcToken(Resource):
    service_account_email: str
    audience: str = ""


class HttpTarget(Resource):
    uri: str = Field(pattern=r"^https?://[^/]+", max_length=URI_CHARS_MAX)
    http_method: Method = "POST"
    headers: dict[str, str] = {}
    body: Base64 = ""
    oauth_token: OAuthToken | None = None
    oidc_token: OidcToken | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.body and self.method not in METHODS_WITH_BODY:
            raise ValueError(f"a body is allowed with {', '.join(METHODS_WITH_BODY)} only")
        if self.oauth_token and self.oidc_token:
            raise ValueError("oauthToken and oidcToken cannot be combined")
        return self

    @property
    def method(self) -> str:
        return "POST" if self.http_method == UNSPECIFIED else self.http_method


class RetryConfig(Resource):
    retry_count: int = Field(default=0, ge=0, le=5)
    max_retry_duration: Duration = "0s"
    min_backoff_duration: Duration = "5s"
    max_backoff_duration: Duration = "3600s"
    max_doublings: int = Field(default=5, ge=0)


class Job(Resource):
    """A job as the API shows it. Fields of OUTPUT_ONLY are set by the emulator."""

    name: str
    description: str = Field(default="", max_length=500)
    schedule: Schedule
    time_zone: TimeZone = "Etc/UTC"
    pubsub_target: PubsubTarget | None = None
    http_target: HttpTarget | None = None
    retry_config: RetryConfig = RetryConfig()
    attempt_deadline: Duration = "180s"
    state: JobState = JobState.ENABLED
    status: Json = {}
    """Error of the last attempt: code and message; empty after a success."""
    schedule_time: AwareDatetime | None = None
    """Start of the next attempt."""
    user_update_time: AwareDatetime | None = None
    last_attempt_time: AwareDatetime | None = None

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.pubsub_target is None) is (self.http_target is None):
            raise ValueError("the job needs one target: pubsubTarget or httpTarget")
        return self

    def as_json(self) -> Json:
        """Return the resource without empty fields. Times have the suffix Z."""
        resource = self.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
        )
        if self.http_target:
            resource["httpTarget"]["httpMethod"] = self.http_target.method
            resource["attemptDeadline"] = self.attempt_deadline
        retries = self.retry_config.model_dump(by_alias=True, exclude={"retry_count"})
        if self.retry_config.retry_count:
            retries["retryCount"] = self.retry_config.retry_count
        return resource | {
            "timeZone": self.time_zone,
            "state": self.state.value,
            "retryConfig": retries,
        }


def new_job(body: Mapping[str, Any], parent: str, default_id: str, now: datetime) -> Job:
    """Return the job of a create request. Raises ApiError."""
    document = {key: value for key, value in body.items() if key not in OUTPUT_ONLY}
    document.setdefault("name", f"{parent}/jobs/{default_id}")
    job = _read({**document, "userUpdateTime": now})
    match = _NAME.fullmatch(job.name)
    if match is None or not job.name.startswith(f"{parent}/jobs/"):
        raise invalid(f"Job name must be formatted: '{parent}/jobs/<JOB_ID>', not {job.name!r}.")
    check_project(job, match[1])
    return job


def changed_job(job: Job, body: Mapping[str, Any], mask: str, now: datetime) -> Job:
    """Return the job after an update: the fields of the mask, or all fields of the body.

    Raises ApiError.
    """
    paths = [_camel(path) for path in mask.split(",") if path]
    if not paths:
        paths = [key for key in body if key not in OUTPUT_ONLY]
    document = job.model_dump(mode="json", by_alias=True, exclude_none=True)
    for path in paths:
        if path.partition(".")[0] in (*OUTPUT_ONLY, "name"):
            continue
        _copy(body, document, path.split("."))
        if path in TARGETS and path in body:
            # A job has one target: the new one replaces the other.
            for other in TARGETS:
                if other != path and other not in body:
                    document.pop(other, None)
    changed = _read({**document, "userUpdateTime": now})
    check_project(changed, changed.name.split("/")[1])
    return changed


def _camel(path: str) -> str:
    """Return a path of a mask, which may be in snake case, with the names of the API."""
    return _SNAKE.sub(lambda match: match[1].upper(), path.strip())


def check_project(job: Job, project: str) -> None:
    """Raise ApiError for a topic or a service account of another project, as Cloud
    Scheduler does.
    """
    if job.pubsub_target and job.pubsub_target.topic_name.split("/")[1] != project:
        raise invalid(
            f"pubsubTarget.topicName: the topic must be in the project of the job, {project}."
        )
    target = job.http_target
    token = target and (target.oauth_token or target.oidc_token)
    if token and not token.service_account_email.endswith(f"@{project}.iam.gserviceaccount.com"):
        raise invalid(
            "serviceAccountEmail: the service account must be in the project of the job,"
            f" {project}."
        )


def _read(document: Mapping[str, Any]) -> Job:
    """Return the job. Raises ApiError, which names every problem and its field."""
    try:
        return Job.model_validate(document)
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            field = ".".join(map(str, problem["loc"])) or "job"
            problems.append(f"{field}: {problem['msg'].removeprefix('Value error, ')}")
        raise invalid("; ".join(problems)) from None


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: list[str]) -> None:
    """Copy the value at the path, or remove it if the source has none.

    `path`: names of fields, from the outermost to that of the value.
    """
    key, *rest = path
    if rest:
        inner = target.setdefault(key, {})
        _copy(source.get(key, {}), inner, rest)
    elif key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)
