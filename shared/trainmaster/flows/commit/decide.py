"""Load what an event reads, and judge it. What the rules read is different for each kind of event (`Event.reads`)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainmaster.core.decisions import Decision
from trainmaster.core.events import Event, Reads, ReplicaExited
from trainmaster.core.evolve import changes_whole_attempt
from trainmaster.core.model.replica import replica_key
from trainmaster.core.rules.attribution import may_be_explained, start_of
from trainmaster.core.rules.judge import judge
from trainmaster.errors import PermanentError
from trainmaster.ports import Loaded, States


def decide(event: Event, now: datetime, store: States, known: Loaded | None) -> tuple[Loaded | None, Decision]:
    """Load what the event reads, and judge it. A change of the whole attempt is judged again with all of it.

    `known`: what the event reads, if it was read a moment ago. Raises PermanentError if the event's job does not exist.
    """
    loaded = _load(event.job_id, event.reads, store, known)
    decision = judge(loaded.state if loaded else None, event, now)
    if loaded is not None and isinstance(event, ReplicaExited) and event.reads.lost_peers:
        loaded, decision = _read_lost_peers(loaded, decision, event, now, store)
    if loaded is not None and changes_whole_attempt(loaded.state.job, decision.action):
        loaded = store.load_attempt(event.job_id)
        decision = judge(loaded.state if loaded else None, event, now)
    return loaded, decision


def _read_lost_peers(
    loaded: Loaded, decision: Decision, event: ReplicaExited, now: datetime, store: States
) -> tuple[Loaded, Decision]:
    """Read lost peers of the replica until one of them explains its exit, and return the decision with them.

    After one loss in a gang of N, each of the N exits reads one peer. A peer that is lost at the same time is found
    by `trainmaster.core.rules.explained_charge`.
    """
    state = loaded.state
    replica = state.find(event.subject.attempt, event.subject.replica_id)
    if replica is None or not may_be_explained(decision):
        return loaded, decision
    for page in store.lost_peers(event.job_id, replica, start_of(replica, event)):
        known = {peer.key for peer in state.replicas}
        state = replace(state, replicas=(*state.replicas, *(peer for peer in page if peer.key not in known)))
        decision = judge(state, event, now)
        if not may_be_explained(decision):
            break
    return replace(loaded, state=state), decision


def _load(job_id: str, reads: Reads, store: States, known: Loaded | None) -> Loaded | None:
    if reads.whole_attempt:
        loaded = store.load_attempt(job_id)
    else:
        loaded = known or store.load(job_id, reads.replica_key)
        if reads.of_current_attempt:
            loaded = _load_current_attempt(loaded, job_id, reads, store)
        if reads.primary and loaded is not None:
            loaded = _with_primary(loaded, store)
    if loaded is None and reads.requires_job:
        raise PermanentError(f"there is no job {job_id}")
    return loaded


def _load_current_attempt(loaded: Loaded | None, job_id: str, reads: Reads, store: States) -> Loaded | None:
    """Load the replica of the current attempt. The job may be rerun between two reads, so this may take several."""
    attempt = reads.attempt
    while loaded is not None and loaded.state.job.attempt > attempt:
        attempt = loaded.state.job.attempt
        loaded = store.load(job_id, replace(reads, attempt=attempt).replica_key)
    return loaded


def _with_primary(loaded: Loaded, store: States) -> Loaded:
    """Return what was loaded and the primary.

    The primary is read after the replica and is not part of the commit. This is safe because an outdated completion
    stays outdated until the replica runs again.
    """
    job = loaded.state.job
    primary = store.load(job.job_id, replica_key(job.attempt, job.plan.primary))
    others = primary.state.replicas if primary else ()
    return replace(loaded, state=replace(loaded.state, replicas=(*loaded.state.replicas, *others)))
