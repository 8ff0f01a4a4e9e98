"""An emulator of the calls by which the `api` function authorises its callers.

The calls are testIamPermissions of a project and of a service account, projects.get, OpenID
Connect's UserInfo, and OAuth's tokeninfo. It also serves the resources that jobs name
(`named_resources`), without asking for a token. These accounts exist:

    local-stack          has all permissions; the local stack's own clients use it
    local-viewer         has read permissions
    local-unprivileged   has no permissions, and its token's scopes do not include the e-mail
                         address
    local-read-only      has all permissions, but its token has the scope for reading only
    NAME@PROJECT.iam.gserviceaccount.com
                         every service account of the project; has all permissions; scheduled jobs
                         call as one

The access token of an account is ya29.ACCOUNT.SECRET, with a secret that is random for each stack
and `_` for `@`. Any other token is invalid: 401, Google's response to an expired token.

Run as `python -m trainmaster_emulators.services.iam --port PORT --project P --token-file FILE`.
The file contains the token of `local-stack`. The emulator stores nothing.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.rest.command_line import EmulatorParser
from trainmaster_emulators.services.http_servers import JsonHandler, json_object
from trainmaster_emulators.services.named_resources import NamedResources, error_answer

NAME: Final = "iam"
OWNER: Final = "local-stack"
VIEWER: Final = "local-viewer"
UNPRIVILEGED: Final = "local-unprivileged"
READ_ONLY: Final = "local-read-only"
PROJECT_NUMBER: Final = "123456789012"
EMAILS: Final = {OWNER: "owner@example.com", VIEWER: "viewer@example.com"}

_READ_PERMISSIONS: Final = (".get", ".list")
_HAS_PERMISSION: Final[dict[str, Callable[[str], bool]]] = {
    OWNER: lambda _: True,
    VIEWER: lambda permission: permission.endswith(_READ_PERMISSIONS),
    UNPRIVILEGED: lambda _: False,
    READ_ONLY: lambda _: True,
}
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_SERVICE_ACCOUNT: Final = re.compile(r"[a-z][a-z0-9-]*@[a-z0-9-]+\.iam\.gserviceaccount\.com")


def _permission_test(account: str) -> Callable[[str], bool] | None:
    """Return a function that tests whether the account has a permission; None for an unknown
    account.
    """
    return (
        _HAS_PERMISSION[OWNER]
        if _SERVICE_ACCOUNT.fullmatch(account)
        else _HAS_PERMISSION.get(account)
    )


def _email(account: str) -> str | None:
    """Return the address that the account's token reveals; None if its scopes do not include it."""
    return account if _SERVICE_ACCOUNT.fullmatch(account) else EMAILS.get(account)


def check_permissions(
    project: str, path: str, authorization: str, body: bytes
) -> tuple[int, dict[str, Any]]:
    """Return status and body, as Cloud Resource Manager and IAM v1 do: an empty object if nothing
    is granted.
    """
    resource = rf"{re.escape(project)}|-/serviceAccounts/[^/:]+"
    if not re.fullmatch(rf"/v1/projects/({resource}):testIamPermissions", path):
        return error_answer("PERMISSION_DENIED", "The caller does not have permission")
    has_permission = _permission_test(authorization.removeprefix("Bearer "))
    if has_permission is None:
        return error_answer("UNAUTHENTICATED", "Request had invalid authentication credentials.")
    try:
        requested = [str(permission) for permission in json.loads(body)["permissions"]]
    except (ValueError, KeyError, TypeError):
        return error_answer("INVALID_ARGUMENT", "Request contains an invalid argument.")
    granted = [permission for permission in requested if has_permission(permission)]
    return 200, {"permissions": granted} if granted else {}


