"""Permissions and e-mail address of an API caller, as Google reports them for the caller's own
token.

`projects.testIamPermissions` of Cloud Resource Manager needs no permission, works for people and
service accounts, and counts roles however they were granted. Trainmaster itself needs no role for
any of it, and the token goes to Google only, in a header.

Google checks for a service account's call whether the API is enabled in the account's own project.
If it is not, the call is repeated on behalf of the installation's project. The caller needs
`serviceusage.services.use` there.

google-cloud-resource-manager is not used: its clients are built for one caller each and take longer
to build than to call, and neither UserInfo nor a service account's `testIamPermissions` with a
foreign token has a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final
from urllib.parse import quote

from google.api_core import exceptions
from google.auth import jwt
from google.auth.exceptions import GoogleAuthError

from trainmaster.core.intake.callers import callers_account, permissions_on_account
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.errors import google_errors
from trainmaster.gcp.public_keys import INVALID
from trainmaster.gcp.rest_api import Json, RestApi
from trainmaster.ports import CallersProjectError, UnknownTokenError

FULL_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
"""The only scope with which Google's APIs create and change jobs.

Source: the discovery documents of both services.
"""
ACT_AS: Final = "iam.serviceAccounts.actAs"
TIMEOUT_S: Final = 10.0
EMAIL_TIMEOUT_S: Final = 2.0
"""The answer is only recorded, so it is not worth a longer wait."""
_DISABLED: Final = "SERVICE_DISABLED"
"""Source: reason in Google's ErrorInfo if the API is not enabled in the project."""
_PROJECT_DENIED: Final = "USER_PROJECT_DENIED"
"""Source: reason in Google's ErrorInfo if the caller may not use the project that
X-Goog-User-Project names.
"""


class _InvalidError(TemporaryError):
    """Google answered 400."""


class _ForbiddenError(TemporaryError):
    """Google answered 403."""


class _MissingError(TemporaryError):
    """Google answered 404."""


class ProjectAccess:
    """Google's IAM, queried with the caller's own access token. Thread-safe: every call has a
    session of its own.

    Adapter of `trainmaster.ports.Access`. All methods but `email` raise UnknownTokenError for a
    token that Google does not accept, and CallersProjectError if the API is not enabled in the
    caller's project. Every other failure raises TemporaryError.
    """

    def __init__(
        self,
        project: str,
        endpoint: str,
        accounts_endpoint: str,
        people_endpoint: str = "",
        tokens_endpoint: str = "https://oauth2.googleapis.com",
    ) -> None:
        """`endpoint`: Cloud Resource Manager's. `accounts_endpoint`: IAM's. `people_endpoint`: that
        of OpenID Connect's UserInfo; empty: `email` always returns None.
        """
        self._project_id = project
        self._project = f"/v1/projects/{project}"
        self._tokens_endpoint = tokens_endpoint
        self._endpoint = endpoint
        self._accounts_endpoint = accounts_endpoint
        self._people_endpoint = people_endpoint

    def granted_permissions(
        self, token: str, permissions: Sequence[str], project: str = ""
    ) -> frozenset[str]:
        """Return those of `permissions` that the caller has on a project, given by id or number."""
        path = f"/v1/projects/{quote(project)}" if project else self._project
        return self._test_permissions(
            self._endpoint, path, token, permissions, missing_is_denied=bool(project)
        )

    def api_permissions(self, token: str, permissions: Sequence[str]) -> frozenset[str]:
        """Return those of the API's permissions that the caller has in this installation. Each of
        them is granted by a permission on the service account for callers, which Google knows.
        """
        granted_by = permissions_on_account(permissions)
        account = quote(callers_account(self._project_id))
        granted = self._test_permissions(
            self._accounts_endpoint,
            f"/v1/projects/-/serviceAccounts/{account}",
            token,
            sorted(set(granted_by.values())),
            missing_is_denied=True,
        )
        return frozenset(name for name, permission in granted_by.items() if permission in granted)

    def has_full_scope(self, token: str) -> bool:
        """Return whether the token has the scope `cloud-platform`, so that it may change things.

        Source: google-auth-library-nodejs, getTokenInfo, which sends the token in the header of a
        POST. Google answers 400 for a token that this endpoint does not know, such as one of a
        federated identity. The endpoint does not know tokens that a service account signed by
        itself either, but these carry their scopes.
        """
        signed_scopes = _signed_scopes(token)
        if signed_scopes is not None:
            return FULL_SCOPE in signed_scopes
        try:
            answer = _call(self._tokens_endpoint, "POST", "/tokeninfo", token)
        except _InvalidError:
            return False
        return FULL_SCOPE in str(answer.get("scope", "")).split()

    def may_act_as(self, token: str, account: str) -> bool:
        """Return whether the caller may run VMs as this service account.

        Source: AI Platform Training required this permission of a caller who named
        a service account for a job.
        """
        path = f"/v1/projects/-/serviceAccounts/{quote(account)}"
        granted = self._test_permissions(
            self._accounts_endpoint, path, token, [ACT_AS], missing_is_denied=True
        )
        return ACT_AS in granted

    def project_number(self, token: str) -> str:
        """Return Google's number of the project; empty if the caller may not see the project.

        Source: `projects.get` of Cloud Resource Manager v1, which requires
        resourcemanager.projects.get.
        """
        try:
            answer = self._call_for_either_project(self._endpoint, "GET", self._project, token)
        except _ForbiddenError:
            return ""
        number = answer.get("projectNumber")
        if not number:
            raise TemporaryError(
                f"Cloud Resource Manager returned a project without a number: 200 {answer}"
            )
        return str(number)

    def email(self, token: str) -> str | None:
        """Return the caller's e-mail address, or None if the token's scopes do not include it.

        Source: OpenID Connect's UserInfo, which answers 401 or 403, or without an
        address, if the token lacks the scope `email`, as those of service accounts do.
        """
        if not self._people_endpoint:
            return None
        try:
            person = _call(
                self._people_endpoint, "GET", "/v1/userinfo", token, timeout_s=EMAIL_TIMEOUT_S
            )
        except (UnknownTokenError, _ForbiddenError):
            return None
        email = person.get("email")
        return str(email) if email and person.get("email_verified") else None

    def _test_permissions(
        self,
        endpoint: str,
        path: str,
        token: str,
        permissions: Sequence[str],
        *,
        missing_is_denied: bool = False,
    ) -> frozenset[str]:
        """Return those of `permissions` that the caller has on the resource.

        With `missing_is_denied`, a caller has none if Google answers that the resource does not
        exist.
        """
        body = {"permissions": list(permissions)}
        try:
            answer = self._call_for_either_project(
                endpoint, "POST", f"{path}:testIamPermissions", token, body
            )
        except _ForbiddenError:
            return frozenset()
        except _MissingError:
            if not missing_is_denied:
                raise
            return frozenset()
        return frozenset(answer.get("permissions", ())) & frozenset(permissions)

    def _call_for_either_project(
        self, endpoint: str, method: str, path: str, token: str, body: Json | None = None
    ) -> Json:
        """Call on behalf of the caller's own project, and if the API is disabled there, on behalf
        of the installation's project.
        """
        try:
            return _call(endpoint, method, path, token, body)
        except _ForbiddenError as error:
            if _DISABLED not in str(error):
                raise
        try:
            return _call(endpoint, method, path, token, body, quota_project=self._project_id)
        except _ForbiddenError as error:
            if _DISABLED not in str(error) and _PROJECT_DENIED not in str(error):
                raise
            raise CallersProjectError(_remedy(endpoint, self._project_id)) from None


