"""What the HTTP servers in front of emulators share."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import ThreadingHTTPServer
from typing import Any


class QuietServer(ThreadingHTTPServer):
    """Runs one daemon thread per client connection."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect during a request, as killed VMs do; log any other error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


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
