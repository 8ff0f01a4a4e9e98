"""Read the log of all jobs in Cloud Logging. `job_log` writes Trainmaster's own lines.

The Python client imports this module, and nothing that writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainmaster.core.model.installation import LOG_ID, name_in_installation
from trainmaster.gcp.errors import google_errors
from trainmaster.gcp.rest_api import RestApi

GOOGLE: Final = "https://logging.googleapis.com"
PAGE_MAX: Final = 1000
"""Entries of a page. Source: ListLogEntriesRequest.page_size."""
PAGE_TIMEOUT_S: Final = 60.0
"""Deadline of one page: Cloud Logging searches slowly."""

Entry = Mapping[str, Any]


class LogEntries:
    """The log entries of all jobs, read page by page.

    `endpoint`: an emulator's; empty: Google's. Thread-safe.

    google-cloud-logging is not used: its HTTP client rounds times to the microsecond and hides page
    tokens, and a job's lines differ by nanoseconds (`presentation.log_reader`). Its gRPC client
    cannot reach the local stack's emulator.
    """

    def __init__(
        self,
        project: str,
        endpoint: str,
        installation: str | None = None,
        timeout_s: float = PAGE_TIMEOUT_S,
    ) -> None:
        self._project = project
        self._log = f"projects/{project}/logs/{name_in_installation(LOG_ID, installation)}"
        self._api = RestApi(GOOGLE, endpoint, timeout_s)

    def page(
        self,
        filter_text: str,
        token: str = "",
        *,
        newest_first: bool = False,
        limit: int = PAGE_MAX,
    ) -> tuple[Sequence[Entry], str]:
        """Return entries that match the filter, the oldest first, and the token of the next page,
        or an empty one.

        `newest_first` reverses the order; `limit`: largest number of entries. Raises TemporaryError
        or PermanentError.
        """
        body: dict[str, object] = {
            "resourceNames": [f"projects/{self._project}"],
            "filter": f'logName="{self._log}" AND ({filter_text})',
            "orderBy": "timestamp desc" if newest_first else "timestamp asc",
            "pageSize": limit,
        }
        if token:
            body["pageToken"] = token
        with google_errors("read Cloud Logging"):
            answer: Mapping[str, Any] = self._api.call("POST", "/v2/entries:list", body)
        return answer.get("entries", []), answer.get("nextPageToken", "")

    def close(self) -> None:
        self._api.close()
