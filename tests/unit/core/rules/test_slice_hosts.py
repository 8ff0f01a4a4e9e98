"""A slice of several hosts is one replica: ready or completed when all hosts are, failed when one
is.

A slice is a TPU machine. Each of its hosts has an agent, which reports by itself. A *round* is a
common start of a job's members, here of the slice alone; after a failure the next one is *held*
until all hosts are ready again. Its key is attempt and number, such as `1-2`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from tests.support.jobs import a_job, a_plan, at, exited, ready
from trainmaster.core.events import Event
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.rules.judge import judge

SLICE = ReplicaId(TaskType.CHIEF, 0)
HOSTS = 4
SOME_ORDERS = list(permutations(range(HOSTS)))[::5]
"""Every fifth order of the hosts."""
PLAN = a_plan(
    groups=(
        TaskGroup(
            TaskType.CHIEF,
            1,
            machine_type="",
            tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=HOSTS),
        ),
    )
)


def a_slice(job_state: JobState = JobState.RUNNING, **fields: object) -> State:
    """Return a job with the slice as its only replica, which has these fields."""
    replica = replace(Replica(1, SLICE), **fields)  # type: ignore[arg-type]
    return State(a_job(job_state, PLAN), (replica,), whole=True)


def of_host(host: int, event: Event) -> Event:
    """Return the event as this host of the slice reports it."""
    return replace(event, subject=replace(event.subject, host=host))  # type: ignore[union-attr, arg-type]


def after(state: State, *events: Event) -> State:
    """Return the state after the events. Each key is judged once, as with a ledger."""
    judged: set[str] = set()
    for event in events:
        if event.key not in judged:
            judged.add(event.key)
            state = apply(state, evolve(state, judge(state, event, at(60)), at(60)))
    return state


@pytest.mark.parametrize("order", SOME_ORDERS)
def test_slice_is_ready_when_the_last_host_is_in_any_order_and_despite_repetitions(
    order: tuple[int, ...],
) -> None:
    reports = [of_host(host, ready(SLICE)) for host in order[:-1]]
    waiting = after(a_slice(JobState.PREPARING), *reports, *reports)
    assert waiting.replicas[0].state is ReplicaState.WAITING
    complete = after(waiting, of_host(order[-1], ready(SLICE)))
    assert complete.replicas[0].state is ReplicaState.RUNNING


@pytest.mark.parametrize("order", SOME_ORDERS)
def test_slice_completes_when_the_last_host_exits_0(order: tuple[int, ...]) -> None:
    done = [of_host(host, exited(SLICE, 0)) for host in order]
    partly_done = after(a_slice(state=ReplicaState.RUNNING), *done[:-1], *done[:-1])
    assert (partly_done.job.state, len(partly_done.replicas[0].hosts_done)) == (
        JobState.RUNNING,
        HOSTS - 1,
    )
    assert after(partly_done, done[-1]).job.state is JobState.SUCCEEDED


def test_first_failure_of_a_host_stops_the_round_and_the_others_are_only_read() -> None:
    failed = [of_host(host, exited(SLICE, 1)) for host in (2, 0, 3)]
    state = after(a_slice(state=ReplicaState.RUNNING), of_host(1, exited(SLICE, 0)), failed[0])
    assert state.job.round == Round(2, is_held=True, ordered_at=at(60), stopped_by=SLICE)
    for late in (*failed[1:], of_host(0, ready(SLICE))):
        decision = judge(state, late, at(60))
        assert decision.is_provisional


def test_slice_is_ready_for_the_next_round_when_all_its_hosts_are() -> None:
    stopped = after(
        a_slice(state=ReplicaState.RUNNING),
        of_host(1, exited(SLICE, 0)),
        of_host(2, exited(SLICE, 1)),
    )
    reports = [of_host(host, ready(SLICE, incarnation=2)) for host in range(HOSTS)]
    waiting = after(stopped, *reports[:-1])
    (replica,) = waiting.replicas
    assert (replica.state, replica.ready_for, replica.hosts_done) == (
        ReplicaState.RESTARTING,
        None,
        (),
    )
    assert after(waiting, reports[-1]).replicas[0].ready_for == "1-2"


def test_exits_0_have_a_key_per_host_and_failures_one_key_per_slice() -> None:
    assert of_host(0, exited(SLICE, 0)).key != of_host(1, exited(SLICE, 0)).key
    assert of_host(0, exited(SLICE, 1)).key == of_host(1, exited(SLICE, 1)).key
    assert of_host(0, ready(SLICE)).key != of_host(1, ready(SLICE)).key


def test_last_host_that_exits_0_completes_the_job_after_another_member_stopped_the_round() -> None:
    done = [of_host(host, exited(SLICE, 0)) for host in range(HOSTS)]
    state = after(a_slice(state=ReplicaState.RUNNING), *done[:-1])
    held = replace(state, job=replace(state.job, round=Round(2, is_held=True)))
    assert after(held, done[-1]).job.state is JobState.SUCCEEDED
