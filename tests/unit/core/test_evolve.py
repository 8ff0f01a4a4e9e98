"""How each action changes the stored state.

Incarnations (starts of a program), VM generations (VMs of a replica), rounds (common runs of the
members of a synchronous job) and attempts (runs of the whole job) count from 1. An action names a
replica with its attempt: "1-worker-0". A change has effects: messages that are published after its
commit. Replicas of `alone.a_state` are judged each alone, those of `jobs.a_state` together.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import jobs
from tests.support.alone import a_job, a_state
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_plan, a_replica, at
from trainmaster.core.actions import (
    Action,
    BeginRunning,
    Budget,
    CancelJob,
    ContinueProvisioning,
    DeleteJob,
    FailJob,
    Ignore,
    MarkHostReady,
    MarkReady,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    SetLabels,
    SucceedJob,
)
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import Budgets, Job, JobState, Label, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.tuning import TrialOf, Tuning
from trainmaster.core.transitions.change import Change, Effect, IllegalTransitionError
from trainmaster.core.transitions.edges import JOB_EDGES, REPLICA_EDGES

NOW = at(100)
RUNNING = a_state()
PREPARING = a_state(job=a_job(JobState.PREPARING))
SUCCEEDED = a_state(job=a_job(JobState.SUCCEEDED))
RESTART = RestartReplica("1-worker-0", Budget.RESTARTS)


def change(state: State | None, action: Action) -> Change:
    return evolve(state, Decision(Rule.LIFECYCLE, Reason.READY, text="", action=action), NOW)


def changed_job(state: State, action: Action) -> Job:
    job = change(state, action).job
    assert job is not None
    return job


def test_ignored_event_changes_nothing() -> None:
    assert change(RUNNING, Ignore()) == Change()


def test_restart_is_the_next_incarnation_on_the_same_vm_and_is_charged() -> None:
    (replica,) = change(RUNNING, RESTART).replicas
    assert (replica.incarnation, replica.vm_generation, replica.restarts) == (2, 1, (NOW,))


def test_free_restart_is_not_charged() -> None:
    (replica,) = change(RUNNING, replace(RESTART, charge=Budget.FREE)).replicas
    assert replica.restarts_used == 0


def test_replaced_vm_is_the_next_generation_and_is_not_charged() -> None:
    (replica,) = change(RUNNING, ReplaceVm("1-worker-0")).replicas
    assert (
        replica.incarnation,
        replica.vm_generation,
        replica.restarts_used,
        replica.replaced,
    ) == (2, 2, 0, 1)
    assert replica.instance_id is None


def test_ready_replica_stores_time_and_vm() -> None:
    down = a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2)
    ready = change(a_state(down), MarkReady("1-worker-0", "4711", NOW))
    (replica,) = ready.replicas
    assert (replica.state, replica.ready_at, replica.instance_id) == (
        ReplicaState.RUNNING,
        NOW,
        "4711",
    )


@pytest.mark.parametrize(
    ("is_independent", "is_known", "effects"),
    [
        (True, False, (Effect.PROVISION,)),
        (True, True, ()),
        (False, False, ()),
    ],
    ids=["alone", "known before", "member"],
)
def test_first_report_from_a_vm_lets_a_replica_that_is_judged_alone_run(
    effects: tuple[Effect, ...], *, is_independent: bool, is_known: bool
) -> None:
    job = jobs.a_job(plan=a_plan(independent=is_independent))
    down = a_replica(WORKER_0, ReplicaState.RESTARTING, vm_since=at(10) if is_known else None)
    ready = change(jobs.a_state(down, job=job), MarkReady("1-worker-0", "4711", NOW))
    assert ready.effects == effects


def test_slice_whose_program_ended_on_one_host_has_ended_until_the_next_round() -> None:
    slice_ = a_replica(WORKER_0, ReplicaState.RUNNING)
    (one,) = change(
        a_state(slice_), MarkHostReady("1-worker-0", 0, "4711", round=2, has_ended=True)
    ).replicas
    (ready,) = change(a_state(one), MarkReady("1-worker-0", "4711", NOW, round=2)).replicas
    (later,) = change(a_state(ready), MarkHostReady("1-worker-0", 1, "4711", round=3)).replicas
    assert (one.has_ended, ready.has_ended, later.has_ended) == (True, True, False)


def test_rerun_of_a_synchronous_job_holds_its_first_round() -> None:
    rerun = changed_job(jobs.a_state(), RerunJob(Budget.RERUNS, quick_failure="1-worker-0"))
    assert (rerun.round.number, rerun.round.is_held, rerun.round.quick_failures) == (1, True, 1)


def test_loss_that_moves_the_job_to_another_zone_ends_its_round() -> None:
    state = jobs.a_state()
    moved = changed_job(
        state, ContinueProvisioning(zone_index=1, round=1, replacement=ReplaceVm("1-worker-0"))
    )
    assert (moved.zone, moved.round.number, moved.round.is_held) == ("us-central1-b", 2, True)


def test_rerun_is_a_new_attempt_of_every_replica_on_the_existing_vms() -> None:
    state = a_state(
        a_replica(WORKER_0, incarnation=6, restarts_used=5, vm_generation=3),
        a_replica(WORKER_1, ReplicaState.COMPLETED),
    )
    rerun = change(state, RerunJob(Budget.RERUNS))
    assert rerun.job is not None
    assert (rerun.job.attempt, rerun.job.budgets, rerun.job.state) == (
        2,
        Budgets(reruns_used=1),
        JobState.RUNNING,
    )
    assert tuple(replica for replica in rerun.replicas if replica.attempt == 2) == (
        Replica(2, CHIEF, instance_id="1001", ordered_at=NOW),
        Replica(2, WORKER_0, vm_generation=3, instance_id="1001", ordered_at=NOW),
        Replica(2, WORKER_1, vm_generation=2, ordered_at=NOW),
    ), "the VM of a completed replica was deleted, so it gets the next generation"
    previous = [replica for replica in rerun.replicas if replica.attempt == 1]
    assert [replica.version for replica in previous] == [2, 2, 2], (
        "concurrent changes of the old attempt conflict"
    )


def test_job_that_begins_running_has_a_start_time() -> None:
    job = changed_job(PREPARING, BeginRunning())
    assert (job.started_at, job.ended_at) == (NOW, None)


def test_failed_job_has_an_end_time_and_its_message() -> None:
    job = changed_job(RUNNING, FailJob("why"))
    assert (job.state, job.ended_at, job.error_message, job.started_at) == (
        JobState.FAILED,
        NOW,
        "why",
        at(10),
    )


def test_labels_and_deletion_change_only_the_job() -> None:
    ended = a_job(JobState.FAILED, labels=(Label("a", "b"),))
    labelled = change(a_state(job=ended), SetLabels((Label("c", "d"),)))
    assert labelled == Change(
        replace(ended, labels=(Label("c", "d"),), labels_version=2, version=2)
    )
    deleted = Change(replace(ended, deleted_at=NOW, version=2), effects=(Effect.PROVISION,))
    assert change(a_state(job=ended), DeleteJob()) == deleted, (
        "provisioning lets the history expire"
    )


def test_job_that_succeeds_before_its_last_replica_is_ready_started_with_its_primary() -> None:
    state = a_state(a_replica(CHIEF, ready_at=at(7)), job=a_job(JobState.PREPARING))
    job = changed_job(state, SucceedJob("1-chief-0"))
    assert (job.started_at, job.ended_at) == (at(7), NOW)


TUNING_JOB = a_job(tuning=Tuning(()))
TRIAL = a_job(trial_of=TrialOf("parent", 1, "accuracy"))


@pytest.mark.parametrize(
    ("job", "action", "effects"),
    [
        pytest.param(a_job(), CancelJob("why"), (Effect.PROVISION, Effect.NOTIFY), id="job"),
        pytest.param(
            a_job(),
            RerunJob(Budget.FREE),
            (Effect.PROVISION, Effect.NOTIFY),
            id="job with another attempt",
        ),
        pytest.param(
            a_job(), DeleteJob(), (Effect.PROVISION,), id="job in the same state and attempt"
        ),
        pytest.param(TUNING_JOB, CancelJob("why"), (Effect.TUNE, Effect.NOTIFY), id="tuning job"),
        pytest.param(TUNING_JOB, SetLabels(()), (), id="tuning job without a change of trials"),
        pytest.param(
            TRIAL, CancelJob("why"), (Effect.PROVISION, Effect.TUNE, Effect.NOTIFY), id="trial"
        ),
        pytest.param(
            TRIAL,
            ContinueProvisioning(zone_index=1, round=1),
            (Effect.PROVISION,),
            id="trial in the same state",
        ),
    ],
)
def test_effects_follow_from_the_kind_of_job_and_its_change(
    job: Job, action: Action, effects: tuple[Effect, ...]
) -> None:
    assert change(a_state(job=job), action).effects == effects


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (SUCCEEDED, FailJob("late")),
        (a_state(a_replica(WORKER_0, ReplicaState.COMPLETED)), RESTART),
        (None, RESTART),
    ],
    ids=["ended job", "completed replica", "no job"],
)
def test_action_without_an_edge_raises(state: State | None, action: Action) -> None:
    with pytest.raises(IllegalTransitionError):
        change(state, action)


def test_every_state_has_an_edge_but_the_end_states() -> None:
    assert {source for source, _ in JOB_EDGES} == {
        JobState.QUEUED,
        JobState.PREPARING,
        JobState.RUNNING,
    }
    left = {source for source, target in REPLICA_EDGES if target is not source}
    assert left == {*ReplicaState} - {ReplicaState.COMPLETED}


def test_applied_change_replaces_what_was_loaded() -> None:
    after = apply(RUNNING, change(RUNNING, SucceedJob("1-chief-0")))
    assert after.job.state is JobState.SUCCEEDED
    assert after.replicas[0].state is ReplicaState.COMPLETED


def test_applied_rerun_keeps_only_replicas_of_the_new_attempt() -> None:
    after = apply(RUNNING, change(RUNNING, RerunJob(Budget.RERUNS)))
    assert {replica.attempt for replica in after.replicas} == {2}
