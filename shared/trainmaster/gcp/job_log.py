"""The JobLog on Cloud Logging, and reading it.

VMs write their own lines (`trainmaster.agent.reporting.cloud_log`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError

from trainmaster.core.model.installation import own
from trainmaster.core.model.job import public_id
from trainmaster.core.model.tuning import trial_number
from trainmaster.core.reporting.job_log import LOG_ID, SERVICE, ServiceLine
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.errors import google_errors
from trainmaster.gcp.rest_api import RestApi

if TYPE_CHECKING:
    from google.cloud.logging import Client

TIMEOUT_S: Final = 3.0
"""Deadline of one write: an event must not wait longer for lines that only people read."""
GOOGLE: Final = "https://logging.googleapis.com"
PAGE_MAX: Final = 1000
"""Entries of a page. Source: ListLogEntriesRequest.page_size."""
PAGE_TIMEOUT_S: Final = 60.0
"""Deadline of one page: Cloud Logging searches slowly."""

Entry = Mapping[str, Any]


class CloudJobLog:
    """See `trainmaster.ports.JobLog`.

    Thread-safe, as its client is. `endpoint`: an emulator's; empty: Google's.

    The client is built for the first line, because its import takes a quarter of a second
    (google-cloud-logging imports OpenTelemetry and the formats of other products), and most cold
    starts write no line.
    """

    def __init__(self, project: str, endpoint: str) -> None:
        self._project = project
        self._endpoint = endpoint
        self._may_use_ml_job = True

    @cached_property
    def _client(self) -> Client:
        return clients.logging_client(self._project, self._endpoint, TIMEOUT_S)

    def write(self, lines: Sequence[ServiceLine]) -> None:
        """Write under the resource type `ml_job`, or `generic_task` in projects that may not write
        `ml_job`.
        """
        job_id = public_id(lines[0].job_id)
        ml_job = {"job_id": job_id, "task_name": SERVICE}
        generic_task = {
            "location": "global",
            "namespace": own(LOG_ID),
            "job": job_id,
            "task_id": SERVICE,
        }
        try:
            with google_errors("write to Cloud Logging"):
                if self._may_use_ml_job:
                    with suppress(exceptions.BadRequest):
                        self._write(lines, "ml_job", ml_job)
                        return
                self._write(lines, "generic_task", generic_task)
                self._may_use_ml_job = False
        except (PermanentError, exceptions.GoogleAPICallError, GoogleAuthError) as error:
            raise TemporaryError(str(error)) from error

    def _write(
        self, lines: Sequence[ServiceLine], resource_type: str, resource: Mapping[str, str]
    ) -> None:
        """Write lines of one job. `resource`: its labels, except for that of the project."""
        labels = {
            "ml.googleapis.com/job_id": public_id(lines[0].job_id),
            "ml.googleapis.com/task_name": SERVICE,
        }
        trial = trial_number(lines[0].job_id)
        if trial:
            labels["ml.googleapis.com/trial_id"] = trial
        self._client.logging_api.write_entries(
            [_entry(line) for line in lines],
            logger_name=f"projects/{self._project}/logs/{own(LOG_ID)}",
            resource={"type": resource_type, "labels": {"project_id": self._project, **resource}},
            labels=labels,
            partial_success=False,
        )


def _entry(line: ServiceLine) -> dict[str, object]:
    """Return the log entry of the line.

    The last digit of its time is not zero: Cloud Logging drops trailing zeros, and gcloud compares
    times as text.
    """
    return {
        "timestamp": line.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "001Z",
        "insertId": f"{line.job_id}-{line.key}",
        "severity": line.severity.value,
        "jsonPayload": {"message": line.message},
    }


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
        self._log = f"projects/{project}/logs/{own(LOG_ID, installation)}"
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

        `newest_first` reverses the order; `limit`: at most so many. Raises TemporaryError or
        PermanentError.
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
