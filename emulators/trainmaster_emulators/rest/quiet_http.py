"""Servers of the standard library, as emulators use them: refuse web pages, log no access, answer
in one packet.
"""

import sys
from http.server import ThreadingHTTPServer

from trainmaster_emulators.browser_guard import GuardedHandler


class QuietServer(ThreadingHTTPServer):
    """Runs one daemon thread per client connection."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect during a request, as killed VMs do; log any
        other error.
        """
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class QuietHandler(GuardedHandler):
    """Sends each response in one piece, because Nagle's algorithm would delay it by 40 ms."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: clients poll, and the lines would contain tokens, and hide all others."""
