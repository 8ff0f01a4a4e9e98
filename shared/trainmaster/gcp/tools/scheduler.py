"""Cloud Scheduler: jobs that submit a training job at times given by a cron expression.

A schedule publishes a message, whose submitter is not known, or calls the API with the token of a
service account.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Literal

from google.api_core import exceptions
from google.cloud import scheduler_v1
from google.protobuf import field_mask_pb2

from trainmaster.errors import PermanentError
from trainmaster.gcp import clients
from trainmaster.gcp.errors import google_errors
from trainmaster.gcp.retries import CALL, CALL_S

Json = dict[str, Any]

UPDATED_FIELDS: Final = ("description", "schedule", "time_zone", "pubsub_target", "http_target")
"""Fields that `put` replaces in a schedule that exists."""
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


def publication(project: str, attributes: Json, topic: str, data: bytes) -> Json:
    """Return the target of a schedule that publishes its job file.

    `topic`: its name without the project. `data`: the job file. `attributes`: those of the message.
    """
    return {
        "pubsubTarget": {
            "topicName": f"projects/{project}/topics/{topic}",
            "data": base64.b64encode(data).decode("ascii"),
            "attributes": attributes,
        }
    }


def api_call(project: str, api: str, account: str, data: bytes) -> Json:
    """Return the target of a schedule that creates its job through the API, as a service account.

    `api`: the address of the installation's API. `account`: e-mail address of the service account.
    `data`: the job file.
    """
    return {
        "httpTarget": {
            "uri": f"{api.rstrip('/')}/v1/projects/{project}/jobs",
            "httpMethod": "POST",
            "headers": {"Content-Type": "application/json"},
            "body": base64.b64encode(data).decode("ascii"),
            "oauthToken": {"serviceAccountEmail": account, "scope": SCOPE},
        }
    }


def scheduler_job(parent: str, name: str, cron: str, time_zone: str, target: Json) -> Json:
    """Return the job resource.

    `parent`: `projects/P/locations/L`. Source: Job in the API's discovery document.
    """
    return {
        "name": f"{parent}/jobs/{name}",
        "description": "Trainmaster: submits a training job",
        "schedule": cron,
        "timeZone": time_zone,
        **target,
    }


class CloudScheduler:
    """The schedules of a project, for `trainmaster schedule`.

    `endpoint`: one that needs no credentials, for tests; empty: Google's. Methods raise
    TemporaryError or PermanentError.
    """

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
                mask = field_mask_pb2.FieldMask(paths=UPDATED_FIELDS)
                self._client.update_job(job=job, update_mask=mask, **CALL)
                return False
        return True

    def list_jobs(self, parent: str) -> list[Json]:
        """Return the jobs of a location. `parent`: `projects/P/locations/L`."""
        with google_errors("Cloud Scheduler"):
            return [_as_json(job) for job in self._client.list_jobs(parent=parent, **CALL)]

    def get(self, name: str) -> Json:
        """Return the job. `name`: `projects/P/locations/L/jobs/JOB`. Raises PermanentError if there
        is none.
        """
        with google_errors("Cloud Scheduler"), _named(name):
            return _as_json(self._client.get_job(name=name, **CALL))

    def act(self, verb: Literal["run", "pause", "resume", "delete"], name: str) -> None:
        """Run the job now, once, whatever its schedule; or change it.

        `name`: `projects/P/locations/L/jobs/JOB`.

        Raises PermanentError if there is no such job. A run is not requested again: each call is
        another run.
        """
        options = {"retry": None, "timeout": CALL_S} if verb == "run" else CALL
        call = getattr(self._client, f"{verb}_job")
        with google_errors("Cloud Scheduler"), _named(name):
            call(name=name, **options)

    def close(self) -> None:
        self._client.transport.close()

    @cached_property
    def _client(self) -> scheduler_v1.CloudSchedulerClient:
        return clients.rest_client(
            scheduler_v1.CloudSchedulerClient, self._endpoint, transport="rest"
        )


def _as_json(job: scheduler_v1.Job) -> Json:
    """Return the fields that are set, under the names of the REST API."""
    fields: Json = json.loads(scheduler_v1.Job.to_json(job, use_integers_for_enums=False))
    return {key: value for key, value in fields.items() if value not in ("", None)}


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Raise PermanentError with the schedule's name if Cloud Scheduler does not find it."""
    try:
        yield
    except exceptions.NotFound:
        place, _, job = name.rpartition("/jobs/")
        location = place.rpartition("/")[2]
        raise PermanentError(
            f"{location} has no schedule {job}: `trainmaster schedule list --location {location}`"
            " shows those that it has"
        ) from None
