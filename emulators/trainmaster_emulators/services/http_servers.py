"""What the HTTP servers in front of emulators share."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from trainmaster_emulators.browser_guard import JSON_TYPE, GuardedHandler
from trainmaster_emulators.process.processes import LOOPBACK


class QuietServer(ThreadingHTTPServer):
    """Runs one daemon thread per client connection."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect during a request, as killed VMs do; log any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class JsonHandler(GuardedHandler):
    """Answers with JSON. Logs nothing: lines would contain tokens, and disturb the user's terminal."""

    protocol_version = "HTTP/1.1"

    def send_json(self, status: int, body: object, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", JSON_TYPE)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def key_server(keys: Callable[[], object], port: int = 0) -> ThreadingHTTPServer:
    """Return a server on loopback that publishes the keys of an issuer, as Google does. The caller runs it."""

    class Keys(JsonHandler):
        def do_GET(self) -> None:
            self.send_json(200, keys(), {"Cache-Control": "public, max-age=3600"})

    return ThreadingHTTPServer((LOOPBACK, port), Keys)


def serve_accounts(pairs: Sequence[str], server_of: Callable[[str, int], QuietServer]) -> None:
    """Serve each account on its port, until the process is ended. `pairs`: `ACCOUNT=PORT`."""
    threads = []
    for pair in pairs:
        account, _, port = pair.partition("=")
        server = server_of(account, int(port))
        threads.append(threading.Thread(target=server.serve_forever, name=account))
        threads[-1].start()
    for thread in threads:
        thread.join()


def json_object(body: bytes) -> dict[str, Any]:
    """Return the object in a request's body; empty if there is none."""
    try:
        parsed = json.loads(body or b"{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
