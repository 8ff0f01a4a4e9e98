"""The one commit that every event goes through.

    load ──► judge ──► evolve ──► commit (state + ledger entry) ──► publish the effects
      ▲                              │                              ──► write the job's log
      │                              │ conflict with another writer: again, from load
      └──────────────────────────────┘ entry exists: judged before, perhaps not published yet

A crash before the commit leaves nothing. After a crash between commit and publication, the
redelivered event finds its entry and publishes the effects, or the sweep (every minute) does.
Notifications and a job's log are for people and other systems: an error while writing them delays
nothing.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from trainmaster.core.actions import (
    Action,
    BeginRound,
    Ignore,
    RecordCompletion,
    ReplaceVm,
    StopRound,
)
from trainmaster.core.decisions import Decision
from trainmaster.core.events import Event, JobSubmitted, MachinesLost, ReplicaEvent
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.ledger import LedgerEntry, counters
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import has_channel
from trainmaster.core.model.tuning import tuning_job_id
from trainmaster.core.reporting.job_log import service_lines
from trainmaster.core.rules.admission_queue import Limits
from trainmaster.core.rules.evidence import round_end
from trainmaster.core.transitions.change import Change, Effect
from trainmaster.errors import ConflictError, TemporaryError
from trainmaster.flows.commit.decide import decide
from trainmaster.flows.commit.notify import notify
from trainmaster.messaging import internal_requests, topics
from trainmaster.ports import (
    MACHINES,
    AdmissionToken,
    Advisor,
    AlreadyRecordedError,
    Bus,
    Clock,
    JobLog,
    Ledgers,
    Loaded,
    LoadedSet,
    Store,
)

TRIES: Final = 12
"""Conflicts before the message is left to its redelivery.

With 16 writers on one document the slowest needed 9.
"""

CONFLICT_PAUSE_MIN_S: Final = 0.02
CONFLICT_PAUSE_MAX_S: Final = 1.0
"""Bounds of the pause after a conflict, which doubles: the times of one commit and of many."""

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
    """Where transitions of jobs are published for subscribers; None: nowhere.

    It raises nothing but TemporaryError.
    """
    leaves_notifications: bool = False
    """Without `notifications`: True leaves them to the sweep, False drops them.

    A command on a user's machine does not know whether its installation publishes any.
    """
    job_log: JobLog | None = None
    """Where Trainmaster's own lines of a job's log are written; None: nowhere."""
    advisor: Advisor | None = None
    """None: searches for capacity know only what requests have found."""
    limits: Limits = field(default_factory=dict)
    """The limits of all jobs together."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The ledger entry of an event."""

    entry: LedgerEntry
    """The entry; it is not stored if its decision is provisional."""
    is_new: bool
    """False if the event had been judged before."""
    job: Job | None = None
    """The job as it was when the event was judged; None: the job did not exist."""
    loaded: Loaded | None = None
    """The state that was read, with the change of a new entry; its tokens are those of the read."""


def record(
    event: Event,
    deps: Deps,
    admission_token: AdmissionToken | None = None,
    loaded: Loaded | None = None,
    taken: LoadedSet | None = None,
) -> Recorded:
    """Judge the event, commit what follows exactly once, and publish the effects. Safe to repeat.

    With an `admission_token`, the commit succeeds only if no other admission was committed since
    the token was read. `loaded` is what the event reads, if it was read a moment ago; the first try
    uses it instead of reading it again. With `taken`, a set of machines that an earlier job kept
    and this one takes, the commit succeeds only if the set is unchanged since it was read.

    Raises PermanentError if the event's job does not exist, and ConflictError if other writers kept
    winning.
    """
    recorded = _commit(event, deps, admission_token, loaded, taken)
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
    if _loses_vm(entry.decision.action) and recorded.job is not None and recorded.job.plan.keep_s:
        _keep_no_lost_vm(event, deps)
    return recorded


def publish(entry: LedgerEntry, bus: Bus) -> None:
    """Publish the requests that carry out the effects of a ledger entry."""
    for effect in entry.effects:
        match effect:
            case Effect.PROVISION:
                request = internal_requests.ProvisionRequest(entry.job_id, entry.key)
                bus.publish(
                    topics.PROVISION, internal_requests.encode_provision(request), attributes={}
                )
            case Effect.TUNE:
                tune_request = internal_requests.TuneRequest(tuning_job_id(entry.job_id))
                bus.publish(topics.TUNE, internal_requests.encode_tune(tune_request), attributes={})
            case Effect.NOTIFY:
                pass  # has its own state: `notify`


