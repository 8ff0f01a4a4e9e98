"""Permissions of an API caller in the project, and the caller's name: Google's own answers to the caller's own token.

`projects.testIamPermissions` of Cloud Resource Manager needs no permission, works for people and service accounts, and
counts roles however they were granted. Trainmaster itself needs no role for any of it, and the token goes to Google
only, in a header.

Not by google-cloud-resource-manager: its clients are built for one caller each and take longer to build than to call,
and neither UserInfo nor a service account's `testIamPermissions` with a foreign token has a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError

from shared.errors import PermanentError, TemporaryError
from shared.gcp.errors import google_errors
from shared.gcp.rest_api import Json, RestApi
from shared.ports import UnknownTokenError

ACT_AS: Final = "iam.serviceAccounts.actAs"
TIMEOUT_S: Final = 10.0
EMAIL_TIMEOUT_S: Final = 2.0
"""The answer is only recorded, so it is not worth a longer wait."""
_DISABLED: Final = "SERVICE_DISABLED"
"""Source: reason in Google's ErrorInfo if the API is not enabled in the project."""


class ProjectAccess:
    """See `shared.ports.Access`. Thread-safe: every call has a session of its own, with the caller's token."""

    def __init__(self, project: str, endpoint: str, accounts_endpoint: str, people_endpoint: str = "") -> None:
        """Without a `people_endpoint`, `email` always returns None."""
        self._project = f"/v1/projects/{project}"
        self._endpoint = endpoint
        self._accounts_endpoint = accounts_endpoint
        self._people_endpoint = people_endpoint

    def granted_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        return _test_permissions(self._endpoint, self._project, token, permissions)

    def may_act_as(self, token: str, account: str) -> bool:
        """Source: AI Platform Training required this permission of a caller who named a service account for a job."""
        path = f"/v1/projects/-/serviceAccounts/{quote(account)}"
        return bool(_test_permissions(self._accounts_endpoint, path, token, [ACT_AS], missing_is_denied=True))

    def project_number(self, token: str) -> str:
        """Source: `projects.get` of Cloud Resource Manager v1, which requires resourcemanager.projects.get."""
        answer = _call(self._endpoint, "GET", self._project, token)
        number = answer.get("projectNumber")
        if not number:
            raise TemporaryError(f"Cloud Resource Manager returned a project without a number: 200 {answer}")
        return str(number)

    def email(self, token: str) -> str | None:
        """Source: OpenID Connect's UserInfo, which answers 401 or 403, or without an address, if the token lacks the
        scope `email`. Tokens of service accounts do."""
        if not self._people_endpoint:
            return None
        try:
            person = _call(self._people_endpoint, "GET", "/v1/userinfo", token, timeout_s=EMAIL_TIMEOUT_S)
        except (UnknownTokenError, _ForbiddenError):
            return None
        return str(person["email"]) if person.get("email") and person.get("email_verified") else None


class _ForbiddenError(TemporaryError):
    """Google answered 403."""


class _MissingError(TemporaryError):
    """Google answered 404."""


def _test_permissions(
    endpoint: str, path: str, token: str, permissions: Sequence[str], *, missing_is_denied: bool = False
) -> frozenset[str]:
    """A caller who may not even see the resource has no permission on it. A disabled API is an error."""
    try:
        answer = _call(endpoint, "POST", f"{path}:testIamPermissions", token, {"permissions": list(permissions)})
    except _ForbiddenError as error:
        if _DISABLED in str(error):
            raise
        return frozenset()
    except _MissingError:
        if not missing_is_denied:
            raise
        return frozenset()
    return frozenset(answer.get("permissions", ())) & frozenset(permissions)


def _call(
    endpoint: str, method: str, path: str, token: str, body: Json | None = None, *, timeout_s: float = TIMEOUT_S
) -> Json:
    """Raises UnknownTokenError, and TemporaryError for every other failure: none of them is an answer."""
    api = RestApi(endpoint, "", timeout_s, token)
    try:
        with google_errors(endpoint):
            return api.call(method, path, body)
    except exceptions.Unauthorized:
        raise UnknownTokenError from None
    except exceptions.Forbidden as error:
        raise _ForbiddenError(f"{error} {error.details}") from None
    except PermanentError as error:
        family = _MissingError if isinstance(error.__cause__, exceptions.NotFound) else TemporaryError
        raise family(str(error)) from None
    except GoogleAuthError as error:
        raise TemporaryError(str(error)) from None
    finally:
        api.close()
