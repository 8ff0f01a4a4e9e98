"""Queries over all jobs: which are live, which are recent, how many there are; and the token by
which a commit that admits a job fails if another job was admitted since.

A job is *live* until it has ended. A live job *waits* in the admission queue until an admission
pass lets it start. This is the part of the Store that submissions, admission passes, the sweep (the
scheduled pass for what no event reported) and lists of jobs use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

from google.cloud.firestore import DocumentSnapshot, Query
from google.cloud.firestore_v1.base_query import FieldFilter

from trainmaster.core.model.floor import is_below_floor
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.machine_set import SetState
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.vm_names import job_hash_in, replica_id_from_vm_name, vm_name
from trainmaster.core.rules.admission_queue import AdmissionQueue
from trainmaster.errors import ConflictError
from trainmaster.gcp.firestore.database import (
    JOBS,
    MACHINE_SETS,
    REPLICAS,
    Database,
    commit,
    job_path,
    read_or_log,
)
from trainmaster.gcp.firestore.documents import (
    FAILING,
    IS_ACTIVE,
    NAMES,
    OWNER,
    WAIT_ENDS_AT,
    failing_key,
    pack,
    read,
    submission_time_field,
    unpack,
)
from trainmaster.ports import (
    AdmissionToken,
    JobFilter,
    JobPosition,
    LiveJobs,
    SweepRequests,
    VmOwner,
)
from trainmaster.ports.store import FAILING_JOBS, FAILING_READ, LIVE_PAGE

ADMISSION: Final = "control/admission_token"
"""Path of the document that every admission writes."""
QUEUE: Final = "control/admission_queue"
"""Path of the document with the queue as the last admission pass left it."""
SWEEP: Final = "control/sweep"
"""Path of the document with the times of the sweep's requests."""
QUERY_MAX: Final = 200
"""Jobs that one query of a list reads, unless the list asks for more."""