def _signed_scopes(token: str) -> list[str] | None:
    """Return the scopes of a token that a service account signed by itself; None for any other
    token.

    A signed token without scopes is for one API, and is not limited there. Its signature is not
    checked here: Cloud Resource Manager accepted the token before.
    """
    try:
        claims = jwt.decode(token, verify=False)
    except (GoogleAuthError, *INVALID):
        return None
    scopes = claims.get("scope")
    return str(scopes).split() if scopes is not None else [FULL_SCOPE]


def _remedy(endpoint: str, project: str) -> str:
    api = endpoint.removeprefix("https://")
    return (
        f"Your permissions cannot be checked: {api} is not enabled in the project that your"
        f" credentials belong to. Enable it there (gcloud services enable {api} --project"
        f" YOUR_PROJECT), or get roles/serviceusage.serviceUsageConsumer on the project {project}."
    )


def _call(
    endpoint: str,
    method: str,
    path: str,
    token: str,
    body: Json | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    quota_project: str = "",
) -> Json:
    """Return the response.

    Raises UnknownTokenError, and TemporaryError for every other failure: none grants or denies.
    """
    try:
        with (
            google_errors(endpoint),
            closing(
                RestApi(
                    endpoint,
                    endpoint="",
                    timeout_s=timeout_s,
                    token=token,
                    quota_project=quota_project,
                )
            ) as api,
        ):
            return api.call(method, path, body)
    except exceptions.Unauthorized:
        raise UnknownTokenError from None
    except exceptions.Forbidden as error:
        raise _ForbiddenError(f"{error} {error.details}") from None
    except PermanentError as error:
        raise _error_type(error.__cause__)(str(error)) from None
    except GoogleAuthError as error:
        raise TemporaryError(str(error)) from None


def _error_type(cause: BaseException | None) -> type[TemporaryError]:
    """Return the type of error for Google's answer, the cause of a PermanentError."""
    if isinstance(cause, exceptions.NotFound):
        return _MissingError
    if isinstance(cause, exceptions.BadRequest):
        return _InvalidError
    return TemporaryError
