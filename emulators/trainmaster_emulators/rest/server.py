"""The HTTP server of an emulator: routes, JSON bodies, errors in Google's format, failures on
request, and shutdown on a signal.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import TCPServer
from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from trainmaster_emulators.rest import HEALTH
from trainmaster_emulators.rest.api_errors import ApiError, Json, StatusError, failed, invalid
from trainmaster_emulators.rest.failing_calls import FAILING_CALLS, FailingCalls
from trainmaster_emulators.rest.quiet_http import QuietHandler

Answer = Json | str | Response
"""A body as an object or as JSON, or a whole response."""
Route = tuple[str, str, Callable[..., Answer]]
"""Method, path (werkzeug's rule), and the endpoint, which gets the request and the variables of the
path.

An endpoint raises ApiError.
"""

log = logging.getLogger(__name__)


class RestServer:
    """A WSGI application that answers with JSON, in the formats of Google's newer APIs."""

    def __init__(self, *routes: Route) -> None:
        self.failing_calls = FailingCalls()
        own: tuple[Route, ...] = (
            ("GET", HEALTH, lambda _: {}),
            ("GET", FAILING_CALLS, lambda _: self.failing_calls.show()),
            ("POST", FAILING_CALLS, lambda request: self.failing_calls.set(json_body(request))),
        )
        rules = [
            Rule(path, endpoint=endpoint, methods=[method])
            for method, path, endpoint in (*routes, *own)
        ]
        self._map = Map(rules)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return self.respond(Request(environ))(environ, start_response)

    def respond(self, request: Request) -> Response:
        """Return the response to a request: that of its endpoint, or an error in Google's
        format.
        """
        try:
            answer = self._requested_failure(request) or self.answer(request)
            return answer if isinstance(answer, Response) else _json_response(answer)
        except ApiError as error:
            return _json_response(error.body(), error.code)
        except HTTPException as error:
            status = error.code or 500
            return _json_response(self.failure(request, status).body(), status)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _json_response(self.failure(request, 500).body(), status=500)

    def _requested_failure(self, request: Request) -> Response | None:
        """Return the error with which this call is to fail; None: it is not to fail."""
        status = self.failing_calls.take(request.method, request.path)
        if status is None:
            return None
        return _json_response(self.requested_failure(status).body(), status)

    def answer(self, request: Request) -> Answer:
        """Call the endpoint. Raises ApiError, and HTTPException for a request without a route."""
        endpoint, variables = self._map.bind_to_environ(request.environ).match()
        answer: Answer = endpoint(request, **variables)
        return answer

    def requested_failure(self, status: int) -> ApiError:
        """Return the error of a call that was to fail with this HTTP status."""
        return failed(status)

    def failure(self, request: Request, status: int) -> ApiError:
        """Return the error of a call that this emulator does not implement (status below 500) or
        cannot answer.
        """
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return StatusError("INTERNAL", "Internal error encountered.")
        call = f"{request.method} {request.path}"
        return StatusError("NOT_FOUND", f"This emulator does not implement {call}.")


def json_body(
    request: Request, bytes_max: int | None = None, error: Callable[[str], ApiError] = invalid
) -> Json:
    """Return the request's object; an empty body is an empty object.

    Raises ApiError, which `error` makes of a text.
    """
    data = request.get_data()
    if bytes_max is not None and len(data) > bytes_max:
        raise error(f"Request payload size exceeds the limit: {bytes_max} bytes.")
    try:
        body = json.loads(data or b"{}", parse_constant=_reject_constant)
    except ValueError as problem:
        raise error(f"Invalid JSON payload received: {problem}.") from None
    if not isinstance(body, dict):
        raise error("Invalid JSON payload received: it must be an object.")
    return body


def _reject_constant(word: str) -> None:
    """Reject NaN and Infinity, which Python's parser accepts and Google's does not."""
    raise ValueError(f"{word} is not JSON")


def _json_response(body: Json | str, status: int = 200) -> Response:
    """Return a response with this object, or with a text that is JSON already."""
    text = body if isinstance(body, str) else json.dumps(body)
    return Response(text + "\n", status, content_type="application/json; charset=UTF-8")


class WsgiHandler(QuietHandler, WSGIRequestHandler):
    """Handles the requests of one connection."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def listen(host: str, port: int, application: Callable[..., Iterable[bytes]]) -> BaseWSGIServer:
    """Return a server with a thread per connection: a call that waits for an operation blocks for
    up to 2 minutes.
    """
    return make_server(host, port, application, threaded=True, request_handler=WsgiHandler)


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


@contextmanager
def serving(
    host: str, port: int, application: Callable[..., Iterable[bytes]]
) -> Iterator[threading.Event]:
    """Serve within the context. Yields an event that SIGTERM and SIGINT set."""
    stopped = stop_event()
    with in_background(listen(host, port, application)):
        yield stopped


@contextmanager
def in_background(server: TCPServer) -> Iterator[None]:
    """Run a server on another thread within the context."""
    thread = threading.Thread(target=server.serve_forever, args=(None,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which does not poll
        server.shutdown()
        thread.join()
        server.server_close()
