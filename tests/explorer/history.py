"""One history: jobs under a fault profile, until they have ended."""

from __future__ import annotations

import json
from typing import Final

from tests.explorer.cloud import Cloud
from tests.explorer.functions import CANCEL, DELETE, LABEL, RELEASE, Functions
from tests.explorer.job_documents import draw_job
from tests.explorer.jobs import ExploredJob
from tests.explorer.machine_sets import MachineSets
from tests.explorer.profile import Profile
from tests.explorer.world import World
from trainmaster.core.intake.job_files import ERROR_SUFFIX
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.tuning import tuning_job_id
from trainmaster.messaging import topics
from trainmaster_local.memory.store import MemoryStore

SWEEP_S: Final = 60.0
MINUTE_S: Final = 60.0
DOWN_S: Final = (30.0, 600.0)
SETTLED_S: Final = 900.0
RELEASED_S: Final = 600.0
"""From the submission of a job until its user may release the machines that it keeps."""
OWNER: Final = "cli:1/anna"
BUCKET: Final = "bucket"
PROBLEMS_BYTES_MAX: Final = 1 << 20
REMEMBERED_S: Final = (60.0, 1200.0)
"""To which time the database is restored."""
LOST_S: Final = (20.0, 600.0)
"""How long after that time it is restored."""
REPEATED_BEFORE_S: Final = 600.0
"""From what is delivered again until the time to which the database is restored: what was published
before may have been handled after it.
"""
MEDDLING_REQUESTS: Final = 3
MEDDLING_S: Final = (1.0, 600.0)


class History:
    """The jobs of a profile, from their submission until all have ended."""

    def __init__(self, seed: int, profile: Profile) -> None:
        """Draw the jobs of the profile, if it has any, and plan their submission."""
        self.world = World(seed, profile)
        self.store = MemoryStore()
        self.jobs: dict[str, ExploredJob] = {}
        self._uploaded: list[str] = []
        """Addresses of the job files that users have stored."""
        self.cloud = Cloud(self.world, self._job_of)
        self.functions = Functions(self.world, self.store, self.cloud, self._on_commit)
        self.cloud.publish = self.functions.publish
        self.machine_sets = MachineSets(self.world, self.store)
        self.cloud.on_delete = self.machine_sets.on_delete
        for number in range(profile.jobs):
            self._plan_job(
                f"j{number + 1}",
                0.0 if number == 0 else self.world.between((0.0, profile.submitted_s)),
            )
        self.world.within((0.0, SWEEP_S), self._sweep)
        if profile.down:
            self._stop_functions()
        if profile.restores:
            self.world.within(REMEMBERED_S, self._remember)

    def run(self) -> World:
        """Run until all jobs have ended, and check what must be true then."""
        world = self.world
        profile = world.profile
        world.after(profile.faults_s, self._end_faults)
        if world.run(profile.faults_s + profile.horizon_s, self._has_ended):
            world.run(world.now_s + SETTLED_S, lambda: False)  # what is in flight is delivered
        for job in self.jobs.values():
            job.examiner.examine_end()
        self.machine_sets.examine_end(self.jobs)
        for uri in self._uploaded:
            problems = self.functions.objects.read(uri + ERROR_SUFFIX, max_bytes=PROBLEMS_BYTES_MAX)
            if problems is not None:
                world.violate("valid job file refused", uri, problems)
        world.close()
        return world

    def _plan_job(self, job_id: str, submitted_s: float) -> None:
        world = self.world
        kind, document = draw_job(world.rng, world.profile, job_id)
        world.after(submitted_s, self.submit, job_id, kind, document)
        if world.chance(world.profile.cancel):
            world.within((1.0, 300.0), self.functions.publish, CANCEL, job_id.encode(), {})
        if world.chance(world.profile.meddling):
            self._plan_requests(job_id)
        if world.chance(world.profile.releases):
            span_s = (submitted_s, submitted_s + RELEASED_S)
            world.within(span_s, self.functions.publish, RELEASE, job_id.encode(), {})

    def _plan_requests(self, job_id: str) -> None:
        """Plan requests of the user to delete the job and to change its labels."""
        for number in range(MEDDLING_REQUESTS):
            for topic in (DELETE, LABEL):
                attributes = {"request": str(number)}
                self.world.within(
                    MEDDLING_S, self.functions.publish, topic, job_id.encode(), attributes
                )

    def submit(self, job_id: str, kind: str, document: bytes) -> ExploredJob:
        """Submit the job file, as an object or as a message."""
        self.world.log("job", kind, document.decode())
        job = self.jobs[job_id] = ExploredJob(self.world, self.store, job_id, kind)
        if self.world.chance(self.world.profile.uploads):
            self._upload(job_id, document)
        else:
            self.functions.publish(topics.SUBMIT, document, {"source": OWNER})
        return job

    def _upload(self, job_id: str, document: bytes) -> None:
        """Store the job file, and notify the function as Cloud Storage does."""
        path = f"jobs/{job_id}.json"
        uri = f"gs://{BUCKET}/{path}"
        self._uploaded.append(uri)
        generation = self.functions.objects.write(uri, document, content_type="application/json")
        attributes = {
            "bucketId": BUCKET,
            "objectId": path,
            "objectGeneration": str(generation),
        }
        resource = {"timeCreated": self.world.clock().isoformat()}
        self.functions.publish(topics.UPLOAD, json.dumps(resource).encode(), attributes)

    def _job_of(self, job_id: str) -> ExploredJob:
        """Return the job. One that nobody submitted is a trial."""
        if job_id not in self.jobs:
            self.jobs[job_id] = ExploredJob(self.world, self.store, job_id, "tuning")
        return self.jobs[job_id]

    def _on_commit(self, entry: LedgerEntry) -> None:
        self._job_of(entry.job_id).examiner.on_commit(entry)
        self.machine_sets.on_commit(entry, self.jobs)

    def _sweep(self) -> None:
        self.functions.publish(topics.SWEEP, b"{}", {})
        self.world.after(SWEEP_S, self._sweep)

    def _stop_functions(self) -> None:
        """No function runs for a while, now and then. Messages wait."""
        if self.world.chance(self.world.profile.down):
            self.functions.down_until_s = self.world.now_s + self.world.between(DOWN_S)
            self.world.log("functions are down")
        if self.world.has_faults:
            self.world.after(MINUTE_S, self._stop_functions)

    def _remember(self) -> None:
        """Take the state to which the database will be restored."""
        since_s = self.world.now_s - REPEATED_BEFORE_S
        self.world.within(LOST_S, self._restore, self.store.copy(), since_s)

    def _restore(self, earlier: MemoryStore, repeated_since_s: float) -> None:
        """Replace the database by its earlier state, as docs/runbooks.md says: functions end, and
        messages are delivered again.
        """
        self.world.log("the database is restored")
        self.world.restores += 1
        vars(self.store).update(
            {name: value for name, value in vars(earlier).items() if name != "_lock"}
        )
        for job in self.jobs.values():
            job.examiner.forget()
        self.functions.repeat(repeated_since_s)

    def _end_faults(self) -> None:
        self.world.has_faults = False

    def _has_ended(self) -> bool:
        profile = self.world.profile
        return (
            self.world.restores >= profile.restores
            and len(set(map(tuning_job_id, self.jobs))) >= profile.jobs
            and not self.cloud.present
            and all(job.examiner.ended_s is not None for job in self.jobs.values())
        )
