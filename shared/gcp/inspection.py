"""An installation as Google Cloud shows it to `trainmaster doctor`: what is there, read and never changed.

Plain REST with one session: eight small questions to six services are no reason for six client libraries. What is read
comes back as values; whether they are right is the doctor's to say.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import google.auth
import google.auth.transport.requests
import requests
from google.auth.exceptions import GoogleAuthError

from shared.errors import TemporaryError
from shared.gcp.project_access import ProjectAccess
from shared.ports import UnknownTokenError

SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT_S: Final = 20.0
TOKEN_FILE: Final = "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"  # noqa: S105 - a variable's name, gcloud's own

Json = Mapping[str, Any]


_NEW: Final = ("OBJECT_FINALIZE",)


class LookError(Exception):
    """Google answered with an error, or nobody answered: then `status` is 0."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"HTTP {status}: {said}" if status else said)
        self.status = status


@dataclass(frozen=True, slots=True)
class Subscription:
    """`endpoint` and `dead_letter` are empty where there is none; `dead_letter` is the topic's short name."""

    topic: str
    endpoint: str
    ack_deadline_s: int
    has_retry_policy: bool
    dead_letter: str
    attempts_max: int
    expires: bool


@dataclass(frozen=True, slots=True)
class Notification:
    """Of a bucket. `events` and `prefix` are empty for all."""

    topic: str
    events: tuple[str, ...]
    prefix: str

    def tells(self, topic: str, folder: str) -> bool:
        """Whether every new object below the folder is told to the topic."""
        return self.topic == topic and folder.startswith(self.prefix) and "OBJECT_FINALIZE" in (self.events or _NEW)


