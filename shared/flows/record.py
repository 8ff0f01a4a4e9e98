"""The one commit that every event goes through.

    load ──► judge ──► evolve ──► commit (state + ledger entry) ──► publish the effects ──► write the job's log
      ▲                              │ conflict with another writer: again, from load
      └──────────────────────────────┘ entry exists: judged before; its effects may still be unpublished

A crash before the commit leaves nothing. After a crash behind the commit, the redelivered event finds its entry and
publishes the effects, or the sweep does. Notifications and a job's log are for people and other systems: an error while
writing them delays nothing.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from shared.core.decisions import Decision
from shared.core.events import Event, Reads, ReplicaExited
from shared.core.evolve import apply, changes_whole_attempt, evolve
from shared.core.intake.named_resources import AllowedResources
from shared.core.ledger import LedgerEntry, counters
from shared.core.model.job import Job, State
from shared.core.model.replica import replica_key
from shared.core.model.tuning import tuning_job_id
from shared.core.reporting.job_log import service_lines
from shared.core.rules.admission_queue import Limits
from shared.core.rules.attribution import may_be_explained, start_of
from shared.core.rules.judge import judge
from shared.core.transitions.change import Change, Effect
from shared.errors import ConflictError, PermanentError, TemporaryError
from shared.flows.notify import notify
from shared.messaging import internal_requests, topics
from shared.ports import AdmissionToken, AlreadyRecordedError, Bus, Clock, JobLog, Loaded, Objects, Resources, Store

TRIES: Final = 12
"""Conflicts before the message is left to its redelivery. With 16 writers on one document the slowest needed 9."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deps:
    """The ports and settings of every flow."""

    store: Store
    bus: Bus
    clock: Clock
    sleep: Callable[[float], None]
    """Waits for a number of seconds."""
    notifications: Bus | None = None
    """Where transitions of jobs are published for subscribers; None: nowhere. It raises nothing but TemporaryError."""
    leaves_notifications: bool = False
    """Without `notifications`: whether they are left to the sweep, because this process is not part of the installation
    and does not know whether it publishes them."""
    job_log: JobLog | None = None
    """Where the service's lines are written; None: nowhere."""
    limits: Limits = field(default_factory=dict)
    """The limits of all jobs together."""
    allowed: AllowedResources = field(default_factory=AllowedResources)
    """Resources that every job may name."""
    objects: Callable[[], Objects] | None = None
    """Builds the port that looks up packages when a job is accepted; None: no look-up, which is for tests."""
    resources: Callable[[], Resources] | None = None
    """Builds the port that looks up a job's account, images and secrets; None: no look-up."""
    algorithms: str = ""
    """Address of the package of the built-in algorithms; empty: there is none."""
    messages_per_minute: int = 0
    """Most jobs created by messages and uploads within a minute; 0: no limit."""
    regions: tuple[str, ...] = ()
    """Regions in which the installation's network has a subnetwork; empty: not known."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The ledger entry of an event."""

    entry: LedgerEntry
    """Not stored if its decision is provisional."""
    is_new: bool
    """False if the event had been judged before."""
    job: Job | None = None
    """The job as it was when the event was judged; None: the job did not exist."""


def record(
    event: Event, deps: Deps, admission_token: AdmissionToken | None = None, loaded: Loaded | None = None
) -> Recorded:
    """Judge the event, commit what follows exactly once, and publish the effects. Safe to repeat.

    With an `admission_token`, the commit succeeds only if no other admission was committed since the token was read.
    `loaded` is what the event reads, if it was read a moment ago; the first try uses it instead of reading it again.
    Raises PermanentError if the event's job does not exist, and ConflictError if other writers kept winning.
    """
    recorded = _commit(event, deps, admission_token, loaded)
    entry = recorded.entry
    _log.info(
        entry.decision.text,
        extra={
            "job_id": entry.job_id,
            "event": entry.key,
            "rule": int(entry.decision.rule),
            "action": entry.decision.action.kind,
            "reason": entry.decision.reason.value,
            "duplicate": not recorded.is_new,
        },
    )
    if entry.is_pending:
        publish(entry, deps.bus)
    if deps.notifications is not None and entry.is_notification_pending:
        notify(entry, recorded.job, deps.notifications, deps.store, deps.clock)
    _write_job_log(entry, deps.job_log)
    return recorded


def publish(entry: LedgerEntry, bus: Bus) -> None:
    """Publish the requests that carry out the effects of a ledger entry."""
    for effect in entry.effects:
        match effect:
            case Effect.PROVISION:
                request = internal_requests.ProvisionRequest(entry.job_id, entry.key)
                bus.publish(topics.PROVISION, internal_requests.encode_provision(request), {})
            case Effect.TUNE:
                tune_request = internal_requests.TuneRequest(tuning_job_id(entry.job_id))
                bus.publish(topics.TUNE, internal_requests.encode_tune(tune_request), {})
            case Effect.NOTIFY:
                pass  # has its own state: `notify`


