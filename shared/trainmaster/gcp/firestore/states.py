"""States of jobs: a job's document, those of its replicas, and the commit that changes them.

A `Loaded` has the state and a token for each document that was read: the time of its last write.
The commit fails if a document has another token by then.

The part of the Store that every event is decided with: load, decide (`core.rules`), commit. An
*attempt* is one execution of the whole job, a *round* one common start of its members. The *floor*
is the lowest VM generation that counts: VMs below it are outdated. A *machine set* is the VMs that
a job keeps for the jobs after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from google.cloud.firestore import SERVER_TIMESTAMP, DocumentSnapshot

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.machine_set import MachineSet, SetState
from trainmaster.core.model.members import recall
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.timeouts import HISTORY_KEPT
from trainmaster.core.transitions.change import Change
from trainmaster.errors import ConflictError
from trainmaster.gcp.firestore.database import (
    MACHINE_SETS,
    Database,
    ExistsError,
    commit,
    job_path,
    ledger_path,
    replicas_path,
)
from trainmaster.gcp.firestore.documents import (
    EXPIRE_AT,
    entry_document,
    job_document,
    machine_set_document,
    read,
    replica_document,
)
from trainmaster.gcp.firestore.job_queries import ADMISSION
from trainmaster.gcp.firestore.ledger import COMMITTED_AT
from trainmaster.ports import (
    MACHINES,
    AdmissionToken,
    AlreadyRecordedError,
    Loaded,
    LoadedSet,
)

JOB: Final = "job"
"""Key of the job's document in `Loaded.tokens`."""
EXPIRY_BATCH: Final = 500
"""Documents in one write of `expire_history`."""


