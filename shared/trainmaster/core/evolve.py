"""The only place where stored state changes.

`evolve` computes from state, decision and `now` what to write.

Pure and deterministic: folding a job's ledger through `evolve` rebuilds its stored state. The
families of actions are in `trainmaster.core.transitions`, together with the tables of the allowed
edges.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import (
    AcceptJob,
    BeginPreparing,
    ContinueProvisioning,
    Ignore,
    JobAction,
    ReplicaAction,
    RerunJob,
)
from trainmaster.core.decisions import Decision
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import recall
from trainmaster.core.rules.kept_machines import keeps_machines
from trainmaster.core.transitions.change import Change, Effect, IllegalTransitionError
from trainmaster.core.transitions.job_actions import accept_job, change_job
from trainmaster.core.transitions.kept_machines import ended_set
from trainmaster.core.transitions.replica_actions import change_replica
from trainmaster.core.transitions.trial_actions import change_trial


def evolve(state: State | None, decision: Decision, now: datetime) -> Change:
    """Return the change that the decision makes.

    `state` is None only for AcceptJob. `state` holds the whole attempt if `changes_whole_attempt`
    is true. Raises IllegalTransitionError for a decision that does not fit the state.
    """
    change = _change(state, decision, now)
    return replace(change, effects=_effects(state, change))


def apply(state: State, change: Change) -> State:
    """Return the loaded part of the state after the change.

    Replicas of a new attempt replace the old ones.
    """
    return recall(store(state, change))


def store(state: State, change: Change) -> State:
    """Like `apply`, but with the replicas as they are stored, before `recall`."""
    job = change.job or state.job
    written = {replica.key: replica for replica in change.replicas}
    kept = [written.pop(replica.key, replica) for replica in state.replicas]
    replicas = tuple(
        replica for replica in (*kept, *written.values()) if replica.attempt == job.attempt
    )
    return replace(
        state, job=job, replicas=replicas, machine_set=change.machines or state.machine_set
    )


def changes_whole_attempt(job: Job, decision: Decision) -> bool:
    """Whether the decision concerns all replicas, so that `evolve` needs the whole attempt: a
    rerun, another zone, or an end after which machines are kept.
    """
    action = decision.action
    if keeps_machines(job, decision):
        return True
    if isinstance(action, BeginPreparing):
        return action.taken is not None
    if isinstance(action, ContinueProvisioning):
        return action.zone_index != job.placement.zone_index
    return isinstance(action, RerunJob)


def _change(state: State | None, decision: Decision, now: datetime) -> Change:
    action = decision.action
    if isinstance(action, AcceptJob):
        return accept_job(action.job, now)
    if state is None:
        raise IllegalTransitionError(f"{action.kind} without a job")
    if isinstance(action, Ignore):
        return Change()
    if isinstance(action, JobAction):
        return _with_machines(state, change_job(state, action, now), decision, now)
    if isinstance(action, ReplicaAction):
        return change_replica(state, action, now)
    return change_trial(state, action)


def _with_machines(state: State, change: Change, decision: Decision, now: datetime) -> Change:
    """Add what becomes of the machine set, if its holder ends."""
    ended = change.job
    has_ended = ended is not None and ended.state.is_terminal and not state.job.state.is_terminal
    if ended is None or not has_ended or ended.machines is None:
        return change
    machines = ended_set(state, ended, now, keeps=keeps_machines(state.job, decision))
    return replace(change, machines=machines)


def _effects(before: State | None, change: Change) -> tuple[Effect, ...]:
    """Return what must be published after the commit.

    A tuning job has trials in place of VMs. A trial notifies its tuning job of each change of its
    state. Subscribers are notified last, because no job waits for them.
    """
    job = change.job or (before.job if before else None)
    if job is None:
        return ()
    notices = (Effect.NOTIFY,) if _is_job_transition(before, job) else ()
    if job.tuning is not None:
        return (Effect.TUNE, *notices) if change.effects else notices
    if job.trial_of is not None and before is not None and before.job.state is not job.state:
        return (*change.effects, Effect.TUNE, *notices)
    return (*change.effects, *notices)


def _is_job_transition(before: State | None, job: Job) -> bool:
    """Whether the job is new, or its state or attempt has changed."""
    if before is None:
        return True
    return (before.job.state, before.job.attempt) != (job.state, job.attempt)
