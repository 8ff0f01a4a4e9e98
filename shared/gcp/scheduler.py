"""Cloud Scheduler: jobs that publish a message at times given in cron's words."""

from __future__ import annotations

import base64
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

import google.auth
import requests
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from shared.errors import PermanentError, TemporaryError

GOOGLE: Final = "https://cloudscheduler.googleapis.com"
SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_S: Final = 30.0

Json = dict[str, Any]


def scheduler_job(parent: str, name: str, cron: str, time_zone: str, topic: str, data: bytes) -> Json:
    """The resource. `parent`: `projects/P/locations/L`. Source: Job, PubsubTarget in the API's discovery document."""
    project = parent.split("/")[1]
    return {
        "name": f"{parent}/jobs/{name}",
        "description": "Trainmaster: submits a training job",
        "schedule": cron,
        "timeZone": time_zone,
        "pubsubTarget": {
            "topicName": f"projects/{project}/topics/{topic}",
            "data": base64.b64encode(data).decode("ascii"),
            "attributes": {"source": f"schedule:{name}"},
        },
    }


class CloudScheduler:
    """`endpoint`: one that asks for no credentials, for tests; empty: Google's."""

    def __init__(self, endpoint: str = "") -> None:
        self._base = endpoint or GOOGLE
        self._needs_credentials = not endpoint

    def put(self, job: Json) -> bool:
        """Create it, or make the one of that name equal to it. Whether it is new."""
        parent, _, _ = job["name"].rpartition("/jobs/")
        answer = self._call("POST", f"{parent}/jobs", job)
        if answer.status_code != HTTPStatus.CONFLICT:
            self._check(answer)
            return True
        self._check(self._call("PATCH", job["name"], job))
        return False

    @cached_property
    def _session(self) -> requests.Session:
        if not self._needs_credentials:
            return requests.Session()
        credentials, _ = google.auth.default(scopes=SCOPES)
        session: requests.Session = AuthorizedSession(credentials)
        return session

    def _call(self, method: str, path: str, job: Json) -> requests.Response:
        try:
            return self._session.request(method, f"{self._base}/v1/{path}", json=job, timeout=TIMEOUT_S)
        except (requests.RequestException, GoogleAuthError) as error:
            raise TemporaryError(f"Cloud Scheduler: {error}") from error

    @staticmethod
    def _check(answer: requests.Response) -> None:
        if answer.ok:
            return
        try:
            said = answer.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            said = answer.text or answer.reason
        raise PermanentError(f"Cloud Scheduler refuses: {said}")
