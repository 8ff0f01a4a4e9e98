"""An emulator of the calls by which the `api` function authorises its callers.

The calls are testIamPermissions of a project and of a service account, projects.get, and OpenID Connect's UserInfo.
These access tokens are known:

    local-stack          has all permissions; the local stack's own clients send it
    local-viewer         has read permissions
    local-unprivileged   is valid, has no permissions, and its scopes do not include the e-mail address
    anything else        is invalid: 401, Google's response to an expired token

Run as `python -m emulators.services.iam --port PORT --project P`. It stores nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from emulators.stack.processes import LOOPBACK

NAME: Final = "iam"
OWNER: Final = "local-stack"
VIEWER: Final = "local-viewer"
UNPRIVILEGED: Final = "local-unprivileged"
PROJECT_NUMBER: Final = "123456789012"
EMAILS: Final = {OWNER: "owner@example.com", VIEWER: "viewer@example.com"}

_READ_PERMISSIONS: Final = (".get", ".list")
_HAS_PERMISSION: Final[dict[str, Callable[[str], bool]]] = {
    OWNER: lambda _: True,
    VIEWER: lambda permission: permission.endswith(_READ_PERMISSIONS),
    UNPRIVILEGED: lambda _: False,
}


def check_permissions(project: str, path: str, authorization: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """Return status and body, as Cloud Resource Manager and IAM v1 do: an empty object if nothing is granted."""
    if not re.fullmatch(rf"/v1/projects/({re.escape(project)}|-/serviceAccounts/[^/:]+):testIamPermissions", path):
        return _error(403, "PERMISSION_DENIED", "The caller does not have permission")
    has_permission = _HAS_PERMISSION.get(authorization.removeprefix("Bearer "))
    if has_permission is None:
        return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
    try:
        requested = [str(permission) for permission in json.loads(body)["permissions"]]
    except (ValueError, KeyError, TypeError):
        return _error(400, "INVALID_ARGUMENT", "Request contains an invalid argument.")
    granted = [permission for permission in requested if has_permission(permission)]
    return 200, {"permissions": granted} if granted else {}


def get_project_or_user(project: str, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
    """Return status and body of Cloud Resource Manager's `projects.get` or of OpenID Connect's UserInfo."""
    token = authorization.removeprefix("Bearer ")
    if token not in _HAS_PERMISSION:
        return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
    if path == "/v1/userinfo":
        return 200, {"sub": token, **({"email": EMAILS[token], "email_verified": True} if token in EMAILS else {})}
    if path != f"/v1/projects/{project}" or not _HAS_PERMISSION[token]("resourcemanager.projects.get"):
        return _error(403, "PERMISSION_DENIED", "The caller does not have permission")
    return 200, {"projectId": project, "projectNumber": PROJECT_NUMBER, "lifecycleState": "ACTIVE"}


def _error(code: int, status: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"error": {"code": code, "message": message, "status": status}}


def listen(port: int, project: str) -> ThreadingHTTPServer:
    """Return a server that listens; the caller runs `serve_forever`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._send(*check_permissions(project, self.path, self.headers.get("Authorization", ""), body))

        def do_GET(self) -> None:
            self._send(*get_project_or_user(project, self.path, self.headers.get("Authorization", "")))

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the log could only show tokens."""

    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    server.daemon_threads = True
    return server


def main(argv: list[str] | None = None) -> int:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m emulators.services.iam")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--project", required=True)
    options = parser.parse_args(argv)
    listen(options.port, options.project).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
