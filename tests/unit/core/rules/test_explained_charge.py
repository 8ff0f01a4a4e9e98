"""Charges that a loss explains although they were judged before it, or beside it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from tests.support.decisions import action_of
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_charged_exit,
    a_job,
    a_lost_vm,
    a_plan,
    a_replica,
    a_state,
    at,
    exited,
    lost,
)
from trainmaster.core.actions import Ignore, RefundCharge
from trainmaster.core.events import ChargeExplained, Event
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.exit_policy import Blame
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.rules.explained_charge import explained_charges
from trainmaster.core.rules.judge import judge

NOW = at(500)


def charged(replica_id: ReplicaId, seconds: float = 100, blame: Blame = Blame.PEER) -> Replica:
    past = (a_charged_exit(seconds, blame=blame),)
    changes = {"incarnation": 2, "restarts_used": 1, "lost_at": at(seconds), "past": past}
    return a_replica(replica_id, ReplicaState.RESTARTING, **changes)


LOST = a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, lost_at=at(110), past=(a_lost_vm(110),))
"""Worker 0, whose VM was lost after its peers had failed."""


def explained(state: State) -> dict[ReplicaId, ReplicaId]:
    """Return the charged replicas, each with the peer whose loss explains its exit."""
    return {replica.replica_id: cause.replica_id for replica, _, cause in explained_charges(state)}


def test_every_charge_that_a_loss_explains_is_named() -> None:
    past = (a_charged_exit(90, back_at=at(91)), a_charged_exit(100, 2, started_at=at(91)))
    twice = replace(charged(CHIEF), incarnation=3, restarts_used=2, past=past)
    charges = [(ended.number, cause.replica_id) for _, ended, cause in explained_charges(a_state(twice, LOST))]
    assert charges == [(1, WORKER_0), (2, WORKER_0)]


def test_exit_of_its_own_fault_before_the_loss_is_not_explained() -> None:
    assert explained(a_state(charged(CHIEF, blame=Blame.OWN), LOST)) == {}


def test_first_of_several_unexplained_exits_stays_charged() -> None:
    state = a_state(charged(CHIEF, 101), charged(WORKER_0, 100), charged(WORKER_1, 100))
    assert explained(state) == {CHIEF: WORKER_0, WORKER_1: WORKER_0}


def test_nothing_is_refunded_after_the_jobs_end() -> None:
    assert explained(a_state(charged(CHIEF), LOST, job=a_job(JobState.FAILED))) == {}


def test_independent_replicas_explain_nothing() -> None:
    job = a_job(plan=a_plan(independent=True))
    assert explained(a_state(charged(CHIEF), LOST, job=job)) == {}


def explain(state: State, *, incarnation: int = 1) -> ChargeExplained:
    return ChargeExplained(state.job.job_id, 1, CHIEF, incarnation, WORKER_0, NOW)


def test_explained_charge_is_refunded_once() -> None:
    state = a_state(charged(CHIEF), LOST)
    decision = judge(state, explain(state), NOW)
    assert action_of(decision, RefundCharge) == RefundCharge("1-chief-0", 1, "1-worker-0")
    assert "worker 0" in decision.text
    after = apply(state, evolve(state, decision, NOW))
    chief = after.find(1, CHIEF)
    assert chief is not None
    assert (chief.restarts_used, chief.collateral, chief.state) == (0, 1, ReplicaState.RESTARTING)
    assert not any(ended.is_charged for ended in chief.past)
    assert isinstance(judge(after, explain(after), NOW).action, Ignore)


def test_explanation_of_another_incarnation_or_attempt_is_ignored() -> None:
    state = a_state(charged(CHIEF), LOST)
    assert isinstance(judge(state, explain(state, incarnation=2), NOW).action, Ignore)
    rerun = replace(state, job=replace(state.job, attempt=2))
    assert isinstance(judge(rerun, explain(rerun), NOW).action, Ignore)


PEERS_FAIL = (exited(CHIEF, 1, seconds=101), exited(WORKER_1, 1, seconds=102))
"""Two replicas exit without evidence of their own fault."""


@pytest.mark.parametrize(
    ("cause", "charges"),
    [(lost(WORKER_0, seconds=105), 0), (exited(WORKER_0, signal=9, seconds=100), 1)],
    ids=["lost VM", "failure"],
)
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_charges_do_not_depend_on_the_order_in_which_events_are_judged(
    cause: Event, charges: int, order: tuple[int, ...]
) -> None:
    state = a_state()
    events = (cause, *PEERS_FAIL)
    for event in (events[number] for number in order):
        state = apply(state, evolve(state, judge(state, event, NOW), NOW))
        for replica, ended, peer in tuple(explained_charges(state)):
            job_id, replica_id = state.job.job_id, replica.replica_id
            refund = ChargeExplained(job_id, replica.attempt, replica_id, ended.number, peer.replica_id, NOW)
            state = apply(state, evolve(state, judge(state, refund, NOW), NOW))
    used = {replica.replica_id: replica.restarts_used for replica in state.replicas}
    assert used == {CHIEF: 0, WORKER_0: charges, WORKER_1: 0}
