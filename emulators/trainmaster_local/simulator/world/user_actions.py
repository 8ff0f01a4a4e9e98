"""Actions of users: submit a job by message or as a file, submit its id again, cancel, label,
delete.

Each action is published at least once, like every message.
"""

from __future__ import annotations

import json
from typing import Final

from trainmaster.messaging import topics
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.simulator.scenarios.scenario import SimJob
from trainmaster_local.simulator.world.bus import SimBus
from trainmaster_local.simulator.world.context import Context

CANCEL: Final = "cancel"
LABEL: Final = "label"
DELETE: Final = "delete"
"""Topics that exist only in the simulator: they stand for API calls, which are repeated until they
succeed.
"""

BUCKET: Final = "b"
"""Bucket of the job files."""
CANCEL_WITHIN_S: Final = 200.0
"""Latest time of a cancellation, from the submission."""
RIVAL_WITHIN_S: Final = 60.0
"""Latest time of another submission of the same job id, from the first one."""
REQUESTS: Final = 3
"""Deletions, and changes of labels, of one job."""
REQUESTS_WITHIN_S: Final = 400.0
"""Latest time of each deletion or change, from the submission."""


class UserActions:
    """Plans what the user of each job does."""

    def __init__(self, context: Context, bus: SimBus, objects: MemoryObjects) -> None:
        self._context = context
        self._bus = bus
        self._objects = objects
        self.submissions: dict[str, tuple[str, str]] = {}
        """Job id and URI of the job file of every submission, by its source."""

    def plan(self, job: SimJob) -> None:
        """Plan the submission of the job, and the other actions of its user that the fault profile
        allows: a cancellation, and *meddling*, which is any number of other requests.
        """
        context = self._context
        faults = context.faults
        context.scheduler.after(job.submitted_s, lambda: self._submit(job, "job"))
        if context.chance(faults.cancel):
            self._plan_action(CANCEL_WITHIN_S, CANCEL, job, request_id="")
        if context.chance(faults.meddling):
            rival_s = job.submitted_s + context.between(0, RIVAL_WITHIN_S)
            context.scheduler.after(rival_s, lambda: self._submit(job, "rival"))
            for request in range(REQUESTS):
                self._plan_action(REQUESTS_WITHIN_S, DELETE, job, request_id=f"{request}")
                self._plan_action(REQUESTS_WITHIN_S, LABEL, job, request_id=f"{request}")

    def _submit(self, job: SimJob, name: str) -> None:
        """Submit the job. Two submissions with different names compete for the same job id."""
        path = f"jobs/{name}-{job.job_id}.json"
        uri = f"gs://{BUCKET}/{path}"
        if not job.is_uploaded:
            source = f"{uri}#1"
            if job.submitter:
                source = f"cli:{name}-{job.job_id}/{job.submitter}"
            self.submissions[source] = (job.job_id, uri)
            self._bus.publish(topics.SUBMIT, job.document, {"source": source})
            return
        generation = str(self._objects.write(uri, job.document, content_type="application/json"))
        self.submissions[f"{uri}#{generation}"] = (job.job_id, uri)
        body = {"timeCreated": self._context.scheduler.clock().isoformat()}
        attributes = {"bucketId": BUCKET, "objectId": path, "objectGeneration": generation}
        self._bus.publish(topics.UPLOAD, json.dumps(body).encode(), attributes)

    def _plan_action(self, within_s: float, topic: str, job: SimJob, *, request_id: str) -> None:
        """Plan a call of the API. `request_id` tells a new request from a repeated one."""
        data = json.dumps({"job_id": job.job_id, "request_id": request_id}).encode()
        delay_s = job.submitted_s + self._context.between(1, within_s)
        self._context.scheduler.after(
            delay_s, lambda: self._bus.publish(topic, data, attributes={})
        )
