"""The JobLog on Cloud Logging, beside what the VMs write there themselves (`shared.agent.reporting.cloud_log`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from http import HTTPStatus
from typing import Final

from shared.core.model.job import public_id
from shared.core.model.tuning import number_of
from shared.core.reporting.job_log import LOG_ID, SERVICE, ServiceLine
from shared.gcp.cloud_logging import CloudLogging, RefusedError

TIMEOUT_S: Final = 3.0
"""Of one call: an event is worth no longer wait for a line that only people read."""


class CloudJobLog:
    """See `shared.ports.JobLog`."""

    def __init__(self, logging: CloudLogging) -> None:
        self._logging = logging
        self._is_ours = True

    def write(self, lines: Sequence[ServiceLine]) -> None:
        """Under the service's own resource type; where the project may not write that, under one for everybody."""
        job_id = public_id(lines[0].job_id)
        if self._is_ours:
            try:
                self._write(lines, self._ours(job_id))
            except RefusedError as error:
                if error.status != HTTPStatus.BAD_REQUEST:
                    raise
                self._write(lines, self._anyones(job_id))
                self._is_ours = False
        else:
            self._write(lines, self._anyones(job_id))

    def _write(self, lines: Sequence[ServiceLine], resource: object) -> None:
        labels = {"ml.googleapis.com/job_id": public_id(lines[0].job_id), "ml.googleapis.com/task_name": SERVICE}
        if trial := number_of(lines[0].job_id):
            labels["ml.googleapis.com/trial_id"] = trial
        self._logging.write(
            {
                "logName": f"projects/{self._logging.project}/logs/{LOG_ID}",
                "resource": resource,
                "labels": labels,
                "entries": [_entry(line) for line in lines],
            }
        )

    def _ours(self, job_id: str) -> object:
        labels = {"project_id": self._logging.project, "job_id": job_id, "task_name": SERVICE}
        return {"type": "ml_job", "labels": labels}

    def _anyones(self, job_id: str) -> object:
        labels = {
            "project_id": self._logging.project,
            "location": "global",
            "namespace": LOG_ID,
            "job": job_id,
            "task_id": SERVICE,
        }
        return {"type": "generic_task", "labels": labels}


def _entry(line: ServiceLine) -> dict[str, object]:
    """The time ends in no zero: Cloud Logging leaves those out of what it gives back, and gcloud compares times as
    text."""
    return {
        "timestamp": line.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "001Z",
        "insertId": f"{line.job_id}-{line.key}",
        "severity": line.severity.value,
        "jsonPayload": {"message": line.message},
    }
