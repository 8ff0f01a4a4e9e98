"""Machines that fail the preflight: replaced like lost VMs, free of charge, and given up in the
end.

A preflight is a short test of a VM, such as of its GPUs, before a program runs on it.

Decisions are written as the number of the rule, the action and the reason:
`4 replace_vm unfit`.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import alone, jobs
from tests.support.decisions import summarize
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited, ready
from trainmaster.core.events import ExitCause
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.members import current_incarnation
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import WASTED_MAX, WASTED_PER_ZONE

NOW = at(100)
FOUND = "7 of 8 GPUs answer"
"""What the preflight of a machine with a broken GPU reports."""


def unfit_again(state: State) -> tuple[str, str, State]:
    """Let the next VM of worker 0 fail the preflight.

    Return decision, its text, and the state after it.
    """
    worker = next(replica for replica in state.replicas if replica.replica_id == WORKER_0)
    job, now = state.job, max(NOW, state.job.placement.next_at or NOW)
    incarnation = current_incarnation(job, worker)
    event = exited(
        WORKER_0,
        cause=ExitCause.UNFIT,
        tail=FOUND,
        incarnation=incarnation,
        vm_generation=worker.vm_generation,
        attempt=job.attempt,
    )
    decision = judge(state, replace(event, at=now), now)
    return summarize(decision), decision.text, apply(state, evolve(state, decision, now))


@pytest.mark.parametrize("kind", [alone, jobs])
def test_unfit_machines_cost_no_restart_and_leave_their_zone_and_then_the_job(kind: object) -> None:
    """`alone`: replicas that are judged alone; `jobs`: members of a synchronous job."""
    job = kind.a_job(JobState.PREPARING)  # type: ignore[attr-defined]
    state = kind.a_state(  # type: ignore[attr-defined]
        *(
            a_replica(replica_id, ReplicaState.WAITING)
            for replica_id in (CHIEF, WORKER_0, WORKER_1)
        ),
        job=job,
    )
    decisions, zones = [], []
    while not state.job.state.is_terminal:
        decision, text, state = unfit_again(state)
        decisions.append(decision)
        zones.append(state.job.zone)
        assert len(decisions) <= WASTED_MAX
        if len(decisions) == 1:
            assert (
                "of worker 0 failed the preflight (7 of 8 GPUs answer; `trainmaster.preflight:"
                " report`" in text
            )
    assert len(decisions) == WASTED_MAX
    assert decisions[0] in ("4 replace_vm unfit", "4 stop_round unfit")
    assert zones[WASTED_PER_ZONE - 1] != zones[0]
    assert state.job.budgets.reruns_used == 0
    assert not any(replica.restarts for replica in state.replicas)
    assert "failed the preflight (7 of 8 GPUs answer" in (state.job.error_message or "")


def test_machine_that_becomes_unfit_after_a_failure_is_replaced() -> None:
    """Its GPU fell off the bus under the program, which was restarted once."""
    state = alone.a_state()
    failed = judge(state, exited(WORKER_0, 1), NOW)
    state = apply(state, evolve(state, failed, NOW))
    decision, _, state = unfit_again(state)
    assert decision == "4 replace_vm unfit"
    assert [
        len(replica.restarts) for replica in state.replicas if replica.replica_id == WORKER_0
    ] == [1]


def test_report_of_a_ready_replica_names_what_its_preflight_found() -> None:
    state = alone.a_state(a_replica(WORKER_0, ReplicaState.WAITING))
    text = judge(
        state, replace(ready(WORKER_0), finding="7 of 8 GPUs answer", at=at(100)), NOW
    ).text
    assert text.endswith("Its VM failed the preflight: 7 of 8 GPUs answer.")
