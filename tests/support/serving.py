"""Run an HTTP server of the standard library or of werkzeug on a thread, for the length
of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

from trainmaster_emulators.rest.server import in_background


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Serve during the block. The value is the address, `http://127.0.0.1:PORT`."""
    with in_background(server):
        yield f"http://127.0.0.1:{server.server_port}"