def token_info(authorization: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of OAuth's tokeninfo.

    Its errors have another format than those of the other calls.
    """
    token = authorization.removeprefix("Bearer ")
    if _permission_test(token) is None:
        return 400, {"error": "invalid_token", "error_description": "Invalid Value"}
    return 200, {
        "scope": f"openid {_SCOPE}.read-only" if token == READ_ONLY else f"openid {_SCOPE}",
        "expires_in": 3599,
    }


def get_project_or_user(project: str, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of Cloud Resource Manager's `projects.get` or of OpenID Connect's
    UserInfo.
    """
    token = authorization.removeprefix("Bearer ")
    has_permission = _permission_test(token)
    if has_permission is None:
        return error_answer("UNAUTHENTICATED", "Request had invalid authentication credentials.")
    if path == "/v1/userinfo":
        user: dict[str, Any] = {"sub": token}
        email = _email(token)
        if email:
            user |= {"email": email, "email_verified": True}
        return 200, user
    if path != f"/v1/projects/{project}" or not has_permission("resourcemanager.projects.get"):
        return error_answer("PERMISSION_DENIED", "The caller does not have permission")
    return 200, {"projectId": project, "projectNumber": PROJECT_NUMBER, "lifecycleState": "ACTIVE"}


def access_token(account: str, secret: str) -> str:
    """Return the access token of an account.

    Without a secret, as in tests, it is the account's name.

    Access tokens contain no `@`, and names of accounts no underscore.
    """
    return f"ya29.{account.replace('@', '_')}.{secret}" if secret else account


def secret_of(token_file: Path) -> str:
    """Return the secret part of the token in the file.

    The command line of a process is visible to all users of the machine, so the secret is read from
    a file.
    """
    return token_file.read_text(encoding="utf-8").strip().removeprefix(f"ya29.{OWNER}.")


def _account_of(authorization: str, project: str, secret: str) -> str:
    """Return the account of the header's token; empty for a token that this stack did not make."""
    account = authorization.removeprefix("Bearer ")
    if secret:
        account = account.removeprefix("ya29.").removesuffix(f".{secret}")
    account = account.replace("_", "@")
    is_own_service_account = _SERVICE_ACCOUNT.fullmatch(account) is not None and account.endswith(
        f"@{project}.iam.gserviceaccount.com"
    )
    is_known = account in _HAS_PERMISSION or is_own_service_account
    expected = f"Bearer {access_token(account, secret)}"
    is_genuine = secrets.compare_digest(authorization.encode(), expected.encode())
    return account if is_known and is_genuine else ""


def listen(port: int, project: str, secret: str = "") -> ThreadingHTTPServer:
    """Return a server that listens; the caller runs `serve_forever`."""

    resources = NamedResources(project)

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if self.path == "/tokeninfo":
                self.send_json(*token_info(self._authorization()))
                return
            answer = resources.answer("POST", self.path, json_object(body))
            if answer is None:
                answer = check_permissions(project, self.path, self._authorization(), body)
            self.send_json(*answer)

        def do_DELETE(self) -> None:
            answer = resources.answer("DELETE", self.path, {})
            if answer is None:
                answer = error_answer("NOT_FOUND", "Requested entity was not found.")
            self.send_json(*answer)

        def do_GET(self) -> None:
            answer = resources.answer("GET", self.path, {})
            if answer is None:
                answer = get_project_or_user(project, self.path, self._authorization())
            self.send_json(*answer)

        def _authorization(self) -> str:
            """Return the header with the account's name instead of its token; empty for an unknown
            token.
            """
            account = _account_of(self.headers.get("Authorization", ""), project, secret)
            return f"Bearer {account}" if account else ""

    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    server.daemon_threads = True
    return server


def main(argv: list[str] | None = None) -> int:
    """Serve until the process ends."""
    parser = EmulatorParser("services.iam")
    parser.add_port()
    parser.add_argument("--project", required=True)
    parser.add_token_file()
    options = parser.parse_args(argv)
    listen(options.port, options.project, secret_of(options.token_file)).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
