"""The JobLog on Cloud Logging. `log_entries` reads it.

VMs write their own lines (`trainmaster.agent.reporting.cloud_log`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, Final

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError

from trainmaster.core.model.installation import LOG_ID, name_in_installation
from trainmaster.core.model.job import public_id
from trainmaster.core.model.tuning import trial_number
from trainmaster.core.reporting.job_log import SERVICE, ServiceLine
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.errors import google_errors

if TYPE_CHECKING:
    from google.cloud.logging import Client

TIMEOUT_S: Final = 3.0
"""Deadline of one write: an event must not wait longer for lines that only people read."""


class CloudJobLog:
    """Trainmaster's own lines in a job's log, in Cloud Logging. Thread-safe, as its client is.

    Adapter of `trainmaster.ports.JobLog`. `endpoint`: an emulator's; empty: Google's.

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
        """Write lines of one job under the resource type `ml_job`, or `generic_task` in projects
        that may not write `ml_job`.

        Raises TemporaryError for every failure, as the port demands: a job never depends on its
        log.
        """
        job_id = public_id(lines[0].job_id)
        ml_job = {"job_id": job_id, "task_name": SERVICE}
        generic_task = {
            "location": "global",
            "namespace": name_in_installation(LOG_ID),
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
                self._may_use_ml_job = False  # the type was refused, and not the lines
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
            logger_name=f"projects/{self._project}/logs/{name_in_installation(LOG_ID)}",
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
