"""Calls of the HTTP API of an installation, for the Python client.

The API is our own, so Google has no client for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from google.api_core import exceptions

from trainmaster.errors import InvalidJobError, PermanentError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.errors import NO_CONNECTION

TIMEOUT_S: Final = 60.0
"""Longest time of one request."""
PAUSES_S: Final = (1.0, 2.0, 4.0)
"""Pauses before the retries of a call."""
_INVALID: Final = 400
_NOT_FOUND: Final = 404
_TRANSIENT: Final = (429, 500, 502, 503, 504)
"""HTTP statuses after which a call is repeated: too many requests, and errors of servers."""


class NotFoundError(PermanentError):
    """The API has nothing at the address of the call."""


class JobsApi:
    """The API of one project. `endpoint`: its address, `https://HOST`."""

    def __init__(self, project: str, endpoint: str) -> None:
        self._project = project
        self._base = f"{endpoint.rstrip('/')}/v1/projects/{project}/"

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        invocation: str = "",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the response.

        Raises PermanentError with the API's reason, NotFoundError if there is no such thing, and
        TemporaryError if there is no response.

        `invocation` identifies a call that creates a job: the API recognises it when the call is
        repeated. If the job is invalid, the call raises InvalidJobError.
        """
        address = f"{self._base}{path}"
        headers = {"User-Agent": f"trainmaster invocation-id/{invocation}"} if invocation else {}
        problem = ""
        for pause_s in (*PAUSES_S, None):
            try:
                response = self._session().request(
                    method, address, json=body, headers=headers, params=query
                )
            except NO_CONNECTION as error:
                problem = str(error)
            else:
                if response.ok:
                    answer: dict[str, Any] = response.json()
                    return answer
                problem = exceptions.from_http_response(response).message
                if invocation and response.status_code == _INVALID:
                    # The problems are the job's: the address of the call, which Google's text
                    # begins with, is none of them.
                    raise InvalidJobError(problem.removeprefix(f"{method} {response.url}: "))
                if response.status_code == _NOT_FOUND:
                    raise NotFoundError(problem)
                if response.status_code not in _TRANSIENT:
                    raise PermanentError(problem)
            if pause_s is not None:
                time.sleep(pause_s)
        raise TemporaryError(f"{address}: {problem}")

    def _session(self) -> clients.Session:
        """Return a session with the user's credentials; they are read again, because tokens
        expire.
        """
        token = ""
        if clients.TOKEN_FILE in os.environ:
            token = clients.caller_token(self._project)
        return clients.session(endpoint="", timeout_s=TIMEOUT_S, token=token)