class JobQueries(Database):
    """Adapter of `trainmaster.ports.store.JobQueries`, whose docstrings are the contract.

    Methods raise TemporaryError or PermanentError for errors of Firestore (`Database`).
    """

    def live_jobs(self) -> LiveJobs:
        """Return all live jobs, and the ids of those that cannot be read."""
        return _read_live(self._find(self._where(JOBS, ("is_live", "==", True))))

    def live_pages(self, *, waiting: bool) -> Iterator[LiveJobs]:
        """Yield the live jobs in parts of at most `LIVE_PAGE`, by id; without those that wait
        unless `waiting`.
        """
        field = "is_live" if waiting else IS_ACTIVE
        query = self._where(JOBS, (field, "==", True)).order_by("__name__").limit(LIVE_PAGE)
        snapshots = self._find(query)
        while snapshots:
            yield _read_live(snapshots)
            is_last = len(snapshots) < LIVE_PAGE
            last = self._client.document(job_path(snapshots[-1].id))
            snapshots = [] if is_last else self._find(query.start_after([last]))

    def overdue_waits(self, now: datetime) -> tuple[Job, ...]:
        """Return the waiting jobs whose `maxWaitTime` is over."""
        return _read_live(self._find(self._where(JOBS, (WAIT_ENDS_AT, "<=", now)))).jobs

    def admission_token(self) -> AdmissionToken:
        """Return the live jobs with the token that a commit needs to admit one of them.

        The token is read before the jobs: after an admission in between, the commit that uses the
        token fails.
        """
        last = self._get(ADMISSION).get(ADMISSION)
        return AdmissionToken(last.update_time if last else None, self.live_jobs())

    def next_admission_token(self, token: AdmissionToken, job_id: str) -> AdmissionToken:
        """Return the token for the next admission, after the caller has admitted this job.

        Raises ConflictError if another one was admitted after it: the admission document names the
        last one.
        """
        last = self._get(ADMISSION).get(ADMISSION)
        if last is None or last.get("job_id") != job_id:
            raise ConflictError(f"another job was admitted after {job_id}")
        return replace(token, token=last.update_time)

    def queue(self) -> AdmissionQueue:
        """Return the stored queue; an empty one if there is none, or one of another release."""
        stored = self._get(QUEUE).get(QUEUE)
        if stored is None:
            return AdmissionQueue()
        return unpack(AdmissionQueue, stored.get("packed")) or AdmissionQueue()

    def store_queue(self, queue: AdmissionQueue) -> None:
        """Store the queue that an admission pass has left, whatever is stored."""
        batch = self._client.batch()
        batch.set(self._client.document(QUEUE), {"packed": pack(queue)})
        commit(batch, "store the admission queue")

    def sweep_requests(self) -> SweepRequests:
        """Return the times that the two methods below have noted."""
        stored = self._get(SWEEP).get(SWEEP)
        return read(SweepRequests, stored.to_dict()) if stored else SweepRequests()

    def note_sweep_requests(self, requested_at: datetime) -> None:
        """Note that a sweep has published its requests to reconcile jobs."""
        self._note_sweep(requested_at=requested_at)

    def note_sweep_reached(self, reached_at: datetime) -> None:
        """Note the time of a sweep's request that has been delivered."""
        self._note_sweep(reached_at=reached_at)

    def _note_sweep(self, **fields: datetime) -> None:
        """Write these fields, whatever the others are: each has one kind of writer."""
        batch = self._client.batch()
        batch.set(self._client.document(SWEEP), fields, merge=True)
        commit(batch, "note the requests of a sweep")

    def count_live(self) -> int:
        """Return the number of live jobs."""
        return self._count(self._where(JOBS, ("is_live", "==", True)))

    def recent_jobs(
        self, limit: int, after: JobPosition | None = None, only: JobFilter | None = None
    ) -> tuple[Job, ...]:
        """Return at most `limit` jobs, the newest first, from the position `after` on.

        Queries by the narrowest condition of the filter `only`, and compares its other conditions
        here. The index of that condition ends with the time and the document's name: the order of
        lists. A query that finds too few jobs is followed by one for twice as many.
        """
        query = self._where(JOBS, *_indexed_conditions(only)).order_by(
            "created_at", direction=Query.DESCENDING
        )
        query = query.order_by("__name__", direction=Query.DESCENDING)
        found: list[Job] = []
        size = limit
        while len(found) < limit:
            page_query = query.limit(size)
            if after is not None:
                last = self._client.document(job_path(after.job_id))
                page_query = page_query.start_after([after.created_at, last])
            page = self._jobs(page_query)
            found += [job for job in page if only is None or only.matches(job)]
            if len(page) < size:
                break
            after = JobPosition(page[-1].created_at, page[-1].job_id)
            size = max(limit, min(2 * size, QUERY_MAX))
        return tuple(found[:limit])

    def failing_replicas(self, jobs: Sequence[Job]) -> dict[str, tuple[Replica, ...]]:
        """Return the replicas of these jobs' current attempts that have failed several times in a
        row, by job id.

        One query finds those of many jobs: the key names job and attempt. Replicas below the job's
        floor, the lowest VM generation that counts, are left out.
        """
        by_key = {failing_key(job.job_id, job.attempt): job for job in jobs}
        keys = list(by_key)
        replicas = self._client.collection_group(REPLICAS)
        found: defaultdict[str, list[Replica]] = defaultdict(list)
        for start in range(0, len(keys), FAILING_JOBS):
            unread = keys[start : start + FAILING_JOBS]
            while unread:
                query = replicas.where(filter=FieldFilter(FAILING, "in", unread))
                snapshots = self._find(query.limit(FAILING_READ))
                for snapshot in snapshots:
                    job = by_key[snapshot.get(FAILING)]
                    replica = read(Replica, snapshot.to_dict())
                    if not is_below_floor(job, replica):
                        found[job.job_id].append(replica)
                is_complete = len(snapshots) < FAILING_READ
                if is_complete:
                    break
                # One huge job may have used up the limit: query again for the jobs without results.
                seen = {snapshot.get(FAILING) for snapshot in snapshots}
                unread = [key for key in unread if key not in seen]
        return {job_id: tuple(replicas) for job_id, replicas in found.items()}

    def count_by_state(self, label: Label | None = None) -> dict[JobState, int]:
        """Return how many jobs are in each state; with `label`, only jobs that have it.

        Trials of tuning jobs and deleted jobs do not count. Each state is counted by an aggregation
        of its own, all at the same time. Each costs one read per 1,000 index entries, at least one.
        """
        conditions: list[tuple[str, str, object]] = [
            ("deleted_at", "==", None),
            ("trial_of", "==", None),
        ]
        if label:
            conditions.append(("labels", "array_contains", asdict(label)))
        queries = [
            self._where(JOBS, ("state", "==", state.value), *conditions) for state in JobState
        ]
        with ThreadPoolExecutor(len(queries)) as pool:
            return dict(zip(JobState, pool.map(self._count, queries), strict=True))

    def count_created_since(self, moment: datetime, *, through_api: bool) -> int:
        """Return how many jobs were submitted at `moment` or later, in one of the two ways."""
        field = submission_time_field(through_api=through_api)
        return self._count(self._where(JOBS, (field, ">=", moment)))

    def owner_of_vm(self, name: str) -> VmOwner | None:
        """Return the job that decides about VMs of this name, and the job of the name.

        Queries by the hash in the name, which two jobs may share; then compares the whole name. A
        job that cannot be read owns every VM that is named after it. `job.machines`: the job keeps
        its VMs for later ones, as a *machine set*, whose holder decides about them.
        """
        vm_hash = job_hash_in(name)
        if vm_hash is None:
            return None
        replica_id = replica_id_from_vm_name(name)
        for snapshot in self._find(self._where(JOBS, ("vm_hash", "==", vm_hash))):
            job = read_or_log(Job, snapshot, "job_id")
            job_id = str(snapshot.id)
            if vm_name(job_id, replica_id) != name:
                continue
            if job is not None and job.machines is not None:
                return self._holder(job)
            if job is None or replica_id in job.plan.replica_ids:
                return VmOwner(job_id, job_id)
        return None

    def _holder(self, job: Job) -> VmOwner | None:
        """Return the holder of the machine set that this job has created: itself, at first. None:
        it has taken the machines of another job, and has created no set.
        """
        path = f"{MACHINE_SETS}/{job.job_id}"
        snapshot = self._get(path, fields=["holder", "state"]).get(path)
        if snapshot is not None:
            is_kept = snapshot.get("state") == SetState.KEPT.value
            return VmOwner(str(snapshot.get("holder")), job.job_id, is_kept)
        return VmOwner(job.job_id, job.job_id) if job.set_id == job.job_id else None

    def _jobs(self, query: Any) -> tuple[Job, ...]:
        return tuple(read(Job, snapshot.to_dict()) for snapshot in self._find(query))


def _read_live(snapshots: Iterable[DocumentSnapshot[Any]]) -> LiveJobs:
    """Return the jobs, and apart from them the ids of those that this release cannot read."""
    jobs = []
    unreadable = []
    for snapshot in snapshots:
        job = read_or_log(Job, snapshot, "job_id")
        if job is None:
            unreadable.append(snapshot.id)
        else:
            jobs.append(job)
    return LiveJobs(tuple(jobs), tuple(unreadable))


def _indexed_conditions(only: JobFilter | None) -> list[tuple[str, str, object]]:
    """Return the condition that the query has: each has an index, and no two of them together."""
    narrowest = (only or JobFilter()).narrowest()
    if narrowest.name:
        return [(NAMES, "array_contains", narrowest.name.lower())]
    if narrowest.user:
        return [(OWNER, "==", narrowest.user.lower())]
    if narrowest.labels:
        return [("labels", "array_contains", asdict(narrowest.labels[0]))]
    if narrowest.states:
        return [("state", "in", [state.value for state in narrowest.states])]
    return []
