"""A server in place of Google's APIs for which there is no emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.support.serving import serving

QUOTA_DENIED: Final = (
    403,
    {
        "error": {
            "code": 403,
            "message": "Caller does not have required permission to use project my-project.",
            "status": "PERMISSION_DENIED",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "USER_PROJECT_DENIED",
                    "domain": "googleapis.com",
                }
            ],
        }
    },
)


@dataclass
class FakeGoogle:
    """An HTTP server with fixed responses."""

    responses: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Status and body by the end of the path. Any other path gets 404."""
    at: datetime | None = None
    """The server's clock; None is the real time."""
    tokens: set[str] = field(default_factory=set)
    """Authorization headers of all requests."""
    quotas: dict[str, str | None] = field(default_factory=dict)
    """Path of a request → the project in its header X-Goog-User-Project; None: it has none."""
    refuses_quota_project: bool = False
    """Whether the caller may not use the quota of any project."""

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve during the block; yield the address."""
        with serving(ThreadingHTTPServer(("127.0.0.1", 0), self._handler())) as endpoint:
            yield endpoint

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        google = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                google.tokens.add(self.headers.get("Authorization", ""))
                path = self.path.partition("?")[0]
                quota_project = self.headers.get("X-Goog-User-Project")
                google.quotas[path] = google.quotas.get(path) or quota_project
                missing = 404, {"error": {"message": "not found"}}
                matches = (
                    response for end, response in google.responses.items() if path.endswith(end)
                )
                status, body = next(matches, missing)
                if google.refuses_quota_project and quota_project:
                    status, body = QUOTA_DENIED
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            do_POST = do_GET

            def date_time_string(self, timestamp: float | None = None) -> str:
                return format_datetime(google.at or datetime.now(UTC), usegmt=True)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler
