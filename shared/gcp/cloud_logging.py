"""Cloud Logging's two calls, over REST: its client library is one more import that every cold start would pay for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from shared.errors import TemporaryError
from shared.gcp import callers
from shared.gcp.rest import Rest, RestError

GOOGLE: Final = "https://logging.googleapis.com"
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
    """`endpoint`: the emulator's, which asks for no credentials; empty: Google's. Nothing is tried again: who calls
    knows how long a line is worth waiting for. Thread-safe."""

    def __init__(self, project: str, endpoint: str, timeout_s: float) -> None:
        self.project = project
        caller = callers.Emulated() if endpoint else callers.ours()
        self._rest = Rest(endpoint or GOOGLE, caller, timeout_s, tries=1)

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

    def close(self) -> None:
        self._rest.close()

    def _call(self, method: str, body: Mapping[str, object]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._rest.post(f"/v2/entries:{method}", body)
        except RestError as error:
            raise RefusedError(error.status, error.said) from error
        return found
