"""Pauses before the restarts of a program that keeps failing soon after its start.

An attempt is one execution of the whole job, and an incarnation one execution of a replica's
program within it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited, lost
from tests.unit.core.rules.program_failures import BUG, GLOO_PEER_LOSS, NOW
from trainmaster.core.events import ProgramError
from trainmaster.core.evolve import evolve
from trainmaster.core.model.exit_policy import ExitPolicy
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.rules.judge import judge


def test_pause_doubles_with_each_quick_failure_and_ends_with_a_long_run() -> None:
    pauses = []
    state = a_state()
    for incarnation in range(1, 6):
        state, pause_s = after_failure(state, incarnation=incarnation, ran_s=5)
        pauses.append(pause_s)
    assert pauses == [0, 1, 2, 4, 8]
    # The sixth failure reruns the whole job, so the incarnations count from 1 again.
    state, pause_s = after_failure(state, incarnation=6, ran_s=5)
    assert (state.job.attempt, pause_s) == (2, 16)
    for incarnation, expected in ((1, 32), (2, 60)):
        state, pause_s = after_failure(state, incarnation=incarnation, ran_s=5)
        assert pause_s == expected
    state, pause_s = after_failure(state, incarnation=3, ran_s=601)
    assert pause_s == 0


def test_restart_is_at_once_if_the_policy_has_no_pauses() -> None:
    job = a_job(plan=a_plan(exit_policy=ExitPolicy(pauses=False)))
    state, pause_s = after_failure(a_state(job=job), incarnation=1, ran_s=5)
    assert pause_s == 0
    state, pause_s = after_failure(state, incarnation=2, ran_s=5)
    assert pause_s == 0


def test_only_the_replica_that_failed_pauses_after_a_rerun() -> None:
    state, _ = after_failure(
        a_state(a_replica(CHIEF), a_replica(WORKER_0, quick_failures=1)),
        incarnation=1,
        ran_s=5,
        signal=11,
    )
    pauses = {
        target.replica.replica_id: target.directive.pause_s
        for target in desired_vms(state.job, state.replicas, NOW)
    }
    assert pauses == {CHIEF: 0, WORKER_0: 1, WORKER_1: 0}


def test_replacement_of_the_vm_ends_the_pauses() -> None:
    state, _ = after_failure(a_state(), incarnation=1, ran_s=5)
    replaced = evolve(state, judge(state, lost(WORKER_0, incarnation=2), NOW), NOW)
    assert replaced.replicas[0].quick_failures == 0


@pytest.mark.parametrize(
    ("error", "looks_like_a_bug"),
    [
        pytest.param(None, True, id="no traceback"),
        pytest.param(BUG, True, id="bug"),
        pytest.param(replace(BUG, type="ServiceUnavailable"), False, id="service that may recover"),
        pytest.param(GLOO_PEER_LOSS, False, id="lost peer"),
    ],
)
def test_message_of_the_third_quick_failure_suggests_a_bug(
    error: ProgramError | None, *, looks_like_a_bug: bool
) -> None:
    replica = a_replica(WORKER_0, incarnation=3, restarts_used=2, quick_failures=2)
    decision = judge(
        a_state(replica), exited(WORKER_0, 1, error=error, incarnation=3, ran_s=5), NOW
    )
    assert "it restarts in the same VM after a pause of 2 s (restart 3 of 5)." in decision.text
    advice = "3 failures in a row, each within 10 minutes of the start, look like a bug."
    assert (advice in decision.text) is looks_like_a_bug


def after_failure(
    state: State, *, incarnation: int, ran_s: float, signal: int | None = None
) -> tuple[State, int]:
    """Return the state after worker 0's program failed and was ordered again, and the pause before
    its next start.
    """
    status = None if signal else 1
    (worker,) = (replica for replica in state.replicas if replica.replica_id == WORKER_0)
    event = exited(
        WORKER_0,
        status,
        signal=signal,
        incarnation=incarnation,
        attempt=state.job.attempt,
        ran_s=ran_s,
    )
    event = replace(event, subject=replace(event.subject, vm_generation=worker.vm_generation))
    change = evolve(state, judge(state, event, NOW), NOW)
    job = change.job or state.job
    changed = {replica.key: replica for replica in change.replicas}
    replicas = tuple(changed.get(replica.key, replica) for replica in state.replicas)
    if job.attempt != state.job.attempt:
        replicas = tuple(replica for replica in change.replicas if replica.attempt == job.attempt)
    following = State(job, replicas, whole=True)
    (target,) = [vm for vm in desired_vms(job, replicas, NOW) if vm.replica.replica_id == WORKER_0]
    running = tuple(
        (
            replace(replica, state=ReplicaState.RUNNING, ready_at=at(101))
            if replica is target.replica
            else replica
        )
        for replica in following.replicas
    )
    return replace(following, replicas=running), target.directive.pause_s
