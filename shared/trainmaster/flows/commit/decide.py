"""Load what an event reads, and judge it: the first half of `record`, which then commits.

What the rules read is different for each kind of event (`Event.reads`). An attempt is one run of
the whole job; a rerun begins the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import Action, SucceedJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import Event, Reads, ReplicaExited
from trainmaster.core.evolve import changes_whole_attempt
from trainmaster.core.ledger import excused_restarts
from trainmaster.core.model.job import Job, State
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import EXCUSE_MAX
from trainmaster.errors import PermanentError
from trainmaster.ports import Loaded, States, Store


def decide(
    event: Event, clock: Callable[[], datetime], store: Store, known: Loaded | None
) -> tuple[Loaded | None, Decision, datetime]:
    """Load what the event reads, and judge it. Return both, and the time of the decision.

    Most events are judged once, by the job and one replica. Some are judged again, with more:

    - If a replica has no restarts left, the ledger shows which of its restarts do not count,
      because the loss of a VM explains them (excused restarts).
    - If the decision changes all replicas of the attempt, all of them are loaded. The same holds
      for a success with notes, which name the replicas that still run.

    The clock is read after the state: a function may be suspended for minutes before it reads, and
    a decision must not be older than the state that it is about.

    `known`: what the event reads, if the caller has just read it. Raises PermanentError if the
    event's job does not exist.
    """
    loaded = _load(event.job_id, event.reads, store, known)
    now = clock()
    decision = judge(loaded.state if loaded else None, event, now)
    if loaded is not None and isinstance(event, ReplicaExited) and _has_spent_restarts(decision):
        loaded = _with_excused(loaded, event, store)
        decision = judge(loaded.state, event, now)
    if loaded is not None and _lacks_replicas(loaded.state, decision):
        excused = loaded.state.excused
        loaded = store.load_attempt(event.job_id)
        now = clock()
        if loaded is not None:
            loaded = replace(loaded, state=replace(loaded.state, excused=excused))
        decision = judge(loaded.state if loaded else None, event, now)
    return loaded, decision, now


def _lacks_replicas(state: State, decision: Decision) -> bool:
    """Whether the decision is about all replicas of the attempt, but not all were loaded."""
    is_about_all = changes_whole_attempt(state.job, decision) or _is_doubtful_success(
        state.job, decision.action
    )
    return is_about_all and not state.whole


def _has_spent_restarts(decision: Decision) -> bool:
    """Whether the job ends or reruns because a replica has no restarts left.

    Only for a replica that is judged alone. Replicas that start together have a rule of their own.
    """
    is_spent = decision.reason in (Reason.RESTARTS_SPENT, Reason.RERUNS_SPENT)
    return decision.rule is Rule.RESTART and is_spent


def _with_excused(loaded: Loaded, event: ReplicaExited, store: Store) -> Loaded:
    """Add the replica's restarts that do not count. The ledger since its first restart has them, or
    since `EXCUSE_MAX` before: the VM whose loss explains the restart may have been lost first.
    """
    replica = loaded.state.find(event.subject.attempt, event.subject.replica_id)
    if replica is None or not replica.restarts:
        return loaded
    entries = store.ledger_since(event.job_id, replica.restarts[0] - EXCUSE_MAX)
    excused = excused_restarts(replica, entries)
    return replace(loaded, state=replace(loaded.state, excused=excused))


def _is_doubtful_success(job: Job, action: Action) -> bool:
    """Whether the job succeeds with notes, and has other replicas that may still run."""
    is_doubtful = isinstance(action, SucceedJob) and bool(action.notes)
    return is_doubtful and len(job.plan.replica_ids) > 1


def _load(job_id: str, reads: Reads, store: States, known: Loaded | None) -> Loaded | None:
    if reads.whole_attempt:
        loaded = known or store.load_attempt(job_id)
    else:
        loaded = known or store.load(job_id, reads.replica_key)
        if reads.of_current_attempt:
            loaded = _load_current_attempt(loaded, job_id, reads, store)
    if loaded is None and reads.requires_job:
        raise PermanentError(f"there is no job {job_id}")
    return loaded


def _load_current_attempt(
    loaded: Loaded | None, job_id: str, reads: Reads, store: States
) -> Loaded | None:
    """Load the replica of the current attempt.

    The job may be rerun between two reads, so this may take several.
    """
    attempt = reads.attempt
    while loaded is not None and loaded.state.job.attempt > attempt:
        attempt = loaded.state.job.attempt
        loaded = store.load(job_id, replace(reads, attempt=attempt).replica_key)
    return loaded
