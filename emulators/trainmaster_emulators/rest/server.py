"""The HTTP server of an emulator: dispatch, JSON bodies, errors in Google's format, and shutdown on a signal."""

from __future__ import annotations

import json
import logging
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from trainmaster_emulators.rest.api_errors import ApiError, Json, invalid
from trainmaster_emulators.rest.quiet_http import QuietHandler

log = logging.getLogger(__name__)


class RestServer(ABC):
    """A WSGI application that answers with JSON."""

    @abstractmethod
    def answer(self, request: Request) -> Json | str:
        """Return the response's body, as an object or as JSON. Raises ApiError, or werkzeug's NotFound."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self._respond(Request(environ))(environ, start_response)

    def _respond(self, request: Request) -> Response:
        try:
            return _json_response(self.answer(request))
        except ApiError as error:
            return _json_response(error.body(), error.code)
        except HTTPException as error:
            return _json_response(missing_call(request).body(), error.code or 500)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _json_response(ApiError(500, "INTERNAL", "Internal error encountered.").body(), 500)


def missing_call(request: Request) -> ApiError:
    """Return the error for a call that this emulator does not implement."""
    return ApiError(404, "NOT_FOUND", f"This emulator does not implement {request.method} {request.path}.")


def json_body(request: Request, bytes_max: int | None = None) -> Json:
    """Return the request's object; an empty body is an empty object. Raises ApiError."""
    data = request.get_data()
    if bytes_max is not None and len(data) > bytes_max:
        raise invalid(f"Request payload size exceeds the limit: {bytes_max} bytes.")
    try:
        body = json.loads(data or b"{}", parse_constant=_reject_constant)
    except ValueError as error:
        raise invalid(f"Invalid JSON payload received: {error}.") from None
    if not isinstance(body, dict):
        raise invalid("Invalid JSON payload received: it must be an object.")
    return body


def _reject_constant(word: str) -> None:
    """Reject NaN and Infinity, which Python's parser accepts and Google's does not."""
    raise ValueError(f"{word} is not JSON")


def _json_response(body: Json | str, status: int = 200) -> Response:
    text = body if isinstance(body, str) else json.dumps(body)
    return Response(text + "\n", status, content_type="application/json; charset=UTF-8")


class WsgiHandler(QuietHandler, WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def listen(host: str, port: int, application: Callable[..., Iterable[bytes]]) -> BaseWSGIServer:
    """Return a server with a thread per connection: a call that waits for an operation blocks for up to 2 minutes."""
    return make_server(host, port, application, threaded=True, request_handler=WsgiHandler)


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


@contextmanager
def serving(host: str, port: int, application: Callable[..., Iterable[bytes]]) -> Iterator[threading.Event]:
    """Serve within the context. Yields an event that SIGTERM and SIGINT set."""
    stopped = stop_event()
    with in_background(listen(host, port, application)):
        yield stopped


@contextmanager
def in_background(server: BaseServer) -> Iterator[None]:
    """Run a server on another thread within the context."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
