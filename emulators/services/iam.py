"""What the API asks Google about its callers: may the bearer of this token do that in the project, may it run machines
as that service account, what is the project's number, and who is it?

    local-stack    may do everything (what the local stack's own clients send)
    local-viewer   may look
    local-nobody   is somebody, and may nothing; its scopes tell no e-mail
    anything else  is no token: 401, as Google answers an expired one

Run as `python -m emulators.services.iam --port PORT --project P`. It keeps nothing.
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
NOBODY: Final = "local-nobody"
PROJECT_NUMBER: Final = "123456789012"
EMAILS: Final = {OWNER: "owner@example.com", VIEWER: "viewer@example.com"}

_LOOKS: Final = (".get", ".list")
_MAY: Final[dict[str, Callable[[str], bool]]] = {
    OWNER: lambda _: True,
    VIEWER: lambda permission: permission.endswith(_LOOKS),
    NOBODY: lambda _: False,
}


def answer(project: str, path: str, authorization: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """Status and body, as Cloud Resource Manager and IAM v1 answer. Nothing granted is an empty object."""
    if not re.fullmatch(rf"/v1/projects/({re.escape(project)}|-/serviceAccounts/[^/:]+):testIamPermissions", path):
        return _refusal(403, "PERMISSION_DENIED", "The caller does not have permission")
    may = _MAY.get(authorization.removeprefix("Bearer "))
    if may is None:
        return _refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
    try:
        asked = [str(permission) for permission in json.loads(body)["permissions"]]
    except (ValueError, KeyError, TypeError):
        return _refusal(400, "INVALID_ARGUMENT", "Request contains an invalid argument.")
    granted = [permission for permission in asked if may(permission)]
    return 200, {"permissions": granted} if granted else {}


def looked_up(project: str, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
    """As Cloud Resource Manager answers `projects.get`, and OpenID Connect its UserInfo."""
    token = authorization.removeprefix("Bearer ")
    if token not in _MAY:
        return _refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
    if path == "/v1/userinfo":
        return 200, {"sub": token, **({"email": EMAILS[token], "email_verified": True} if token in EMAILS else {})}
    if path != f"/v1/projects/{project}" or not _MAY[token]("resourcemanager.projects.get"):
        return _refusal(403, "PERMISSION_DENIED", "The caller does not have permission")
    return 200, {"projectId": project, "projectNumber": PROJECT_NUMBER, "lifecycleState": "ACTIVE"}


def _refusal(code: int, status: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"error": {"code": code, "message": message, "status": status}}


def listen(port: int, project: str) -> ThreadingHTTPServer:
    """A server that is not yet serving."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._send(*answer(project, self.path, self.headers.get("Authorization", ""), body))

        def do_GET(self) -> None:
            self._send(*looked_up(project, self.path, self.headers.get("Authorization", "")))

        def _send(self, status: int, said: dict[str, Any]) -> None:
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Silent: a question a minute and client, and each could only show tokens."""

    server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    server.daemon_threads = True
    return server


def main(argv: list[str] | None = None) -> int:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m emulators.services.iam")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--project", required=True)
    options = parser.parse_args(argv)
    listen(options.port, options.project).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
