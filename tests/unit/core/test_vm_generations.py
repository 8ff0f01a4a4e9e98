"""Every VM that is requested for a replica has a VM generation of its own.

They count from 1. A job that moves to another zone raises the floor, the lowest generation that
counts, above all of them: so it writes one document, whatever the number of replicas.

Decisions are written as the number of the rule, the action and the reason:
`1 ignore outdated`.

A round is one common start of all members of a job.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.alone import a_job, a_state
from tests.support.decisions import summarize
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited, lost, ready
from tests.unit.core.reconcile.planned_steps import NOW, a_vm, steps
from trainmaster.core.actions import Budget, ContinueProvisioning, ReplaceVm, RerunJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import CapacityErrorKind, Event, VmLost, VmReady, VmsNotCreated
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import Job, JobState, LeftZone, Placement, State
from trainmaster.core.model.members import recall
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import LossCause
from trainmaster.core.reconcile.steps import Create, Delete, ReportLoss
from trainmaster.core.rules.judge import judge
from trainmaster.core.transitions.change import IllegalTransitionError

CHIEF_REPORTED = a_state(
    a_replica(CHIEF),
    a_replica(WORKER_0, ReplicaState.WAITING),
    a_replica(WORKER_1, ReplicaState.REPLACING, vm_generation=4),
    job=a_job(JobState.PREPARING),
)
"""The chief's agent has reported; the VMs of the workers are requested."""


def after(state: State, action: ContinueProvisioning | RerunJob | ReplaceVm) -> State:
    return apply(
        state, evolve(state, Decision(Rule.CAPACITY, Reason.STOCKOUT, text="", action=action), NOW)
    )


def generations(state: State) -> dict[ReplicaId, int]:
    return {replica.replica_id: replica.vm_generation for replica in state.replicas}


MOVE = ContinueProvisioning(zone_index=1, round=1, floor=6)
"""The next zone, with a floor above the generations of `CHIEF_REPORTED`."""


def test_stockout_gives_the_gang_a_common_later_generation_in_the_next_zone() -> None:
    state = replace(CHIEF_REPORTED, job=replace(CHIEF_REPORTED.job, placement=Placement(left=())))
    event = VmsNotCreated(
        "digits_1",
        attempt=1,
        zone=state.job.zone,
        round=0,
        error_kind=CapacityErrorKind.STOCKOUT,
        code="X",
        message="no",
        at=NOW,
    )
    decision = judge(state, event, NOW)
    change = evolve(state, decision, NOW)
    assert change.replicas == (), "one document is written, whatever the size of the gang"
    moved = apply(state, change)
    assert set(generations(moved).values()) == {6}
    assert all(replica.awaits_vm for replica in moved.replicas), "the chief's VM, too, is outdated"
    assert not any(replica.ever_ready for replica in moved.replicas), (
        "a replica is ready on its current VM"
    )
    assert (moved.job.zones_used, moved.job.placement.left) == (
        ("us-central1-b", "us-central1-a"),
        (LeftZone("us-central1-a", may_run=True),),
    )


@pytest.mark.parametrize("beside", ["loss", "report", "both"])
def test_loss_or_report_that_is_committed_beside_a_move_stays_below_the_floor(beside: str) -> None:
    """They were judged on the state before, and write only their replica.

    Its VM in the old zone is outdated.
    """
    moved = after(CHIEF_REPORTED, MOVE)
    written = {
        "loss": a_replica(WORKER_1, ReplicaState.REPLACING, vm_generation=5),
        "report": a_replica(WORKER_1, vm_generation=4),
        "both": a_replica(WORKER_1, vm_generation=5),
    }[beside]
    stored = replace(moved, replicas=(*moved.replicas[:2], written))
    seen = recall(stored)
    assert set(generations(seen).values()) == {6}
    assert seen.replicas[2].awaits_vm
    assert recall(seen) == seen
    late = a_vm(WORKER_1, vm_generation=written.vm_generation)
    assert Delete(late) in steps(seen, late)
    assert summarize(
        judge(seen, ready(WORKER_1, vm_generation=written.vm_generation), NOW)
    ).startswith("1 ignore")


def test_completed_replica_needs_no_vm_of_the_floor() -> None:
    completed = a_replica(WORKER_0, ReplicaState.COMPLETED)
    moved = after(replace(CHIEF_REPORTED, replicas=(completed,)), MOVE)
    assert moved.replicas == (completed,)


def test_next_round_in_the_same_zone_keeps_the_vm_generations() -> None:
    assert generations(
        after(CHIEF_REPORTED, ContinueProvisioning(zone_index=0, round=1))
    ) == generations(CHIEF_REPORTED)


def test_rerun_in_another_zone_gives_all_vms_a_common_later_generation() -> None:
    moved = after(CHIEF_REPORTED, RerunJob(Budget.FREE, zone_index=1))
    assert set(generations(moved).values()) == {5}
    assert {replica.instance_id for replica in moved.replicas} == {None}


def test_rerun_in_the_only_zone_keeps_the_vms() -> None:
    rerun = after(CHIEF_REPORTED, RerunJob(Budget.FREE, zone_index=0))
    assert generations(rerun) == generations(CHIEF_REPORTED)
    assert rerun.replicas[0].instance_id == "1001"


def test_change_of_the_zone_needs_the_whole_attempt() -> None:
    with pytest.raises(IllegalTransitionError):
        after(replace(CHIEF_REPORTED, whole=False), RerunJob(Budget.FREE, zone_index=1))


