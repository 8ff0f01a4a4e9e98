"""The API under functions-framework, over the control plane in memory: what is asked and what comes back.

Every answer is held against its schema, and every capacity error against Google's form.
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

from shared.api.permissions import EQUIVALENT_PERMISSIONS
from shared.api.quotas import Bucket
from shared.api.request import Service
from shared.memory.access import MemoryAccess
from shared.wiring import api as wiring
from tests.integration.api.discovery import faults
from tests.support.jobs import a_spec
from tests.support.world import World

PROJECT = "my-project"
JOBS = f"/v1/projects/{PROJECT}/jobs"
CUSTOM_JOBS = f"/v1/projects/{PROJECT}/locations/us-central1/customJobs"
TUNING_JOBS = CUSTOM_JOBS.replace("customJobs", "hyperparameterTuningJobs")
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"

EVERYTHING = frozenset(EQUIVALENT_PERMISSIONS.values())
OWNER, VIEWER, NOBODY = "token-of-an-owner", "token-of-a-viewer", "token-of-nobody"
TOKENS = {
    OWNER: EVERYTHING,
    VIEWER: frozenset(each for each in EVERYTHING if each.endswith((".get", ".list"))),
    NOBODY: frozenset[str](),
}
STATUS_OF = {
    400: {"INVALID_ARGUMENT", "FAILED_PRECONDITION"},
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED"},
    404: {"NOT_FOUND"},
    409: {"ALREADY_EXISTS", "ABORTED"},
    429: {"RESOURCE_EXHAUSTED"},
    500: {"INTERNAL"},
    503: {"UNAVAILABLE"},
}


def an_app(world: World, access: MemoryAccess, patch: pytest.MonkeyPatch, requests: Bucket | None = None) -> Flask:
    ids = count()
    service = Service(PROJECT, world.deps, access, lambda: f"request-{next(ids)}", ACCOUNT, requests=requests)
    patch.setattr(wiring, "service", lambda: service)
    app: Flask = functions_framework.create_app("api", str(Path(__file__).parents[3] / "functions" / "api.py"), "http")
    return app


@dataclass
class Api:
    world: World
    access: MemoryAccess
    http: FlaskClient

    def ask(
        self, method: str, path: str, body: object = None, token: str | None = OWNER, agent: str = "test", **query: str
    ) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"User-Agent": agent, **({"Authorization": f"Bearer {token}"} if token else {})}
        answer = self.http.open(path, method=method, data=data, headers=headers, query_string={"alt": "json", **query})
        assert answer.content_type == "application/json; charset=UTF-8"
        said: dict[str, Any] = json.loads(answer.data)
        if answer.status_code != 200:
            check_refusal(answer.status_code, said)
        return answer.status_code, said

    def done(self, method: str, path: str, body: object = None, schema: str = "Job", **more: str) -> dict[str, Any]:
        """An answer that is no capacity error, and what its schema says it is."""
        status, said = self.ask(method, path, body, **more)
        assert status == 200, said
        api = "aiplatform" if "/customJobs" in path or "/hyperparameterTuningJobs" in path else "ml"
        prefix = {"ml": "GoogleCloudMlV1__", "aiplatform": "GoogleCloudAiplatformV1"}[api]
        name = schema if schema.startswith("Google") else prefix + schema
        assert faults(api, name, said, verbatim={"trainingInput", "jobSpec", "trialJobSpec", "studySpec"}) == []
        return said

    def create(self, job_id: str = "digits_1", /, **changes: object) -> dict[str, Any]:
        return self.done("POST", JOBS, {"jobId": job_id, **a_spec(**changes)})

    def get(self, job_id: str = "digits_1") -> dict[str, Any]:
        return self.done("GET", f"{JOBS}/{job_id}")

    def list(self, **query: str) -> dict[str, Any]:
        return self.done("GET", JOBS, schema="ListJobsResponse", **query)

    def cancel(self, job_id: str = "digits_1") -> dict[str, Any]:
        return self.done("POST", f"{JOBS}/{job_id}:cancel", {}, schema="GoogleProtobuf__Empty")

    def label(self, labels: dict[str, str], mask: str = "labels", **more: str) -> dict[str, Any]:
        return self.done("PATCH", f"{JOBS}/digits_1", {"labels": labels, **more}, updateMask=mask)

    def refused(self, method: str, path: str, body: object = None, **more: Any) -> dict[str, Any]:
        """The error of an answer that is a capacity error."""
        status, said = self.ask(method, path, body, **more)
        assert status >= 400, said
        error: dict[str, Any] = said["error"]
        return error


def check_refusal(code: int, said: dict[str, Any]) -> None:
    assert set(said) == {"error"}
    error = said["error"]
    assert set(error) <= {"code", "message", "status", "details"}
    assert error["code"] == code
    assert error["status"] in STATUS_OF[code]
    assert error["message"]
    for detail in error.get("details", ()):
        assert detail["@type"].startswith("type.googleapis.com/google.rpc.")