class States(Database):
    """Adapter of `trainmaster.ports.store.States`, whose docstrings are the contract.

    Methods raise TemporaryError or PermanentError for errors of Firestore (`Database`).
    """

    def load(self, job_id: str, replica: str | None = None) -> Loaded | None:
        """Return the job, and the replica with the key `replica` if there is one.

        None: there is no such job.
        """
        paths = [job_path(job_id)]
        if replica:
            paths.append(f"{replicas_path(job_id)}/{replica}")
        documents = self._get(*paths)
        job = documents.pop(job_path(job_id), None)
        if job is None:
            return None
        return self._with_machines(_to_loaded(job, list(documents.values()), whole=False))

    def load_attempt(self, job_id: str, *, if_needed: bool = False) -> Loaded | None:
        """Return the job and all replicas of its attempt, as of the moment when the job was read.

        None: there is no such job. `if_needed`: without the replicas if no decision about this job
        needs them.
        """
        job = self._get(job_path(job_id)).get(job_path(job_id))
        if job is None:
            return None
        found: Sequence[DocumentSnapshot[Any]] = ()
        whole = read(Job, job.to_dict()).needs_replicas or not if_needed
        if whole:
            replicas = self._where(replicas_path(job_id), ("attempt", "==", job.get("attempt")))
            found = self._find(replicas, read_time=job.read_time)
        loaded = _to_loaded(job, found, whole=whole)
        return replace(self._with_machines(loaded), read_at=job.read_time)

    def _with_machines(self, loaded: Loaded) -> Loaded:
        """Read the job's machine set, after the job: the set may be newer, but is never older."""
        job = loaded.state.job
        if job.machines is None:
            return loaded
        path = f"{MACHINE_SETS}/{job.set_id}"
        snapshot = self._get(path).get(path)
        if snapshot is None:
            return loaded
        state = replace(loaded.state, machine_set=read(MachineSet, snapshot.to_dict()))
        return replace(
            loaded, state=state, tokens={**loaded.tokens, MACHINES: snapshot.update_time}
        )

    def kept_machines(self) -> tuple[LoadedSet, ...]:
        """Return the machine sets that no job uses now, in the order of their holders' ends."""
        query = self._where(MACHINE_SETS, ("state", "==", SetState.KEPT.value))
        kept = [
            LoadedSet(read(MachineSet, snapshot.to_dict()), snapshot.update_time)
            for snapshot in self._find(query)
        ]
        kept.sort(key=lambda loaded: (loaded.machine_set.ended_at, loaded.machine_set.set_id))
        return tuple(kept)

    def commit(
        self,
        loaded: Loaded | None,
        entry: LedgerEntry,
        change: Change,
        admission_token: AdmissionToken | None = None,
    ) -> None:
        """Write the ledger entry and the changed documents in one atomic step, or nothing.

        Raises AlreadyRecordedError if there is an entry of this key, and ConflictError if a
        document is not as it was loaded, or if another commit has used an admission token since.
        """
        tokens = loaded.tokens if loaded else {}
        job = change.job or (loaded.state.job if loaded else None)
        expire_at = entry.at + HISTORY_KEPT
        batch = self._client.batch()
        document = entry_document(entry, expire_at if job and job.deleted_at else None)
        document[COMMITTED_AT] = SERVER_TIMESTAMP
        batch.create(self._client.document(f"{ledger_path(entry.job_id)}/{entry.key}"), document)
        for replica in change.replicas:
            path = f"{replicas_path(entry.job_id)}/{replica.key}"
            is_past = job is not None and replica.attempt < job.attempt
            self._write(
                batch,
                path,
                replica_document(replica, entry.job_id, expire_at if is_past else None),
                tokens.get(replica.key),
            )
        if change.job:
            self._write(batch, job_path(entry.job_id), job_document(change.job), tokens.get(JOB))
        if change.machines:
            path = f"{MACHINE_SETS}/{change.machines.set_id}"
            self._write(batch, path, machine_set_document(change.machines), tokens.get(MACHINES))
        if admission_token is not None:
            # The values differ from the last admission's: an update that changes nothing keeps the
            # update time.
            self._write(
                batch, ADMISSION, {"job_id": entry.job_id, "at": entry.at}, admission_token.token
            )
        try:
            commit(batch, f"commit {entry.job_id} {entry.key}")
        except ExistsError:
            if self._get(f"{ledger_path(entry.job_id)}/{entry.key}", fields=["key"]):
                raise AlreadyRecordedError(entry.key) from None
            raise ConflictError(
                f"{entry.job_id}: another writer created one of the documents"
            ) from None

    def count_ready(self, job_id: str, attempt: int, floor: int) -> int:
        """Return how many replicas of the attempt, not below the floor, have ever been ready."""
        conditions = (
            ("attempt", "==", attempt),
            ("ever_ready", "==", True),
            ("vm_generation", ">=", floor),
        )
        return self._count(self._where(replicas_path(job_id), *conditions))

    def count_replicas(self, job_id: str, attempt: int, states: Sequence[ReplicaState]) -> int:
        """Return how many replicas of the attempt are in one of these states."""
        values = [state.value for state in states]
        return self._count(
            self._where(replicas_path(job_id), ("attempt", "==", attempt), ("state", "in", values))
        )

    def count_ready_for(self, job_id: str, round_key: str, floor: int) -> int:
        """Return how many members, not below the floor, are ready for this round."""
        replicas = self._where(
            replicas_path(job_id), ("ready_for", "==", round_key), ("vm_generation", ">=", floor)
        )
        return self._count(replicas)

    def expire_history(self, job_id: str, at: datetime) -> None:
        """Let Firestore delete the job's ledger entries and replicas after `at`.

        Writes in batches, in the order of the documents' names. A repetition writes the same again.
        """
        for collection in (ledger_path(job_id), replicas_path(job_id)):
            query = (
                self._client.collection(collection)
                .order_by("__name__")
                .select(["__name__"])
                .limit(EXPIRY_BATCH)
            )
            snapshots = self._find(query)
            while snapshots:
                batch = self._client.batch()
                for snapshot in snapshots:
                    batch.update(snapshot.reference, {EXPIRE_AT: at})
                commit(batch, f"expire the history of {job_id}")
                snapshots = self._find(query.start_after({"__name__": snapshots[-1].reference}))


def _to_loaded(
    job: DocumentSnapshot[Any], replicas: Sequence[DocumentSnapshot[Any]], *, whole: bool
) -> Loaded:
    """Return the state that these documents store. `whole`: they are all replicas of the job.

    `recall` lets members that completed in an earlier round, and replicas below the floor, wait for
    another VM: no document of theirs is written for it.
    """
    state_job = read(Job, job.to_dict())
    state_replicas = [read(Replica, snapshot.to_dict()) for snapshot in replicas]
    if whole:
        order = {
            replica_id: position for position, replica_id in enumerate(state_job.plan.replica_ids)
        }
        state_replicas.sort(key=lambda replica: order[replica.replica_id])
    tokens: dict[str, object] = {snapshot.id: snapshot.update_time for snapshot in replicas}
    return Loaded(
        recall(State(state_job, tuple(state_replicas), whole)), {JOB: job.update_time, **tokens}
    )