def _write_job_log(entry: LedgerEntry, job_log: JobLog | None) -> None:
    """Write the entry's lines, also for a repeated event: the first time may have ended between the commit and here."""
    lines = service_lines(entry)
    if job_log is None or not lines:
        return
    try:
        job_log.write(lines)
    except TemporaryError as error:
        _log.warning("could not write to the job's log: %s", error, extra={"job_id": entry.job_id, "event": entry.key})


def _commit(event: Event, deps: Deps, admission_token: AdmissionToken | None, known: Loaded | None) -> Recorded:
    now = deps.clock()
    for retry in range(TRIES):
        loaded, decision = _decide(event, now, deps.store, None if retry else known)
        state = loaded.state if loaded else None
        job = state.job if state else None
        change = evolve(state, decision, now)
        if deps.notifications is None and not deps.leaves_notifications:
            change = replace(change, effects=tuple(effect for effect in change.effects if effect is not Effect.NOTIFY))
        entry = _ledger_entry(event, decision, state, change, now)
        if decision.is_provisional:
            return Recorded(entry, is_new=True, job=job)  # not stored: a later event with the same key must be judged
        try:
            deps.store.commit(loaded, entry, change, admission_token)
        except AlreadyRecordedError:
            return _recorded_before(event, job, deps.store)
        except ConflictError:
            if admission_token is not None:
                raise
            jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads writers, keeps no secret
            deps.sleep(jitter * min(0.02 * 2**retry, 1.0))
            continue
        return Recorded(entry, is_new=True, job=job)
    raise ConflictError(f"{event.job_id}: {event.key} lost {TRIES} races")


def _decide(event: Event, now: datetime, store: Store, known: Loaded | None) -> tuple[Loaded | None, Decision]:
    """Load what the event reads, and judge it. A change of the whole attempt is judged again with all of it."""
    loaded = _load(event.job_id, event.reads, store, known)
    decision = judge(loaded.state if loaded else None, event, now)
    if loaded is not None and isinstance(event, ReplicaExited) and event.reads.lost_peers:
        loaded, decision = _read_lost_peers(loaded, decision, event, now, store)
    if loaded is not None and changes_whole_attempt(loaded.state.job, decision.action):
        loaded = store.load_attempt(event.job_id)
        decision = judge(loaded.state if loaded else None, event, now)
    return loaded, decision


def _read_lost_peers(
    loaded: Loaded, decision: Decision, event: ReplicaExited, now: datetime, store: Store
) -> tuple[Loaded, Decision]:
    """Read lost peers of the replica until one of them explains its exit, and return the decision with them.

    After one loss in a gang of N, each of the N exits reads one peer. A peer that is lost beside this reading is found
    by `shared.core.rules.explained_charge`.
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


def _load(job_id: str, reads: Reads, store: Store, known: Loaded | None) -> Loaded | None:
    if reads.whole_attempt:
        loaded = store.load_attempt(job_id)
    else:
        loaded = known or store.load(job_id, reads.replica_key)
        if reads.of_present_attempt:
            loaded = _load_present_attempt(loaded, job_id, reads, store)
        if reads.primary and loaded is not None:
            loaded = _with_primary(loaded, store)
    if loaded is None and reads.requires_job:
        raise PermanentError(f"there is no job {job_id}")
    return loaded


def _load_present_attempt(loaded: Loaded | None, job_id: str, reads: Reads, store: Store) -> Loaded | None:
    """Load the replica of the present attempt. The job may be rerun between two reads, so this may take several."""
    attempt = reads.attempt
    while loaded is not None and loaded.state.job.attempt > attempt:
        attempt = loaded.state.job.attempt
        loaded = store.load(job_id, replace(reads, attempt=attempt).replica_key)
    return loaded


def _with_primary(loaded: Loaded, store: Store) -> Loaded:
    """Return what was loaded and the primary.

    The primary is read after the replica and is not part of the commit. This is safe because an outdated completion
    stays outdated until the replica runs again.
    """
    job = loaded.state.job
    primary = store.load(job.job_id, replica_key(job.attempt, job.plan.primary))
    others = primary.state.replicas if primary else ()
    return replace(loaded, state=replace(loaded.state, replicas=(*loaded.state.replicas, *others)))


def _ledger_entry(event: Event, decision: Decision, state: State | None, change: Change, now: datetime) -> LedgerEntry:
    key = event.reads.replica_key
    job = change.job or (state.job if state else None)
    return LedgerEntry(
        job_id=event.job_id,
        key=event.key,
        at=now,
        event=event,
        decision=decision,
        before=counters(state, key),
        after=counters(apply(state, change) if state else None, key),
        effects=change.effects,
        job_state=job.state if job else None,
    )


def _recorded_before(event: Event, job: Job | None, store: Store) -> Recorded:
    entry = store.entry(event.job_id, event.key)
    if entry is None:
        raise ConflictError(f"{event.job_id}: ledger entry {event.key} exists and cannot be read")
    return Recorded(entry, is_new=False, job=job)
