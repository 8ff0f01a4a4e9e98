"""The result of a decision: documents to write, and what must happen after they are written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.transitions.edges import JOB_EDGES, REPLICA_EDGES


class IllegalTransitionError(Exception):
    """A decision needs an edge that the tables do not have, or a replica that was not loaded: a bug
    in the rules.
    """


class Effect(StrEnum):
    """A message that follows a commit. All but NOTIFY are level-triggered."""

    PROVISION = "provision"  # make the job's VMs equal the stored state
    # Make the trials of the tuning job, or of the trial's tuning job, equal the stored state.
    TUNE = "tune"
    NOTIFY = "notify"  # report to subscribers that the job's state or attempt has changed


@dataclass(frozen=True, slots=True)
class Change:
    """The documents that a decision creates or rewrites."""

    job: Job | None = None
    replicas: tuple[Replica, ...] = ()
    effects: tuple[Effect, ...] = ()
    """Messages to publish after the commit."""
    machines: MachineSet | None = None
    """The machine set, if it changes."""


PROVISION = (Effect.PROVISION,)


def find_replica(state: State, key: str) -> Replica:
    """Return the loaded replica with this key.

    Raises IllegalTransitionError if it was not loaded.
    """
    for replica in state.replicas:
        if replica.key == key:
            return replica
    raise IllegalTransitionError(f"decision on replica {key}, which was not loaded")


def move_job(
    job: Job,
    target: JobState,
    *,
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    error_message: str | None = None,
) -> Job:
    """Return the job in its next state. Arguments that are None leave their fields as they are."""
    if (job.state, target) not in JOB_EDGES:
        raise IllegalTransitionError(f"job {job.state} -> {target}")
    return replace(
        job,
        state=target,
        started_at=started_at or job.started_at,
        ended_at=ended_at or job.ended_at,
        error_message=error_message or job.error_message,
        version=job.version + 1,
    )


def move_replica(replica: Replica, target: ReplicaState, **changes: Any) -> Replica:
    """Return the replica in its next state, with other fields changed."""
    if (replica.state, target) not in REPLICA_EDGES:
        raise IllegalTransitionError(f"replica {replica.key} {replica.state} -> {target}")
    return replace(replica, state=target, version=replica.version + 1, **changes)


def with_next_version(replica: Replica) -> Replica:
    """Return the replica unchanged but for its version.

    A commit that includes it fails if another writer changed the replica since it was loaded; the
    event is then judged again.
    """
    return replace(replica, version=replica.version + 1)
