"""HTTP: the two calls, page tokens, and errors in Google's format.

POST /v2/entries:write        with `partialSuccess` the valid entries are stored; without it, all
                              or none
POST /v2/entries:list         pages sorted by (timestamp, insertId)
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Final

from werkzeug.wrappers import Request

from trainmaster_emulators.logging.entries import Entries, Position, parse_entries
from trainmaster_emulators.logging.log_filter import parse
from trainmaster_emulators.rest import pages
from trainmaster_emulators.rest.api_errors import Json, StatusError, invalid
from trainmaster_emulators.rest.server import RestServer, json_body

REQUEST_BYTES_MAX: Final = 10_000_000  # Source: Cloud Logging's quotas page
PAGE_DEFAULT: Final = 50
"""Entries of a page if the request has no `pageSize`."""
PAGE_MAX: Final = 1000  # Source: ListLogEntriesRequest.page_size
ORDERS: Final = {"": False, "timestamp asc": False, "timestamp desc": True}
"""Value of `orderBy` → whether the latest entry comes first."""


class LoggingServer(RestServer):
    """The WSGI application.

    `refused_types`: resource types that the project itself may not write.
    """

    def __init__(
        self,
        entries: Entries,
        refused_types: frozenset[str] = frozenset(),
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._entries = entries
        self._refused = refused_types
        self._clock_ns = clock_ns
        super().__init__(
            ("POST", "/v2/entries:write", self._write),
            ("POST", "/v2/entries:list", self._list),
        )

    def _write(self, http_request: Request) -> Json:
        """Answer `entries:write`."""
        request = json_body(http_request, REQUEST_BYTES_MAX)
        rows, errors = parse_entries(request, self._clock_ns(), self._refused)
        if errors and not request.get("partialSuccess"):
            raise next(iter(errors.values()))
        if not request.get("dryRun"):
            self._entries.add(rows)
        if errors:
            raise _partial_error(errors)
        return {}

    def _list(self, http_request: Request) -> str:
        """Answer `entries:list`. Return the response as JSON."""
        request = json_body(http_request, REQUEST_BYTES_MAX)
        projects = request.get("resourceNames", [])
        if not projects or not all(
            isinstance(name, str) and name.startswith("projects/") for name in projects
        ):
            raise invalid("This emulator requires resource_names of the form projects/PROJECT.")
        order = request.get("orderBy", "")
        if order not in ORDERS:
            raise invalid(f"Unknown order {order!r}: must be 'timestamp asc' or 'timestamp desc'.")
        size = request.get("pageSize") or PAGE_DEFAULT
        if not isinstance(size, int) or size < 0:
            raise invalid("page_size must be a positive number.")
        filter_text = request.get("filter", "")
        condition = parse(filter_text)
        query = json.dumps([projects, filter_text, order])
        query_hash = hashlib.sha256(query.encode()).hexdigest()[:16]
        token = request.get("pageToken")
        after = _decode_token(token, query_hash) if token else None
        page, last = self._entries.page(
            projects, condition, after, min(size, PAGE_MAX), descending=ORDERS[order]
        )
        # Entries are stored as JSON, so they are not read and written again.
        fields = [f'"entries": [{",".join(page)}]'] if page else []
        if last:
            next_token = pages.encode_token(json.dumps([query_hash, *last]))
            fields.append(f'"nextPageToken": {json.dumps(next_token)}')
        return f"{{{', '.join(fields)}}}"


def _partial_error(errors: dict[int, StatusError]) -> StatusError:
    """Return the error of a write.

    Source: WriteLogEntriesPartialErrors in the API's discovery document.
    """
    first = next(iter(errors.values()))
    entry_errors = {
        str(index): {"code": error.number, "message": error.message}
        for index, error in errors.items()
    }
    kind = "type.googleapis.com/google.logging.v2.WriteLogEntriesPartialErrors"
    return invalid(first.message, {"@type": kind, "logEntryErrors": entry_errors})


def _decode_token(token: str, query_hash: str) -> Position:
    """Return the position after which the page begins. Raises ApiError (400)."""
    wrong_token = invalid("page_token does not belong to this list.")
    text = pages.decode_token(token, wrong_token)
    try:
        token_hash, timestamp, insert_id, log_name = json.loads(text)
    except ValueError:
        raise wrong_token from None
    if token_hash != query_hash:
        raise invalid("page_token belongs to another filter or order.")
    return timestamp, insert_id, log_name
