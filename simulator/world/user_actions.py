"""What users do: submit by message or as a file, submit again, cancel, label, delete; each told at least once."""

from __future__ import annotations

import json
from typing import Final

from shared.core.intake.job_files import ERROR_SUFFIX
from shared.memory.objects import MemoryObjects
from shared.memory.store import MemoryStore
from shared.messaging import topics
from simulator.invariants.job_invariants import ViolationError
from simulator.scenarios.scenario import SimJob
from simulator.world.bus import SimBus
from simulator.world.context import Context

CANCEL: Final = "cancel"
LABEL: Final = "label"
DELETE: Final = "delete"
"""Topics of the simulator's own: a user's command is not lost either."""

BUCKET: Final = "b"


class Hands:
    def __init__(self, context: Context, bus: SimBus, objects: MemoryObjects) -> None:
        self._context, self._bus, self._objects = context, bus, objects
        self._sources: dict[str, tuple[str, str]] = {}

    def submit(self, job: SimJob) -> None:
        context, faults = self._context, self._context.faults
        context.scheduler.after(job.submitted_s, lambda: self._submit(job, "job"))
        if context.chance(faults.cancel):
            self._later(200, CANCEL, job, "")
        if context.chance(faults.meddling):
            context.scheduler.after(job.submitted_s + context.between(0, 60), lambda: self._submit(job, "rival"))
            for nth in range(3):
                self._later(400, DELETE, job, f"{nth}")
                self._later(400, LABEL, job, f"{nth}")

    def check(self, store: MemoryStore) -> None:
        """Once everything is quiet: of the submissions under one id one is the job, and each other was answered."""
        refused = {rejection.source for rejection in store.rejections()}
        for source, (job_id, uri) in self._sources.items():
            loaded = store.load(job_id)
            is_it = loaded is not None and loaded.state.job.submission == source
            is_answered = source in refused or self._objects.read(uri + ERROR_SUFFIX, max_bytes=1) is not None
            if is_it == is_answered:
                said = "and yet refused" if is_it else "nor answered"
                raise ViolationError(f"submissions: {source} is {'' if is_it else 'neither '}the job {said}")

    def _submit(self, job: SimJob, name: str) -> None:
        """A rival is another submission under the same id."""
        path = f"jobs/{name}-{job.job_id}.json"
        uri = f"gs://{BUCKET}/{path}"
        if not job.is_uploaded:
            self._sources[f"{uri}#1"] = (job.job_id, uri)
            self._bus.publish(topics.SUBMIT, job.document, {"source": f"{uri}#1"})
            return
        self._objects.write(uri, job.document, content_type="application/json")
        generation = str(self._objects.generation(uri))
        self._sources[f"{uri}#{generation}"] = (job.job_id, uri)
        body = {"timeCreated": self._context.scheduler.clock().isoformat()}
        attributes = {"bucketId": BUCKET, "objectId": path, "objectGeneration": generation}
        self._bus.publish(topics.UPLOAD, json.dumps(body).encode(), attributes)

    def _later(self, within_s: float, topic: str, job: SimJob, what: str) -> None:
        data = json.dumps({"job_id": job.job_id, "what": what}).encode()
        delay_s = job.submitted_s + self._context.between(1, within_s)
        self._context.scheduler.after(delay_s, lambda: self._bus.publish(topic, data, {}))
