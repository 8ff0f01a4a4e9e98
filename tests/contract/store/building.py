"""Jobs and ledger entries for the contract of the Store.

A replica is stored under a key that begins with its attempt: `1-worker-0`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tests.support.jobs import START, a_job, at, change_plan
from trainmaster.core.events import JobSubmitted, ReplicaExited, VmLost, VmReady
from trainmaster.core.evolve import evolve
from trainmaster.core.ledger import LedgerEntry, counters
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.rules.judge import judge
from trainmaster.core.transitions.change import Change
from trainmaster.ports import Loaded, Store

T = TypeVar("T")


def submit(store: Store, job: Job | None = None) -> Job:
    """Store the job; the default: one with VMs, whose replicas are judged each alone, so that each
    exit changes its replica.
    """
    if job is None:
        job = a_job(JobState.PREPARING)
        job = replace(job, plan=change_plan(job.plan, independent=True))
    event = JobSubmitted(job, START)
    decision = judge(None, event, START)
    change = evolve(None, decision, START)
    after = counters(None, None)
    store.commit(
        None,
        LedgerEntry(
            job.job_id,
            event.key,
            START,
            event,
            decision,
            after,
            after,
            job_state=job.state,
            effects=change.effects,
        ),
        change,
    )
    return job


def entry_of(state: State, event: ReplicaExited | VmLost | VmReady) -> tuple[LedgerEntry, Change]:
    """Judge the event on the state. Return the ledger entry and the change that a flow commits."""
    decision = judge(state, event, at(100))
    change = evolve(state, decision, at(100))
    before = counters(state, "1-worker-0")
    job_state = (change.job or state.job).state
    entry = LedgerEntry(
        "digits_1",
        event.key,
        at(100),
        event,
        decision,
        before,
        before,
        job_state=job_state,
        effects=change.effects,
    )
    return entry, change


def load_with_worker_0(store: Store) -> Loaded:
    """Read the job with worker 0 of its first attempt."""
    return must(store.load("digits_1", "1-worker-0"))


def must(found: T | None) -> T:
    """Return what was found. It must be there."""
    assert found is not None
    return found
