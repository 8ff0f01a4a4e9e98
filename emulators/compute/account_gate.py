"""Compute Engine's API for the account of `provision`: a port of its own, which refuses what infra/ does not grant.

`emulators.realism.compute_access` has the rules. The port takes the place of a token.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from werkzeug.wrappers import Request, Response

from emulators.compute.api_errors import ApiError
from emulators.realism.call_access import REFUSED, Access
from emulators.realism.compute_access import refusal

OWN_CALLS: Final = "/emulator/"


class AccountGate:
    """WSGI middleware. The emulator's own calls pass."""

    def __init__(self, application: Callable[..., Iterable[bytes]], grants: frozenset[Access]) -> None:
        self._application, self._grants = application, grants

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        if request.path.startswith(OWN_CALLS):
            return self._application(environ, start_response)
        data = request.get_data()
        # The application itself refuses a body that is not a JSON object.
        body = request.get_json(force=True, silent=True) if data else {}
        message = refusal(self._grants, request.method, request.path, body if isinstance(body, dict) else {})
        if not message:
            unread = {"wsgi.input": io.BytesIO(data), "CONTENT_LENGTH": str(len(data))}
            return self._application({**environ, **unread}, start_response)
        sys.stdout.write(f"{REFUSED}{message}\n")
        sys.stdout.flush()
        error = ApiError(403, "forbidden", message)
        response = Response(json.dumps(error.body()), error.status, content_type="application/json; charset=UTF-8")
        return response(environ, start_response)
