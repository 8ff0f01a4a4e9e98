"""Parts that the HTTP servers in front of emulators share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from trainmaster_emulators.browser_guard import JSON_HEADERS
from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.rest.quiet_http import QuietHandler


class JsonHandler(QuietHandler):
    """Answers with JSON."""

    def send_json(
        self, status: int, body: object, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.send_body(status, json.dumps(body).encode(), {**JSON_HEADERS, **headers})


def key_server(keys: Callable[[], object], port: int = 0) -> ThreadingHTTPServer:
    """Return a server on loopback that publishes the keys of an issuer, as Google does.

    The caller runs it.
    """

    class Keys(JsonHandler):
        def do_GET(self) -> None:
            self.send_json(200, keys(), {"Cache-Control": "public, max-age=3600"})

    return ThreadingHTTPServer((LOOPBACK, port), Keys)


def json_object(body: bytes) -> dict[str, Any]:
    """Return the object in a request's body; empty if there is none."""
    try:
        parsed = json.loads(body or b"{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
