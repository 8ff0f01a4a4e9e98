"""Cloud Scheduler: jobs that publish a message at times given by a cron expression."""

from __future__ import annotations

import base64
import json
from functools import cached_property
from typing import Any, Final

from google.api_core import exceptions
from google.cloud import scheduler_v1
from google.protobuf import field_mask_pb2

from shared.gcp import clients
from shared.gcp.errors import google_errors
from shared.gcp.retries import CALL

Json = dict[str, Any]

UPDATED: Final = ("description", "schedule", "time_zone", "pubsub_target")


def scheduler_job(parent: str, name: str, cron: str, time_zone: str, topic: str, data: bytes) -> Json:
    """Return the job resource. `parent`: `projects/P/locations/L`. Source: Job in the API's discovery document."""
    project = parent.split("/")[1]
    return {
        "name": f"{parent}/jobs/{name}",
        "description": "Trainmaster: submits a training job",
        "schedule": cron,
        "timeZone": time_zone,
        "pubsubTarget": {
            "topicName": f"projects/{project}/topics/{topic}",
            "data": base64.b64encode(data).decode("ascii"),
            "attributes": {"source": f"schedule:{name}"},
        },
    }


class CloudScheduler:
    """`endpoint`: one that needs no credentials, for tests; empty: Google's."""

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = endpoint

    def put(self, resource: Json) -> bool:
        """Create the job, or replace the one with its name. Return whether it is new."""
        job = scheduler_v1.Job.from_json(json.dumps(resource))
        parent, _, _ = job.name.rpartition("/jobs/")
        with google_errors("Cloud Scheduler"):
            try:
                self._client.create_job(parent=parent, job=job, **CALL)
            except exceptions.Conflict:
                mask = field_mask_pb2.FieldMask(paths=UPDATED)
                self._client.update_job(job=job, update_mask=mask, **CALL)
                return False
        return True

    def close(self) -> None:
        self._client.transport.close()

    @cached_property
    def _client(self) -> scheduler_v1.CloudSchedulerClient:
        return clients.rest_client(scheduler_v1.CloudSchedulerClient, self._endpoint, transport="rest")
