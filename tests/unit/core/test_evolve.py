from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.decisions import (
    BeginRunning,
    Budget,
    DeleteJob,
    FailJob,
    HoldReplica,
    Ignore,
    MarkReady,
    Reason,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    Rule,
    SetLabels,
    SucceedJob,
)
from shared.core.evolve import IllegalTransitionError, apply, evolve
from shared.core.model.job import Budgets, JobState, Label
from shared.core.model.replica import LastExit, Replica, ReplicaState
from shared.core.model.transitions import JOB_EDGES, REPLICA_EDGES
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_replica, a_state, at

NOW = at(100)
EXIT = LastExit(1, 1, None, None)


def restart(charge: Budget = Budget.RESTARTS) -> RestartReplica:
    return RestartReplica("1-worker-0", EXIT, charge, Rule.RESTART, Reason.NON_ZERO_EXIT, "")


def rerun(charge: Budget) -> RerunJob:
    return RerunJob(charge, Rule.CRASH, Reason.CRASH_SIGNAL, "")


def test_nothing_changes_by_being_ignored() -> None:
    change = evolve(a_state(), Ignore(Rule.STALE, Reason.JOB_ENDED, ""), NOW)
    assert (change.job, change.replicas, change.provision) == (None, (), False)


def test_a_restart_is_the_next_life_in_the_same_machine_and_is_charged() -> None:
    (replica,) = evolve(a_state(), restart(), NOW).replicas
    assert (replica.incarnation, replica.vm_generation, replica.restarts_used, replica.lost_at) == (2, 1, 1, NOW)
    (free,) = evolve(a_state(), restart(Budget.FREE), NOW).replicas
    assert free.restarts_used == 0


def test_a_held_replica_is_counted_and_not_charged() -> None:
    hold = HoldReplica("1-chief-0", "1-worker-0", Rule.COLLATERAL, Reason.PEER_DOWN, "")
    (replica,) = evolve(a_state(), hold, NOW).replicas
    assert (replica.incarnation, replica.restarts_used, replica.collateral) == (2, 0, 1)
    assert (replica.lost_at, replica.forgiven_at) == (None, NOW)


def test_a_replaced_vm_is_the_next_life_on_the_next_machine_and_is_not_charged() -> None:
    (replica,) = evolve(a_state(), ReplaceVm("1-worker-0", Rule.VM_LOST, Reason.PREEMPTION, ""), NOW).replicas
    assert (replica.incarnation, replica.vm_generation, replica.restarts_used, replica.replaced) == (2, 2, 0, 1)
    assert replica.instance_id is None


def test_a_replica_that_comes_up_remembers_when_and_on_which_vm() -> None:
    state = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, lost_at=at(50)))
    change = evolve(state, MarkReady("1-worker-0", "4711", Rule.LIFECYCLE, Reason.READY, ""), NOW)
    (replica,) = change.replicas
    assert (replica.state, replica.ready_at, replica.instance_id) == (ReplicaState.RUNNING, NOW, "4711")
    assert change.provision, "peers may be held until it is back"


def test_a_rerun_is_a_new_attempt_of_every_seat_on_the_machines_that_are_there() -> None:
    state = a_state(
        a_replica(WORKER_0, incarnation=6, restarts_used=5, vm_generation=3),
        a_replica(WORKER_1, ReplicaState.COMPLETED),
    )
    change = evolve(state, rerun(Budget.RERUNS), NOW)
    assert change.job is not None
    assert (change.job.attempt, change.job.budgets, change.job.state) == (2, Budgets(reruns_used=1), JobState.RUNNING)
    assert tuple(each for each in change.replicas if each.attempt == 2) == (
        Replica(2, CHIEF, instance_id="1001", ordered_at=NOW),
        Replica(2, WORKER_0, vm_generation=3, instance_id="1001", ordered_at=NOW),
        Replica(2, WORKER_1, vm_generation=2, ordered_at=NOW),
    ), "a done replica's VM was given back, so its replica gets another machine"
    old = [each for each in change.replicas if each.attempt == 1]
    assert [each.version for each in old] == [2, 2, 2], "a commit on one of them that it has not seen is noticed"


