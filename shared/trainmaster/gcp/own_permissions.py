"""Permissions of the process's own credentials, as Google reports them.

Client libraries are not used: the one for projects is not needed elsewhere, and for Pub/Sub a whole
client would have to be built for one call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError

from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.errors import NO_CONNECTION
from trainmaster.gcp.rest_api import RestApi

PROJECTS: Final = "https://cloudresourcemanager.googleapis.com"
PUBSUB: Final = "https://pubsub.googleapis.com"
TIMEOUT_S: Final = 10.0
STATE: Final = ("datastore.entities.create", "datastore.entities.update")
"""Permissions on the project that changing a job's state needs."""
PUBLISH: Final = "pubsub.topics.publish"

_NO_ANSWER: Final = (
    exceptions.GoogleAPICallError,
    GoogleAuthError,
    PermanentError,  # there are no credentials
    TemporaryError,
    *NO_CONNECTION,
)
_log = logging.getLogger(__name__)

TestPermissions = Callable[[str, str, tuple[str, ...]], frozenset[str] | None]
"""(API's address, resource's path, permissions) → those that are granted; None: unknown."""


def missing_state_permissions(project: str, test: TestPermissions | None = None) -> tuple[str, ...]:
    """Return the permissions that changing a job's state needs and the credentials lack."""
    return _missing(PROJECTS, f"/v1/projects/{project}", STATE, test or query_permissions)


def missing_publish_permission(
    project: str, topic: str, test: TestPermissions | None = None
) -> tuple[str, ...]:
    """Return `pubsub.topics.publish on TOPIC` if the credentials may not publish to the topic."""
    path = f"/v1/projects/{project}/topics/{topic}"
    missing = _missing(PUBSUB, path, (PUBLISH,), test or query_permissions)
    return tuple(f"{permission} on {topic}" for permission in missing)


def query_permissions(base: str, path: str, permissions: Iterable[str]) -> frozenset[str] | None:
    """Return which permissions the credentials have on the resource; None: there is no answer."""
    body = {"permissions": list(permissions)}
    try:
        with closing(RestApi(base, endpoint="", timeout_s=TIMEOUT_S)) as api:
            answer = api.call("POST", f"{path}:testIamPermissions", body)
    except _NO_ANSWER as error:
        _log.warning("%s%s does not answer which permissions are granted: %s", base, path, error)
        return None
    return frozenset(answer.get("permissions", ()))


def _missing(
    base: str, path: str, permissions: tuple[str, ...], test: TestPermissions
) -> tuple[str, ...]:
    """Return the missing permissions; none if Google does not answer.

    The action itself then fails with Google's error.
    """
    granted = test(base, path, permissions)
    if granted is None:
        return ()
    return tuple(name for name in permissions if name not in granted)
