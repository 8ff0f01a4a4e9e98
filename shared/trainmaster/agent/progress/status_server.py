"""Kubeflow Trainer's status protocol on loopback: Hugging Face's Trainer and Kubeflow's SDK report
to it unasked.

    POST KUBEFLOW_TRAINER_SERVER_URL   Authorization: Bearer TOKEN, at most 64 KiB
    {"trainerStatus": {
        "progressPercentage": 41,
        "metrics": [{"name": "current_step", "value": "123"}, …]}}   → 200

One connection is served at a time, so that a program cannot use up the agent's memory or threads.
Source: KEP-2779 and pkg/statusserver of kubeflow/trainer.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from trainmaster.agent.model.reading import Reading, finite

BODY_BYTES_MAX = 1 << 16
METRICS_READ_MAX = 256  # Source: the SDK's own limit
SILENT_S = 5.0  # after which a connection is closed
URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
TOKEN_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_NAME = "token"  # noqa: S105 - the name of a file


class StatusServer:
    """Receives the reports of this VM's programs. Start `run` in a thread of its own."""

    def __init__(self, folder: Path, take: Callable[[Reading], None]) -> None:
        """`take` receives each report, on the thread that runs `run`.

        `folder` gets the file with the token, which programs of any user may read. Raises OSError
        if no port or no folder is available.
        """
        self.folder = folder
        self._token = secrets.token_urlsafe(24)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOKEN_NAME).write_text(self._token, encoding="ascii")
        (folder / TOKEN_NAME).chmod(0o644)
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = SILENT_S

            def do_POST(self) -> None:
                self.send_response(server.answer(self.headers, self.rfile.read, take))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Keep requests out of the log."""

        self._http = _QuietServer(("127.0.0.1", 0), Handler)
        self.run = self._http.serve_forever

    def variables(self, folder: str) -> dict[str, str]:
        """Return the variables of a program that finds the server's folder at this path."""
        return {
            URL_VARIABLE: f"http://127.0.0.1:{self._http.server_address[1]}/progress",
            TOKEN_VARIABLE: f"{folder}/{TOKEN_NAME}",
        }

    def answer(
        self, headers: Message, read: Callable[[int], bytes], take: Callable[[Reading], None]
    ) -> HTTPStatus:
        """Handle one report, and return the status of the response."""
        given = (headers.get("Authorization") or "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return HTTPStatus.UNAUTHORIZED
        length = headers.get("Content-Length") or ""
        is_short = length.isdecimal() and len(length) <= len(str(BODY_BYTES_MAX))
        if not is_short or int(length) > BODY_BYTES_MAX:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        try:
            take(parse_status(json.loads(read(int(length)))))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return HTTPStatus.BAD_REQUEST
        return HTTPStatus.OK


class _QuietServer(TCPServer):
    def handle_error(self, *_: Any) -> None:
        """Ignore connections that end early: the program has lost its own report."""


def parse_status(body: Any) -> Reading:
    """Return the reading of a report.

    Raises KeyError, TypeError or AttributeError if it has another form.
    """
    status = body["trainerStatus"]
    reported = (status.get("metrics") or ())[:METRICS_READ_MAX]
    metrics = {str(metric["name"]): metric["value"] for metric in reported}
    step = metrics.pop("current_step", None)
    steps = metrics.pop("total_steps", None)
    percent = finite(status.get("progressPercentage"))
    share = None if percent is None else percent / 100
    return Reading.of_steps(step, steps, metrics.items(), share)
