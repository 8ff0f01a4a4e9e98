"""A slice of several hosts is one replica: ready or completed when all hosts are, failed when one is."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from tests.support.jobs import a_job, a_plan, at, exited, ready
from trainmaster.core.decisions import Reason, Rule
from trainmaster.core.events import Event
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.plan import TaskGroup, Tpu
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.rules.judge import judge

SLICE = ReplicaId(TaskType.CHIEF, 0)
HOSTS = 4
PLAN = a_plan(groups=(TaskGroup(TaskType.CHIEF, 1, "", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=HOSTS)),))


def a_slice(job_state: JobState = JobState.RUNNING, **replica: object) -> State:
    return State(a_job(job_state, PLAN), (replace(Replica(1, SLICE), **replica),), whole=True)  # type: ignore[arg-type]


def of_host(host: int, event: Event) -> Event:
    return replace(event, subject=replace(event.subject, host=host))  # type: ignore[union-attr, arg-type]


def after(state: State, *events: Event) -> State:
    """Return the state after the events. Each key is judged once, as with a ledger."""
    judged: set[str] = set()
    for event in events:
        if event.key not in judged:
            judged.add(event.key)
            state = apply(state, evolve(state, judge(state, event, at(60)), at(60)))
    return state


@pytest.mark.parametrize("order", list(permutations(range(HOSTS)))[::5])
def test_slice_is_ready_when_the_last_host_is_in_any_order_and_despite_repetitions(order: tuple[int, ...]) -> None:
    reports = [of_host(host, ready(SLICE)) for host in order[:-1]]
    waiting = after(a_slice(JobState.PREPARING), *reports, *reports)
    assert waiting.replicas[0].state is ReplicaState.WAITING
    complete = after(waiting, of_host(order[-1], ready(SLICE)))
    assert complete.replicas[0].state is ReplicaState.RUNNING


@pytest.mark.parametrize("order", list(permutations(range(HOSTS)))[::5])
def test_slice_completes_when_the_last_host_exits_0(order: tuple[int, ...]) -> None:
    done = [of_host(host, exited(SLICE, 0)) for host in order]
    partly_done = after(a_slice(state=ReplicaState.RUNNING), *done[:-1], *done[:-1])
    assert (partly_done.job.state, len(partly_done.replicas[0].hosts_done)) == (JobState.RUNNING, HOSTS - 1)
    assert after(partly_done, done[-1]).job.state is JobState.SUCCEEDED


def test_failures_of_several_hosts_restart_the_slice_and_are_charged_once() -> None:
    state = a_slice(state=ReplicaState.RUNNING)
    failed = [of_host(host, exited(SLICE, 1)) for host in (2, 0, 3)]
    (replica,) = after(state, of_host(1, exited(SLICE, 0)), *failed).replicas
    assert (replica.state, replica.incarnation, replica.restarts_used) == (ReplicaState.RESTARTING, 2, 1)
    assert replica.hosts_done == ()


def test_report_of_a_host_about_an_older_incarnation_is_ignored() -> None:
    state = a_slice(state=ReplicaState.RESTARTING, incarnation=2)
    for event in (of_host(0, exited(SLICE, 0)), of_host(0, ready(SLICE)), of_host(0, exited(SLICE, 1))):
        decision = judge(state, event, at(60))
        assert (decision.rule, decision.reason) == (Rule.STALE, Reason.OLD_INCARNATION)


def test_exits_0_have_a_key_per_host_and_failures_one_key_per_slice() -> None:
    assert of_host(0, exited(SLICE, 0)).key != of_host(1, exited(SLICE, 0)).key
    assert of_host(0, exited(SLICE, 1)).key == of_host(1, exited(SLICE, 1)).key
    assert of_host(0, ready(SLICE)).key != of_host(1, ready(SLICE)).key


def test_host_that_exited_0_runs_again_in_the_next_incarnation() -> None:
    done = of_host(0, exited(SLICE, 0))
    again = after(a_slice(state=ReplicaState.RUNNING), done, of_host(1, exited(SLICE, 1)))
    twice = [of_host(host, exited(SLICE, 0, incarnation=2)) for host in range(HOSTS)]
    assert after(again, *twice[1:]).job.state is JobState.RUNNING
    assert after(again, *twice).job.state is JobState.SUCCEEDED