@dataclass(frozen=True, slots=True)
class Quota:
    metric: str
    used: float
    limit: float


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Base addresses; empty: Google's own, which alone are sent credentials. `accounts` is the API of IAM, `projects`
    Cloud Resource Manager."""

    pubsub: str = ""
    firestore: str = ""
    storage: str = ""
    compute: str = ""
    projects: str = ""
    accounts: str = ""


GOOGLE: Final = Endpoints(
    pubsub="https://pubsub.googleapis.com",
    firestore="https://firestore.googleapis.com",
    storage="https://storage.googleapis.com",
    compute="https://compute.googleapis.com",
    projects="https://cloudresourcemanager.googleapis.com",
    accounts="https://iam.googleapis.com",
)


class Inspection:
    """Every method raises LookError where it cannot see."""

    def __init__(self, project: str, endpoints: Endpoints, access: ProjectAccess) -> None:
        self.project = project
        self.endpoints = endpoints
        self._access = access

    def google_time(self) -> datetime:
        """The clock of who answers, to the second. Asked without a token: a wrong clock may be why there is none."""
        answer = self._ask("projects", f"/v1/projects/{self.project}", needs_token=False)
        try:
            return parsedate_to_datetime(answer.headers["Date"])
        except (KeyError, ValueError):
            raise LookError(answer.status_code, "the answer has no date") from None

    def permissions(self, desired: Sequence[str]) -> frozenset[str]:
        try:
            return self._access.granted(self._token(), desired)
        except UnknownTokenError:
            raise LookError(HTTPStatus.UNAUTHORIZED, "your credentials are not valid, or no longer") from None
        except TemporaryError as error:
            raise LookError(0, str(error)) from None

    def read_state(self) -> None:
        """Whether the caller can read documents at all."""
        self._get("firestore", f"/v1/projects/{self.project}/databases/(default)/documents/jobs?pageSize=1")

    def has_topic(self, name: str) -> bool:
        return self._pubsub(f"topics/{name}") is not None

    def schema(self, topic: str) -> str:
        """Full name of the schema that its messages must fit; empty: they need not."""
        said = self._pubsub(f"topics/{topic}") or {}
        return str(said.get("schemaSettings", {}).get("schema", ""))

    def error_kind(self, schema: str, message: bytes) -> str:
        """Why Pub/Sub would not take such a message; empty: it would. Nothing is published."""
        asked = {"name": schema, "message": base64.b64encode(message).decode(), "encoding": "JSON"}
        try:
            self._get("pubsub", f"/v1/projects/{self.project}/schemas:validateMessage", asked)
        except LookError as error:
            if error.status == HTTPStatus.BAD_REQUEST:
                return str(error)
            raise
        return ""

    def subscription(self, name: str) -> Subscription | None:
        said = self._pubsub(f"subscriptions/{name}")
        if said is None:
            return None
        dead_letter = said.get("deadLetterPolicy", {})
        return Subscription(
            topic=_short(said["topic"]),
            endpoint=said.get("pushConfig", {}).get("pushEndpoint", ""),
            ack_deadline_s=said.get("ackDeadlineSeconds", 10),  # Source: Pub/Sub's default
            has_retry_policy="retryPolicy" in said,
            dead_letter=_short(dead_letter.get("deadLetterTopic", "")),
            attempts_max=dead_letter.get("maxDeliveryAttempts", 0),
            # Source: Subscription.expiration_policy: unset is 31 days; set without a ttl is never.
            expires=bool(said.get("expirationPolicy", {"ttl": "2678400s"}).get("ttl")),
        )

    def has_bucket(self, bucket: str) -> bool:
        return self._look("storage", f"/storage/v1/b/{quote(bucket, safe='')}?fields=name") is not None

    def notifications(self, bucket: str) -> tuple[Notification, ...]:
        said = self._get("storage", f"/storage/v1/b/{quote(bucket, safe='')}/notificationConfigs")
        return tuple(
            Notification(_short(each["topic"]), tuple(each.get("event_types", ())), each.get("object_name_prefix", ""))
            for each in said.get("items", ())
        )

    def reach_compute(self) -> None:
        self._get("compute", f"/compute/v1/projects/{self.project}/zones?maxResults=1")

    def quotas(self, region: str) -> tuple[Quota, ...] | None:
        """None: there is no such region."""
        said = self._look("compute", f"/compute/v1/projects/{self.project}/regions/{region}")
        if said is None:
            return None
        return tuple(Quota(each["metric"], each["usage"], each["limit"]) for each in said.get("quotas", ()))

    def has_account(self, email: str) -> bool:
        return self._look("accounts", f"/v1/projects/{self.project}/serviceAccounts/{email}") is not None

    def _pubsub(self, path: str) -> Json | None:
        return self._look("pubsub", f"/v1/projects/{self.project}/{path}")

    def _look(self, service: str, path: str) -> Json | None:
        """None: it is not there."""
        try:
            return self._get(service, path)
        except LookError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _get(self, service: str, path: str, asked: Json | None = None) -> Json:
        """With something to ask, it is a POST."""
        answer = self._ask(service, path, asked)
        try:
            said = answer.json()
            if answer.ok:
                found: Json = said
                return found
            raise LookError(answer.status_code, str(said["error"]["message"]))
        except (ValueError, KeyError, TypeError):
            raise LookError(answer.status_code, answer.reason) from None

    def _ask(
        self, service: str, path: str, asked: Json | None = None, *, needs_token: bool = True
    ) -> requests.Response:
        """`service` is a field of Endpoints."""
        emulator: str = getattr(self.endpoints, service)
        headers = {"Authorization": f"Bearer {self._token()}"} if needs_token and not emulator else {}
        base = emulator or getattr(GOOGLE, service)
        try:
            method = "GET" if asked is None else "POST"
            return self._session.request(method, f"{base}{path}", json=asked, headers=headers, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            raise LookError(0, f"{base} does not answer: {error}") from None

    @cached_property
    def _session(self) -> requests.Session:
        return requests.Session()

    def _token(self) -> str:
        """As gcloud finds it: a file that is named, or else the caller's own credentials."""
        named = os.environ.get(TOKEN_FILE)
        if named:
            return Path(named).read_text(encoding="utf-8").strip()
        try:
            credentials = self._credentials
            if not credentials.valid:
                credentials.refresh(google.auth.transport.requests.Request())
            return str(credentials.token)
        except GoogleAuthError as error:
            raise LookError(HTTPStatus.UNAUTHORIZED, str(error)) from None

    @cached_property
    def _credentials(self) -> Any:
        credentials, _ = google.auth.default(scopes=SCOPES, quota_project_id=self.project)
        return credentials


def _short(name: str) -> str:
    """`//pubsub.googleapis.com/projects/P/topics/T` and the like → `T`."""
    return name.rpartition("/")[2]
