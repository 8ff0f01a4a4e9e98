"""A test client of the API, which runs under functions-framework with the control plane in memory.

Every response is checked against its schema, and every error against Google's form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import functions_framework
import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.integration.api.discovery import faults
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.api.permissions import EQUIVALENT_PERMISSIONS
from trainmaster.api.quotas import Bucket
from trainmaster.api.request import Service
from trainmaster.wiring import api as wiring
from trainmaster_local.memory.access import MemoryAccess

PROJECT = "my-project"
JOBS = f"/v1/projects/{PROJECT}/jobs"
CUSTOM_JOBS = f"/v1/projects/{PROJECT}/locations/us-central1/customJobs"
TUNING_JOBS = CUSTOM_JOBS.replace("customJobs", "hyperparameterTuningJobs")
PIPELINES = CUSTOM_JOBS.replace("customJobs", "trainingPipelines")
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"

ALL_PERMISSIONS = frozenset(EQUIVALENT_PERMISSIONS.values())
OWNER, VIEWER, UNPRIVILEGED = (
    "ya29.token-of-an-owner",
    "ya29.token-of-a-viewer",
    "ya29.token-without-permissions",
)
TOKENS = {
    OWNER: ALL_PERMISSIONS,
    VIEWER: frozenset(
        permission for permission in ALL_PERMISSIONS if permission.endswith((".get", ".list"))
    ),
    UNPRIVILEGED: frozenset[str](),
}
LOCATION_SLASHES = 5
"""Slashes in the address of a location; addresses of Vertex AI's resources have more."""
VERBATIM = {  # fields that have what the user wrote, which no schema describes
    "trainingInput",
    "jobSpec",
    "trialJobSpec",
    "studySpec",
    "trainingTaskInputs",
    "trainingTaskMetadata",
}
STATUSES_BY_CODE = {
    400: {"INVALID_ARGUMENT", "FAILED_PRECONDITION"},
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED"},
    404: {"NOT_FOUND"},
    409: {"ALREADY_EXISTS", "ABORTED"},
    429: {"RESOURCE_EXHAUSTED"},
    500: {"INTERNAL"},
    501: {"UNIMPLEMENTED"},
    503: {"UNAVAILABLE"},
}


def an_app(
    world: World, access: MemoryAccess, patch: pytest.MonkeyPatch, requests: Bucket | None = None
) -> Flask:
    """Return the function `api` over the world. `requests`: what limits its requests."""
    ids = count()
    service = Service(
        PROJECT, world.deps, access, lambda: f"request-{next(ids)}", ACCOUNT, requests=requests
    )
    patch.setattr(wiring, "service", lambda: service)
    app: Flask = functions_framework.create_app(
        "api", str(Path(__file__).parents[3] / "functions" / "api.py"), "http"
    )
    return app


@dataclass
class Api:
    """A client of the function `api`, which checks each response against Google's schema."""

    world: World
    access: MemoryAccess
    http: FlaskClient

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        token: str | None = OWNER,
        agent: str = "test",
        **query: str,
    ) -> tuple[int, dict[str, Any]]:
        """Send a request. Return the HTTP status and the JSON object of the response.

        `token`: that of the caller; None: no one is signed in. `agent`: the header User-Agent.
        """
        data = body if isinstance(body, bytes) else _encoded(body)
        headers = {"User-Agent": agent}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        response = self.http.open(
            path, method=method, data=data, headers=headers, query_string={"alt": "json", **query}
        )
        assert response.content_type == "application/json; charset=UTF-8"
        content: dict[str, Any] = json.loads(response.data)
        if response.status_code != 200:
            check_error(response.status_code, content)
        return response.status_code, content

    def send_ok(
        self, method: str, path: str, body: object = None, schema: str = "Job", **more: str
    ) -> dict[str, Any]:
        """Send a request that must succeed; check the response against the schema and return it."""
        status, content = self.send(method, path, body, **more)
        assert status == 200, content
        api = "aiplatform" if "/locations/" in path and path.count("/") > LOCATION_SLASHES else "ml"
        prefix = {"ml": "GoogleCloudMlV1__", "aiplatform": "GoogleCloudAiplatformV1"}[api]
        name = schema if schema.startswith("Google") else prefix + schema
        assert faults(api, name, content, verbatim=VERBATIM) == []
        return content

    def create(self, job_id: str = "digits_1", /, **changes: object) -> dict[str, Any]:
        return self.send_ok("POST", JOBS, {"jobId": job_id, **a_spec(**changes)})

    def get(self, job_id: str = "digits_1") -> dict[str, Any]:
        return self.send_ok("GET", f"{JOBS}/{job_id}")

    def list(self, **query: str) -> dict[str, Any]:
        return self.send_ok("GET", JOBS, schema="ListJobsResponse", **query)

    def cancel(self, job_id: str = "digits_1") -> dict[str, Any]:
        return self.send_ok("POST", f"{JOBS}/{job_id}:cancel", {}, schema="GoogleProtobuf__Empty")

    def label(self, labels: dict[str, str], mask: str = "labels", **more: str) -> dict[str, Any]:
        return self.send_ok(
            "PATCH", f"{JOBS}/digits_1", {"labels": labels, **more}, updateMask=mask
        )

    def send_refused(
        self, method: str, path: str, body: object = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request that must fail, and return the error."""
        status, content = self.send(method, path, body, **more)
        assert status >= 400, content
        error: dict[str, Any] = content["error"]
        return error


def check_error(code: int, content: dict[str, Any]) -> None:
    """Check that the response has the form of Google's errors."""
    assert set(content) == {"error"}
    error = content["error"]
    assert set(error) <= {"code", "message", "status", "details"}
    assert error["code"] == code
    assert error["status"] in STATUSES_BY_CODE[code]
    assert error["message"]
    for detail in error.get("details", ()):
        assert detail["@type"].startswith("type.googleapis.com/google.rpc.")


def quota_error(sentence: str, *, limit: int, retry_s: int) -> dict[str, Any]:
    """Return the error of a request that exceeds this quota of a minute."""
    return {
        "code": 429,
        "message": f"Quota failure for project my-project. {sentence}",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"subject": "project:my-project", "description": sentence}],
            },
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "RATE_LIMIT_EXCEEDED",
                "domain": "googleapis.com",
                "metadata": {"consumer": "projects/my-project", "quota_limit_value": str(limit)},
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_s}s"},
        ],
    }


def _encoded(body: object) -> bytes:
    return b"" if body is None else json.dumps(body).encode()
