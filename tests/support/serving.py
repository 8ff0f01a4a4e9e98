"""HTTP servers of tests: run one on a thread for the length of a block, and answer with JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from trainmaster_emulators.rest.server import in_background


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Run a server of the standard library or of werkzeug during the block.

    The value is the address, `http://127.0.0.1:PORT`.
    """
    with in_background(server):
        yield f"http://127.0.0.1:{server.server_port}"


class JsonHandler(BaseHTTPRequestHandler):
    """Answers with JSON, and logs nothing. A subclass has the methods `do_GET` and so on."""

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
