"""Calls of Cloud TPU's REST API that its client library cannot make, or whose answers it cannot read.

What a long-running operation has made is in its answer, in a message that may be younger than the library: it then
raises for the whole page. And flex-start is in v2alpha1 only, whose messages in the library do not have it yet.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import google.auth
import requests
from google.api_core import exceptions
from google.auth.transport.requests import AuthorizedSession

GOOGLE: Final = "https://tpu.googleapis.com"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
CALL_TIMEOUT_S: Final = 30.0

Json = dict[str, Any]


class Rest:
    """`endpoint`: an emulator's, which asks for no credentials; empty: Google's. Raises GoogleAPICallError."""

    def __init__(self, endpoint: str) -> None:
        self._base = endpoint.rstrip("/") or GOOGLE
        self._needs_credentials = not endpoint

    def call(self, method: str, path: str, body: Json | None = None, **arguments: str) -> Json:
        """`path` with its version: `/v2/projects/…`."""
        answer = self._session.request(
            method, self._base + path, params=arguments, json=body, timeout=CALL_TIMEOUT_S, allow_redirects=False
        )
        if not answer.ok:
            raise exceptions.from_http_response(answer)
        found: Json = answer.json()
        return found

    @cached_property
    def _session(self) -> requests.Session:
        if not self._needs_credentials:
            return requests.Session()
        credentials, _ = google.auth.default(scopes=[SCOPE])
        session: requests.Session = AuthorizedSession(credentials)
        return session
