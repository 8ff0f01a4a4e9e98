"""An installation as Google Cloud shows it to `trainmaster doctor`.

Everything is read, nothing is changed.

It uses no client libraries: it reads little from eight services, and half of the libraries are not
needed elsewhere. Methods return the resources as values (`gcp.inspected_resources`); `cli.doctor`
judges whether they are right.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import Request

from trainmaster.core.model.installation import name_in_installation
from trainmaster.errors import TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.errors import NO_CONNECTION
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.gcp.rest_api import Json, RestApi
from trainmaster.gcp.tools.inspected_resources import (
    DeployedFunction,
    Notification,
    Policy,
    Quota,
    Subscription,
    read_policy,
)
from trainmaster.ports import CallersProjectError, UnknownTokenError

TIMEOUT_S: Final = 10.0
_DISABLED_API: Final = re.compile(r"\b([a-z]+\.googleapis\.com)\b")
"""The name of an API, in Google's sentence that it is not enabled."""
_PROJECT_DENIED: Final = "USER_PROJECT_DENIED"
"""Source: reason in Google's ErrorInfo if the caller may not use the project that
X-Goog-User-Project names.
"""


class InspectionError(Exception):
    """Google answered with an error.

    `status`: the HTTP status, or 0 if no response arrived. `disabled_api`: the API that the project
    has not enabled, such as `compute.googleapis.com`, if that is why.
    """

    def __init__(self, status: int, message: str, disabled_api: str = "") -> None:
        super().__init__(f"HTTP {status}: {message}" if status else message)
        self.status = status
        self.disabled_api = disabled_api


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Base addresses, by Google's name of the API. Empty: Google's own, the only ones that are sent
    credentials.
    """

    pubsub: str = ""
    firestore: str = ""
    storage: str = ""
    compute: str = ""
    cloudresourcemanager: str = ""
    iam: str = ""
    orgpolicy: str = ""
    cloudfunctions: str = ""
    tpu: str = ""

    @property
    def is_local_stack(self) -> bool:
        """Whether emulators stand for Google Cloud, as on a local stack."""
        return bool(self.compute)


GOOGLE: Final = Endpoints(*(f"https://{field.name}.googleapis.com" for field in fields(Endpoints)))


class Inspection:
    """Reads of one installation.

    Every method raises InspectionError if Google answers with an error, or not at all, except where
    its docstring says what a missing resource means.
    """

    def __init__(self, project: str, endpoints: Endpoints, access: ProjectAccess) -> None:
        self.project = project
        self.endpoints = endpoints
        self._access = access
        self._silent: dict[str, InspectionError] = {}
        """Services that did not answer, which are not called again: many checks would wait for each
        of them.
        """

    def google_time(self) -> datetime:
        """Return the clock of Google's server, to the second.

        Sends no token: a wrong clock may prevent getting one.
        """
        base = self.endpoints.cloudresourcemanager or GOOGLE.cloudresourcemanager
        try:
            response = Request()(f"{base}/v1/projects/{self.project}", timeout=TIMEOUT_S)
        except NO_CONNECTION as error:
            raise InspectionError(status=0, message=f"{base} does not answer: {error}") from None
        try:
            return parsedate_to_datetime(response.headers["Date"])
        except (KeyError, ValueError):
            raise InspectionError(response.status, "the response has no date") from None

    def permissions(self, permissions: Sequence[str]) -> frozenset[str]:
        """Return which of these permissions the caller has on the project."""
        return self._granted(self._access.granted_permissions, permissions)

    def api_permissions(self, permissions: Sequence[str]) -> frozenset[str]:
        """Return which of these permissions of the API the caller has through a role on the service
        account for callers.
        """
        return self._granted(self._access.api_permissions, permissions)

    def _granted(
        self,
        ask: Callable[[str, Sequence[str]], frozenset[str]],
        permissions: Sequence[str],
    ) -> frozenset[str]:
        """Call a method of ProjectAccess with the caller's token, and turn its errors into
        InspectionError.
        """
        try:
            return ask(self._token, permissions)
        except UnknownTokenError:
            raise InspectionError(
                HTTPStatus.UNAUTHORIZED, "your credentials are invalid or expired"
            ) from None
        except (CallersProjectError, TemporaryError) as error:
            raise InspectionError(status=0, message=str(error)) from None

    def read_state(self) -> None:
        """Raise InspectionError if the caller cannot read documents."""
        database = name_in_installation("(default)")
        self._call(
            "firestore",
            f"/v1/projects/{self.project}/databases/{database}/documents/jobs?pageSize=1",
        )

    def has_topic(self, name: str) -> bool:
        """Return whether the project has a topic of this name."""
        return self._pubsub(f"topics/{name}") is not None

    def schema(self, topic: str) -> str:
        """Return the full name of the topic's schema. Empty: it has none."""
        resource = self._pubsub(f"topics/{topic}") or {}
        return str(resource.get("schemaSettings", {}).get("schema", ""))

    def schema_problem(self, schema: str, message: bytes) -> str:
        """Return why Pub/Sub would reject such a message.

        Empty: it would accept it. Nothing is published.
        """
        body = {"name": schema, "message": base64.b64encode(message).decode(), "encoding": "JSON"}
        try:
            self._call("pubsub", f"/v1/projects/{self.project}/schemas:validateMessage", body)
        except InspectionError as error:
            if error.status == HTTPStatus.BAD_REQUEST:
                return str(error)
            raise
        return ""

    def subscription(self, name: str) -> Subscription | None:
        """Return the subscription; None if it does not exist."""
        resource = self._pubsub(f"subscriptions/{name}")
        if resource is None:
            return None
        dead_letter = resource.get("deadLetterPolicy", {})
        return Subscription(
            topic=_short(resource["topic"]),
            endpoint=resource.get("pushConfig", {}).get("pushEndpoint", ""),
            ack_deadline_s=resource.get("ackDeadlineSeconds", 10),  # Source: Pub/Sub's default
            has_retry_policy="retryPolicy" in resource,
            dead_letter=_short(dead_letter.get("deadLetterTopic", "")),
            attempts_max=dead_letter.get("maxDeliveryAttempts", 0),
            # Source: Subscription.expiration_policy: unset is 31 days; set without a ttl is never.
            expires=bool(resource.get("expirationPolicy", {"ttl": "2678400s"}).get("ttl")),
        )

    def bucket_location(self, bucket: str) -> str | None:
        """Return where the bucket is, such as `us-central1` or `eu`. None: there is no bucket."""
        path = f"/storage/v1/b/{quote(bucket, safe='')}?fields=name,location"
        found = self._find("storage", path)
        return None if found is None else str(found.get("location", "")).lower()

    def database_location(self, name: str) -> str | None:
        """Return where a database of Firestore is. None: there is none of this name."""
        path = f"/v1/projects/{self.project}/databases/{name}"
        found = self._find("firestore", path)
        return None if found is None else str(found.get("locationId", ""))

    def read_project(self) -> None:
        """Raise InspectionError if the project does not exist, or the caller may not see it."""
        self._call("cloudresourcemanager", f"/v1/projects/{self.project}")

    def account(self) -> str | None:
        """Return the e-mail address of the caller. None: the token does not contain it."""
        return self._access.email(self._token)

    def notifications(self, bucket: str) -> tuple[Notification, ...]:
        """Return the notifications to Pub/Sub that a bucket sends."""
        path = f"/storage/v1/b/{quote(bucket, safe='')}/notificationConfigs"
        answer = self._call("storage", path)
        return tuple(
            Notification(
                _short(item["topic"]),
                tuple(item.get("event_types", ())),
                item.get("object_name_prefix", ""),
            )
            for item in answer.get("items", ())
        )

    def reach_compute(self) -> None:
        """Raise InspectionError if Compute Engine cannot be used."""
        self._call("compute", f"/compute/v1/projects/{self.project}/zones?maxResults=1")

    def quotas(self, region: str) -> tuple[Quota, ...] | None:
        """Return the quotas of the region; None if it does not exist."""
        resource = self._find("compute", f"/compute/v1/projects/{self.project}/regions/{region}")
        return None if resource is None else _quotas_of(resource)

    def project_quotas(self) -> tuple[Quota, ...]:
        """Return the quotas that count all regions together."""
        return _quotas_of(self._find("compute", f"/compute/v1/projects/{self.project}") or {})

    def unreachable_zones(self) -> frozenset[str]:
        """Return the zones that a list of all VMs lacks."""
        fields = "items/*/warning/code,unreachables"
        path = f"/compute/v1/projects/{self.project}/aggregated/instances?fields={fields}"
        listing = self._call("compute", path)
        unreachable = set(listing.get("unreachables", ()))
        for name, scope in listing.get("items", {}).items():
            if scope.get("warning", {}).get("code") == "UNREACHABLE":
                unreachable.add(name)
        return frozenset(map(_short, unreachable))

    def unreachable_tpu_zones(self) -> frozenset[str]:
        """Return the zones that the lists of TPU nodes and queued resources lack."""
        unreachable: set[str] = set()
        for kind in ("nodes", "queuedResources"):
            path = f"/v2/projects/{self.project}/locations/-/{kind}"
            listing = self._call("tpu", f"{path}?fields=unreachable,nextPageToken")
            unreachable.update(listing.get("unreachable", ()))
        return frozenset(map(_short, unreachable))

    def has_image(self, image: str) -> bool:
        """Whether there is an image, or a family with an image,
        `projects/P/global/images/[family/]NAME`.
        """
        return self._find("compute", f"/compute/v1/{image}?fields=name") is not None

    def deleted_roles(self) -> frozenset[str]:
        """Return the ids of the deleted custom roles that can still be restored."""
        path = f"/v1/projects/{self.project}/roles?showDeleted=true&pageSize=1000"
        roles = self._call("iam", path).get("roles", ())
        return frozenset(_short(role["name"]) for role in roles if role.get("deleted"))

    def offers(self, zone: str) -> frozenset[str]:
        """Return the names of the machine types and GPUs that the zone has; none if it does not
        exist.
        """
        names: set[str] = set()
        for kind in ("machineTypes", "acceleratorTypes"):
            path = f"/compute/v1/projects/{self.project}/zones/{zone}/{kind}"
            fields = "fields=items/name,nextPageToken"
            token: str | None = ""
            while token is not None:
                page = f"{path}?{fields}&pageToken={quote(token, safe='')}"
                answer = self._find("compute", page) or {}
                names.update(item["name"] for item in answer.get("items", ()))
                token = answer.get("nextPageToken")
        return frozenset(names)

    def policy(self, constraint: str) -> Policy:
        """Return the effective policy of a constraint such as `gcp.resourceLocations`."""
        path = f"/v2/projects/{self.project}/policies/{constraint}:getEffectivePolicy"
        return read_policy(self._find("orgpolicy", path) or {})

    def functions(self) -> tuple[DeployedFunction, ...]:
        """Return the functions of all regions."""
        answer = self._call(
            "cloudfunctions", f"/v2/projects/{self.project}/locations/-/functions?pageSize=1000"
        )
        return tuple(map(_function_of, answer.get("functions", ())))

    def status_without_token(self, url: str) -> int:
        """Return the HTTP status of a GET that sends no credentials."""
        try:
            return int(Request()(url, timeout=TIMEOUT_S).status)
        except NO_CONNECTION as error:
            raise InspectionError(status=0, message=f"{url} does not answer: {error}") from None

    def has_account(self, email: str) -> bool:
        """Return whether the project has a service account with this e-mail address."""
        return self._find("iam", f"/v1/projects/{self.project}/serviceAccounts/{email}") is not None

    def _pubsub(self, path: str) -> Json | None:
        """Return a topic, subscription or schema of the project. None: it does not exist."""
        return self._find("pubsub", f"/v1/projects/{self.project}/{path}")

    def _find(self, service: str, path: str) -> Json | None:
        """Return the resource. None: it does not exist."""
        try:
            return self._call(service, path)
        except InspectionError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _call(self, service: str, path: str, body: Json | None = None) -> Json:
        """Get the resource, or post the body. `service` is a field of Endpoints."""
        if service in self._silent:
            raise self._silent[service]
        emulator: str = getattr(self.endpoints, service)
        google: str = getattr(GOOGLE, service)
        token = "" if emulator else self._token

        def call(quota_project: str) -> Json:
            with closing(RestApi(google, emulator, TIMEOUT_S, token, quota_project)) as api:
                return api.call("GET" if body is None else "POST", path, body)

        try:
            # Some APIs refuse a user's own credentials without a project whose quota counts. To
            # name the project, the caller needs serviceusage.services.use, which few APIs need.
            try:
                return call("" if emulator else self.project)
            except exceptions.Forbidden as error:
                if _PROJECT_DENIED not in f"{error.details} {error.message}":
                    raise
            return call("")
        except exceptions.GoogleAPICallError as error:
            message = str(error.message)
            raise InspectionError(int(error.code or 0), message, _disabled_api(message)) from None
        except NO_CONNECTION as error:
            self._silent[service] = InspectionError(
                status=0, message=f"{emulator or google} does not answer: {error}"
            )
            raise self._silent[service] from None

    @cached_property
    def _token(self) -> str:
        try:
            return clients.caller_token(self.project)
        except GoogleAuthError as error:
            raise InspectionError(HTTPStatus.UNAUTHORIZED, str(error)) from None


def _disabled_api(message: str) -> str:
    """Return the API that is not enabled according to a message of Google's. Empty: it is about
    another problem.
    """
    if "has not been used in project" not in message and "is disabled" not in message:
        return ""
    found = _DISABLED_API.search(message)
    return found[1] if found else ""


def _function_of(item: Json) -> DeployedFunction:
    """Return a function of the list that Cloud Functions returned."""
    messages = [str(message.get("message", "")) for message in item.get("stateMessages", ())]
    return DeployedFunction(
        name=_short(item["name"]),
        state=item.get("state", "UNKNOWN"),
        message=messages[0] if messages else "",
        url=item.get("url", ""),
    )


def _quotas_of(resource: Json) -> tuple[Quota, ...]:
    """Return the quotas of a region or project; none if Google shows none."""
    return tuple(
        Quota(item["metric"], item["usage"], item["limit"]) for item in resource.get("quotas", ())
    )


def _short(name: str) -> str:
    """Return the last part of a full name: `T` of `//pubsub.googleapis.com/projects/P/topics/T`."""
    return name.rpartition("/")[2]
