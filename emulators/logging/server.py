"""HTTP: the two calls, page tokens, and errors as Google writes them.

POST /v2/entries:write        with `partialSuccess` what is good of a write is kept; without, all or nothing
POST /v2/entries:list         pages in the order of (timestamp, insertId)
GET  /emulator/v1/health      200 when serving
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wrappers import Request, Response

from emulators.compute.server import QuietHandler
from emulators.logging.api_errors import ApiError, Json, invalid
from emulators.logging.entries import Entries, Position, rows
from emulators.logging.query_filter import parse

REQUEST_BYTES_MAX: Final = 10_000_000  # Source: Cloud Logging's quotas page
PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 1000  # Source: ListLogEntriesRequest.page_size
ORDERS: Final = {"": False, "timestamp asc": False, "timestamp desc": True}

log = logging.getLogger(__name__)


class LoggingServer:
    """The WSGI application. `refused_types` are resource types whose entries the project may not write itself."""

    def __init__(
        self, entries: Entries, refused_types: frozenset[str] = frozenset(), clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._entries = entries
        self._refused = refused_types
        self._clock_ns = clock_ns

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        return self._dispatch(request)(environ, start_response)

    def _dispatch(self, request: Request) -> Response:
        try:
            return _answer(self._route(request))
        except ApiError as error:
            return _answer(error.body(), error.code)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _answer(ApiError(500, "INTERNAL", "Internal error encountered.").body(), 500)

    def _route(self, request: Request) -> Json:
        match request.method, request.path:
            case "GET", "/emulator/v1/health":
                return {}
            case "POST", "/v2/entries:write":
                return self._write(_body(request))
            case "POST", "/v2/entries:list":
                return self._list(_body(request))
        raise ApiError(404, "NOT_FOUND", f"This emulator has no {request.method} {request.path}.")

    def _write(self, request: Json) -> Json:
        good, wrong = rows(request, self._clock_ns(), self._refused)
        if wrong and not request.get("partialSuccess"):
            raise next(iter(wrong.values()))
        if not request.get("dryRun"):
            self._entries.add(good)
        if wrong:
            raise _partial(wrong)
        return {}

    def _list(self, request: Json) -> Json:
        projects = request.get("resourceNames", [])
        if not projects or not all(isinstance(name, str) and name.startswith("projects/") for name in projects):
            raise invalid("This emulator needs resource_names, each of the form projects/PROJECT.")
        order = request.get("orderBy", "")
        if order not in ORDERS:
            raise invalid(f"Unknown order {order!r}: it is 'timestamp asc' or 'timestamp desc'.")
        size = request.get("pageSize") or PAGE_DEFAULT
        if not isinstance(size, int) or size < 0:
            raise invalid("page_size must be a positive number.")
        condition = parse(request.get("filter", ""))
        question = hashlib.sha256(json.dumps([projects, request.get("filter", ""), order]).encode()).hexdigest()[:16]
        after = _read_token(request["pageToken"], question) if request.get("pageToken") else None
        found, more = self._entries.page(projects, condition, after, min(size, PAGE_MAX), descending=ORDERS[order])
        answer: Json = {"entries": found} if found else {}
        return {**answer, "nextPageToken": _token(more, question)} if more else answer


def _partial(wrong: dict[int, ApiError]) -> ApiError:
    """Source: WriteLogEntriesPartialErrors in the API's discovery document."""
    first = next(iter(wrong.values()))
    errors = {str(position): {"code": 3, "message": error.message} for position, error in wrong.items()}
    kind = "type.googleapis.com/google.logging.v2.WriteLogEntriesPartialErrors"
    return invalid(first.message, {"@type": kind, "logEntryErrors": errors})


def _token(place: Position, question: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([question, *place]).encode()).decode()


def _read_token(token: str, question: str) -> Position:
    try:
        asked, timestamp, insert_id, log_name = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError):
        raise invalid("page_token is not one of this list's.") from None
    if asked != question:
        raise invalid("page_token belongs to another filter or order.")
    return timestamp, insert_id, log_name


def _body(request: Request) -> Json:
    data = request.get_data()
    if len(data) > REQUEST_BYTES_MAX:
        raise invalid(f"Request payload size exceeds the limit: {REQUEST_BYTES_MAX} bytes.")
    try:
        body = json.loads(data or b"{}", parse_constant=_no_number)
    except ValueError as error:
        raise invalid(f"Invalid JSON payload received: {error}.") from None
    if not isinstance(body, dict):
        raise invalid("Invalid JSON payload received: it is no object.")
    return body


def _no_number(word: str) -> None:
    """Python reads NaN; Google does not."""
    raise ValueError(f"{word} is no JSON")


def _answer(body: Json, status: int = 200) -> Response:
    return Response(json.dumps(body) + "\n", status, content_type="application/json; charset=UTF-8")


def listen(host: str, port: int, server: LoggingServer) -> BaseWSGIServer:
    return make_server(host, port, server, threaded=True, request_handler=QuietHandler)