def test_late_loss_of_a_vm_in_the_abandoned_zone_changes_nothing() -> None:
    moved = after(a_state(), RerunJob(Budget.FREE, zone_index=1))
    running = replace(
        moved,
        replicas=tuple(
            replace(replica, state=ReplicaState.RUNNING, instance_id="2002")
            for replica in moved.replicas
        ),
    )
    assert summarize(judge(running, lost(CHIEF), NOW)) == "1 ignore outdated"


def test_late_insert_in_the_abandoned_zone_is_deleted_and_its_reports_are_ignored() -> None:
    moved = after(CHIEF_REPORTED, MOVE)
    late, present = (
        a_vm(WORKER_0),
        a_vm(WORKER_0, zone="us-central1-b", instance_id="3003", vm_generation=6),
    )
    others = (a_vm(WORKER_1, zone="us-central1-b", vm_generation=6),)
    assert Delete(late) in steps(moved, late, present, *others)
    assert Delete(present) not in steps(moved, late, present, *others)
    assert summarize(judge(moved, ready(WORKER_0), NOW)) == "1 ignore outdated"


def test_delivery_with_an_older_state_leaves_the_vm_of_the_newer_zone_alone() -> None:
    in_newer_zone = a_vm(WORKER_0, zone="us-central1-b", vm_generation=5)
    assert not [
        step
        for step in steps(CHIEF_REPORTED, a_vm(), in_newer_zone)
        if step == Delete(in_newer_zone)
    ]


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CANCELLED])
def test_delivery_with_an_older_state_leaves_the_vm_of_a_replica_that_was_recalled_since_alone(
    state: JobState,
) -> None:
    """The older state desires no VM for the replica. A job that has ended desires none for ever."""
    completed = a_state(
        a_replica(WORKER_0, ReplicaState.COMPLETED, done_at=at(50)), job=a_job(state)
    )
    recalled = a_vm(WORKER_0, vm_generation=2)
    assert (Delete(recalled) in steps(completed, recalled)) is state.is_terminal
    assert Delete(a_vm(WORKER_0)) in steps(completed, a_vm(WORKER_0))


def of_other_vm(event: VmLost | VmReady) -> Event:
    vm = replace(event.subject.vm, instance_id="9009")
    return replace(event, subject=replace(event.subject, vm=vm))


RESTARTING = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2))


@pytest.mark.parametrize(
    ("state", "event"),
    [(a_state(), lost(WORKER_0)), (RESTARTING, ready(WORKER_0, incarnation=2))],
    ids=["loss", "ready"],
)
def test_event_of_another_vm_of_the_same_generation_is_ignored(
    state: State, event: VmLost | VmReady
) -> None:
    assert not summarize(judge(state, event, NOW)).startswith("1 ignore")
    assert summarize(judge(state, of_other_vm(event), NOW)) == "1 ignore provisional"


def test_ignored_loss_of_another_vm_does_not_use_up_the_key_of_the_real_loss() -> None:
    assert of_other_vm(lost(WORKER_0)).key != lost(WORKER_0).key


def test_loss_of_a_missing_vm_counts_although_it_has_no_id() -> None:
    event = lost(WORKER_0, LossCause.GONE)
    missing = replace(
        event, subject=replace(event.subject, vm=replace(event.subject.vm, instance_id=""))
    )
    assert summarize(judge(a_state(), missing, NOW)) == "4 replace_vm gone"


def test_other_vm_of_the_same_generation_is_deleted_and_the_reported_one_is_lost() -> None:
    other = a_vm(WORKER_0, instance_id="9009")
    replica = next(replica for replica in a_state().replicas if replica.replica_id == WORKER_0)
    assert set(steps(a_state(), a_vm(CHIEF), other, a_vm(WORKER_1))) == {
        Delete(other),
        ReportLoss(replica, other.name, vm=None),
    }


def test_events_of_two_vm_generations_have_different_keys() -> None:
    assert ready(WORKER_0).key != ready(WORKER_0, vm_generation=2).key
    assert exited(WORKER_0, 1).key != exited(WORKER_0, 1, vm_generation=2).key


def test_only_vms_that_were_taken_away_count_for_on_demand_vms() -> None:
    taken = after(a_state(), ReplaceVm("1-worker-0", is_vm_taken=True))
    given_up = after(taken, ReplaceVm("1-worker-0", wasted=3))
    moved = after(given_up, RerunJob(Budget.FREE, zone_index=1))
    assert [replica.vms_lost for replica in moved.replicas] == [0, 1, 0]
    again = after(moved, RerunJob(Budget.FREE, lost="2-worker-0", is_vm_taken=True))
    assert [replica.vms_lost for replica in again.replicas] == [0, 2, 0]


def test_replicas_that_move_together_take_one_insert_per_role() -> None:
    job: Job = replace(CHIEF_REPORTED.job, placement=Placement(zone_index=1, round=1))
    moved = replace(after(CHIEF_REPORTED, RerunJob(Budget.FREE, zone_index=1)))
    assert moved.job.zone == job.zone
    created = [step for step in steps(moved) if isinstance(step, Create)]
    assert [(create.replica_ids, create.vm_generation) for create in created] == [
        ((CHIEF,), 5),
        ((WORKER_0, WORKER_1), 5),
    ]
