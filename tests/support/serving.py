"""Run an HTTP server of the standard library or of werkzeug on a thread, for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from threading import Thread

SHUTDOWN_POLL_S = 0.01
"""How often the server checks for a shutdown. The default of 0.5 s would add that time to the end of every test."""


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Serve during the block. The value is the address, `http://127.0.0.1:PORT`."""
    thread = Thread(target=server.serve_forever, args=(SHUTDOWN_POLL_S,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
