"""The one-commit change that every event goes through.

    load ──► judge ──► evolve ──► commit (state + ledger entry) ──► publish what the entry wants ──► say it in the log
      ▲                              │ lost race: again, from load
      └──────────────────────────────┘ entry exists: judged before; what it wants may still be unpublished

A crash before the commit leaves nothing; after it, the redelivered event finds its entry and publishes, or the sweep
does. The job's log is for people: what cannot be said there is left out, and holds up nothing.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from shared.core.decisions import Decision, RerunJob
from shared.core.events import (
    CompletionOutdated,
    Event,
    JobSubmitted,
    ReplicaEvent,
    ReplicaExited,
    VmLost,
    VmsNotCreated,
    VmsQueued,
)
from shared.core.evolve import Change, apply, evolve
from shared.core.ledger import LedgerEntry, counters
from shared.core.model.job import State
from shared.core.model.replica import replica_key
from shared.core.model.tuning import study_of
from shared.core.reporting.job_log import lines_of
from shared.core.rules.admission_queue import Limits
from shared.core.rules.judge import judge
from shared.errors import ConflictError, PermanentError, TemporaryError
from shared.messaging import internal_requests, topics
from shared.ports import AdmissionToken, AlreadyRecordedError, Bus, Clock, JobLog, Loaded, Store

TRIES: Final = 12
"""Lost races before the message is given back to Pub/Sub. With 16 writers on one document the slowest needed 9."""

EFFECT_PROVISION: Final = "provision"
"""The job's machines."""
EFFECT_TUNE: Final = "tune"
"""The trials of the tuning job, or of the one that this job is a trial of."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deps:
    """What the flows of the light functions need. `sleep` takes seconds; without a `job_log` nothing is said there.
    `limits` are those of all jobs together."""

    store: Store
    bus: Bus
    clock: Clock
    sleep: Callable[[float], None]
    job_log: JobLog | None = None
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recorded:
    """`is_new` is False where the event had been judged before; then `entry` is what was said of it."""

    entry: LedgerEntry
    is_new: bool


def record(job_id: str, event: Event, deps: Deps, admission_token: AdmissionToken | None = None) -> Recorded:
    """Judge the event and write what follows, exactly once; publish what the write wants. Safe to repeat.

    With a `admission_token` it is written only if that is still the latest one, else ConflictError.
    """
    recorded = _commit(job_id, event, deps, admission_token)
    entry = recorded.entry
    _log.info(
        entry.decision.text,
        extra={
            "job_id": job_id,
            "event": entry.key,
            "rule": int(entry.decision.rule),
            "decision": entry.decision.kind,
            "reason": entry.decision.reason.value,
            "duplicate": not recorded.is_new,
        },
    )
    if entry.is_pending:
        publish(job_id, entry.effects, deps.bus)
    _say(entry, deps.job_log)
    return recorded


def publish(job_id: str, effects: Iterable[str], bus: Bus) -> None:
    """What carries the effects out, both of them level-triggered."""
    if EFFECT_PROVISION in effects:
        bus.publish(topics.PROVISION, internal_requests.encode_provision(job_id), {})
    if EFFECT_TUNE in effects:
        bus.publish(topics.TUNE, internal_requests.encode_tune(study_of(job_id)), {})


def _say(entry: LedgerEntry, job_log: JobLog | None) -> None:
    """For a repeated event too: the first time may have ended between the commit and here."""
    lines = lines_of(entry)
    if job_log is None or not lines:
        return
    try:
        job_log.write(lines)
    except TemporaryError as error:
        _log.warning("not said in the job's log: %s", error, extra={"job_id": entry.job_id, "event": entry.key})


def _commit(job_id: str, event: Event, deps: Deps, admission_token: AdmissionToken | None) -> Recorded:
    now = deps.clock()
    for nth in range(TRIES):
        loaded = _load(job_id, event, deps.store)
        state = loaded.state if loaded else None
        decision = judge(state, event, now)
        if isinstance(decision, RerunJob):
            loaded = deps.store.load_attempt(job_id)
            state = loaded.state if loaded else None
            decision = judge(state, event, now)
        change = evolve(state, decision, now)
        entry = _entry(job_id, event, decision, state, change, now)
        try:
            deps.store.commit(loaded, entry, change, admission_token)
        except AlreadyRecordedError:
            return _recorded_before(job_id, event.key, deps.store)
        except ConflictError:
            if admission_token is not None:
                raise
            jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads writers, keeps no secret
            deps.sleep(jitter * min(0.02 * 2**nth, 1.0))
            continue
        return Recorded(entry, is_new=True)
    raise ConflictError(f"{job_id}: {event.key} lost {TRIES} races")


def _load(job_id: str, event: Event, store: Store) -> Loaded | None:
    """What the judge may look at: peers for a failed exit and a lost VM, the primary for one that is done, everyone
    where capacity is refused."""
    if isinstance(event, JobSubmitted):
        return store.load(job_id)
    if isinstance(event, VmsNotCreated | VmsQueued):
        loaded = store.load_attempt(job_id)
    else:
        has_peers = isinstance(event, VmLost) or (isinstance(event, ReplicaExited) and not event.succeeded)
        loaded = store.load(job_id, _replica_of(event), lost_peers=has_peers)
        if isinstance(event, VmLost):
            loaded = _of_present_attempt(loaded, job_id, event, store)
        if isinstance(event, CompletionOutdated) and loaded is not None:
            loaded = _with_primary(loaded, store)
    if loaded is None:
        raise PermanentError(f"no job {job_id}")
    return loaded


def _of_present_attempt(loaded: Loaded | None, job_id: str, event: VmLost, store: Store) -> Loaded | None:
    """A machine outlives an attempt. The job may be rerun between two reads: each then asks for a later attempt."""
    asked = event.subject.attempt
    while loaded is not None and loaded.state.job.attempt > asked:
        asked = loaded.state.job.attempt
        loaded = store.load(job_id, replica_key(asked, event.subject.replica_id), lost_peers=True)
    return loaded


def _with_primary(loaded: Loaded, store: Store) -> Loaded:
    """Read after the other, and not written: what makes a completion outdated only ever comes about."""
    job = loaded.state.job
    primary = store.load(job.job_id, replica_key(job.attempt, job.plan.primary))
    others = primary.state.replicas if primary else ()
    return replace(loaded, state=replace(loaded.state, replicas=(*loaded.state.replicas, *others)))


def _entry(
    job_id: str, event: Event, decision: Decision, state: State | None, change: Change, now: datetime
) -> LedgerEntry:
    about = _replica_of(event)
    after = apply(state, change) if state else None
    return LedgerEntry(
        job_id=job_id,
        key=event.key,
        at=now,
        event=event,
        decision=decision,
        before=counters(state, about),
        after=counters(after, about),
        effects=_effects(state, change),
    )


def _effects(state: State | None, change: Change) -> tuple[str, ...]:
    """A tuning job wants trials where others want machines, and hears of each of its trials' states."""
    job = change.job or (state.job if state else None)
    if job is None:
        return ()
    if job.tuning is not None:
        return (EFFECT_TUNE,) if change.provision else ()
    is_news = job.trial_of is not None and state is not None and state.job.state is not job.state
    return (*((EFFECT_PROVISION,) if change.provision else ()), *((EFFECT_TUNE,) if is_news else ()))


def _recorded_before(job_id: str, key: str, store: Store) -> Recorded:
    entry = store.entry(job_id, key)
    if entry is None:
        raise ConflictError(f"{job_id}: ledger entry {key} exists and cannot be read")
    return Recorded(entry, is_new=False)


def _replica_of(event: Event) -> str | None:
    if isinstance(event, ReplicaEvent):
        return replica_key(event.subject.attempt, event.subject.replica_id)
    return None
