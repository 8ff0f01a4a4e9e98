"""A server of the standard library (or werkzeug's) on a thread of its own, for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from threading import Thread

LOOKS_EVERY_S = 0.01
"""Whether it is to end; the library's own half second would be waited for at the end of every test."""


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Where it is: `http://127.0.0.1:PORT`."""
    thread = Thread(target=server.serve_forever, args=(LOOKS_EVERY_S,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