def test_a_rerun_after_an_internal_error_charges_that_budget_alone() -> None:
    change = evolve(a_state(), rerun(Budget.INTERNAL), NOW)
    assert change.job is not None
    assert change.job.budgets == Budgets(reruns_used=0, internal_used=1)


def test_the_job_starts_once_and_ends_once_with_its_times_and_message() -> None:
    running = evolve(
        a_state(job=a_job(JobState.PREPARING)), BeginRunning(Rule.LIFECYCLE, Reason.ALL_READY, ""), NOW
    ).job
    assert running is not None
    assert (running.started_at, running.ended_at) == (NOW, None)
    failed = evolve(a_state(), FailJob("why", Rule.PERMANENT, Reason.OUT_OF_MEMORY, ""), NOW).job
    assert failed is not None
    assert (failed.state, failed.ended_at, failed.error_message, failed.started_at) == (
        JobState.FAILED,
        NOW,
        "why",
        at(10),
    )


def test_labels_and_deletion_are_all_that_a_users_hand_changes_and_no_machine_hears_of_it() -> None:
    ended = a_job(JobState.FAILED, labels=(Label("a", "b"),))
    labelled = evolve(a_state(job=ended), SetLabels((Label("c", "d"),), Rule.LIFECYCLE, Reason.LABELS_CHANGED, ""), NOW)
    assert labelled.job == replace(ended, labels=(Label("c", "d"),), labels_version=2, version=2)
    deleted = evolve(a_state(job=ended), DeleteJob(Rule.LIFECYCLE, Reason.DELETED_BY_USER, ""), NOW)
    assert deleted.job == replace(ended, deleted_at=NOW, version=2)
    assert not labelled.provision
    assert not deleted.provision


def test_a_job_that_succeeds_before_its_last_replica_is_up_started_with_its_primary() -> None:
    state = a_state(a_replica(CHIEF, ready_at=at(7)), job=a_job(JobState.PREPARING))
    done = evolve(state, SucceedJob("1-chief-0", Rule.PRIMARY_DONE, Reason.EXITED_ZERO, ""), NOW).job
    assert done is not None
    assert (done.started_at, done.ended_at) == (at(7), NOW)


def test_what_the_tables_do_not_have_is_refused() -> None:
    done = a_state(job=a_job(JobState.SUCCEEDED))
    with pytest.raises(IllegalTransitionError):
        evolve(done, FailJob("late", Rule.PERMANENT, Reason.OUT_OF_MEMORY, ""), NOW)
    with pytest.raises(IllegalTransitionError):
        evolve(a_state(a_replica(WORKER_0, ReplicaState.COMPLETED)), restart(), NOW)
    with pytest.raises(IllegalTransitionError):
        evolve(None, restart(), NOW)


def test_no_state_is_left_without_an_edge_and_no_end_of_a_job_has_any() -> None:
    assert {source for source, _ in JOB_EDGES} == {JobState.QUEUED, JobState.PREPARING, JobState.RUNNING}
    assert {source for source, _ in REPLICA_EDGES} == set(ReplicaState)
    assert all(JOB_EDGES.values())
    assert all(REPLICA_EDGES.values())


def test_applying_a_change_replaces_what_was_loaded() -> None:
    state = a_state()
    after = apply(state, evolve(state, SucceedJob("1-chief-0", Rule.PRIMARY_DONE, Reason.EXITED_ZERO, ""), NOW))
    assert after.job.state is JobState.SUCCEEDED
    assert after.replicas[0].state is ReplicaState.COMPLETED
    again = apply(state, evolve(state, rerun(Budget.RERUNS), NOW))
    assert {replica.attempt for replica in again.replicas} == {2}