def _loses_vm(action: Action) -> bool:
    """Whether the action takes a VM from its replica, and changes no other document."""
    return isinstance(action, ReplaceVm) or (
        isinstance(action, RecordCompletion) and action.is_vm_lost
    )


def _keep_no_lost_vm(event: Event, deps: Deps) -> None:
    """Remove the VM that the event has taken from its replica from the kept machines of its job, if
    the job has ended since it was read.

    The loss of a replica that is judged alone changes only this replica's document, so it does not
    conflict with the end of the job. After a crash this is repeated, because the event is delivered
    again.
    """
    loaded = deps.store.load(event.job_id)
    machines = loaded.state.machine_set if loaded and loaded.state.keeps_machines else None
    if machines is None or not isinstance(event, ReplicaEvent):
        return
    lost = event.subject.vm.instance_id
    if any(vm.instance_id == lost for vm in machines.vms):
        record(MachinesLost(machines.holder, (lost,), machines.version, deps.clock()), deps)


def _write_job_log(entry: LedgerEntry, job_log: JobLog | None) -> None:
    """Write the entry's lines, also for a repeated event: the first time may have ended between the
    commit and here.
    """
    lines = service_lines(entry)
    if job_log is None or not lines:
        return
    try:
        job_log.write(lines)
    except TemporaryError as error:
        _log.warning(
            "could not write to the job's log: %s",
            error,
            extra={"job_id": entry.job_id, "event": entry.key},
        )


def _commit(
    event: Event,
    deps: Deps,
    admission_token: AdmissionToken | None,
    known: Loaded | None,
    taken: LoadedSet | None,
) -> Recorded:
    for retry in range(TRIES):
        loaded, decision, now = decide(event, deps.clock, deps.store, None if retry else known)
        if loaded and taken:
            loaded = replace(loaded, tokens={**loaded.tokens, MACHINES: taken.token})
        state = loaded.state if loaded else None
        job = state.job if state else None
        change = _with_secrets(evolve(state, decision, now), event)
        drops_notifications = deps.notifications is None and not deps.leaves_notifications
        if drops_notifications:
            change = replace(
                change,
                effects=tuple(effect for effect in change.effects if effect is not Effect.NOTIFY),
            )
        entry = _ledger_entry(event, decision, state, change, now)
        if decision.is_provisional:
            # Not stored: a later event with the same key must be judged, too.
            return Recorded(entry, is_new=True, job=job)
        try:
            deps.store.commit(loaded, entry, change, admission_token)
        except AlreadyRecordedError:
            return _recorded_before(event, job, deps.store)
        except ConflictError:
            # The caller's own choice is outdated: which jobs to admit, or which machines to take.
            if admission_token is not None or taken is not None:
                raise
            jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads writers, keeps no secret
            deps.sleep(jitter * min(CONFLICT_PAUSE_MIN_S * 2**retry, CONFLICT_PAUSE_MAX_S))
            continue
        after = replace(loaded, state=apply(loaded.state, change)) if loaded else None
        return Recorded(entry, is_new=True, job=job, loaded=after)
    raise ConflictError(f"{event.job_id}: {event.key} lost {TRIES} races")


def _with_secrets(change: Change, event: Event) -> Change:
    """Draw the secrets of a new job: of the channel between its agents, and of its time as the
    holder of machines that jobs share.

    They go into the job's document, and not into the ledger.
    """
    job = change.job
    if not isinstance(event, JobSubmitted) or job is None:
        return change
    if has_channel(job.plan):
        job = replace(job, channel_key=secrets.token_hex(32))
    if job.machines is not None:
        job = replace(job, machines=replace(job.machines, key=secrets.token_hex(16)))
    return replace(change, job=job)


def _ledger_entry(
    event: Event, decision: Decision, state: State | None, change: Change, now: datetime
) -> LedgerEntry:
    key = _judged_replica(event, decision)
    job = change.job or (state.job if state else None)
    end = round_end(state, event) if state and not isinstance(decision.action, Ignore) else None
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
        round=end.round if end else None,
        rank=end.rank if end else None,
        ended_at=end.ended_at if end else None,
    )


def _judged_replica(event: Event, decision: Decision) -> str | None:
    """Return the key of the replica whose budgets the entry shows: for a verdict, of the member
    that it charges.
    """
    return (
        decision.action.replica
        if isinstance(decision.action, BeginRound | StopRound)
        else event.reads.replica_key
    )


def _recorded_before(event: Event, job: Job | None, store: Ledgers) -> Recorded:
    entry = store.entry(event.job_id, event.key)
    if entry is None:
        raise ConflictError(f"{event.job_id}: ledger entry {event.key} exists and cannot be read")
    return Recorded(entry, is_new=False, job=job)
