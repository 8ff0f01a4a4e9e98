"""Cloud Logging's two calls, over REST: its client library is one more import that every cold start would pay for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

import google.auth
import requests
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession

from shared.errors import TemporaryError

GOOGLE: Final = "https://logging.googleapis.com"
SCOPES: Final = ("https://www.googleapis.com/auth/logging.write", "https://www.googleapis.com/auth/logging.read")
PAGE_MAX: Final = 1000  # Source: ListLogEntriesRequest.page_size

Entry = Mapping[str, Any]


class RefusedError(TemporaryError):
    """The call was answered with an error. `status` is the HTTP one."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"Cloud Logging: HTTP {status}: {said}")
        self.status = status

    @property
    def is_final(self) -> bool:
        """Whether the same call would be answered the same again."""
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR and self.status != HTTPStatus.TOO_MANY_REQUESTS


class CloudLogging:
    """`endpoint`: the emulator's, which asks for no credentials; empty: Google's. Thread-safe as requests is."""

    def __init__(self, project: str, endpoint: str, timeout_s: float) -> None:
        self.project = project
        self._base = endpoint or GOOGLE
        self._timeout_s = timeout_s
        self._needs_credentials = not endpoint

    def write(self, body: Mapping[str, object]) -> None:
        """One `entries:write`. Raises TemporaryError; RefusedError where it was answered so."""
        self._call("write", body)

    def page(self, filter_text: str, token: str = "") -> tuple[Sequence[Entry], str]:
        """Entries that the filter lets through, the oldest first, and the next page's token where there is one."""
        body: dict[str, object] = {
            "resourceNames": [f"projects/{self.project}"],
            "filter": filter_text,
            "orderBy": "timestamp asc",
            "pageSize": PAGE_MAX,
            **({"pageToken": token} if token else {}),
        }
        answer = self._call("list", body)
        return answer.get("entries", []), answer.get("nextPageToken", "")

    def _call(self, method: str, body: Mapping[str, object]) -> dict[str, Any]:
        try:
            answer = self._session.post(f"{self._base}/v2/entries:{method}", json=body, timeout=self._timeout_s)
            if answer.ok:
                found: dict[str, Any] = answer.json()
                return found
            said = answer.json().get("error", {}).get("message", answer.reason)
        except (requests.RequestException, GoogleAuthError, ValueError) as error:
            raise TemporaryError(f"Cloud Logging: {error}") from error
        raise RefusedError(answer.status_code, said)

    @cached_property
    def _session(self) -> requests.Session:
        if not self._needs_credentials:
            return requests.Session()
        credentials, _ = google.auth.default(scopes=SCOPES)
        session: requests.Session = AuthorizedSession(credentials)
        return session
