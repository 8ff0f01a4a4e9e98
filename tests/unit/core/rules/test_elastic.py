"""Rules of elastic jobs: what a refusal, a loss and a failed set-up mean for a member that the job
can spare.

The members of a job start together, in a round. While the next round is held, all wait for it. An
elastic job begins a round although VMs of some members are missing, if enough members are left and
the primary is one of them. The round goes `without` the others, which are spare.

Decisions are written as the number of the rule, the action and the reason:
`0 begin_round round_begins`.

An attempt is one execution of the whole job, and an incarnation one execution of a replica's
program within it. The generation of a VM tells it from earlier VMs of the same replica.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.decisions import action_of, summarize
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    a_state,
    at,
    change_plan,
    exited,
    lost,
)
from trainmaster.core.actions import BeginRound, ContinueProvisioning
from trainmaster.core.events import (
    AllReady,
    CapacityErrorKind,
    ExitCause,
    MembersJoin,
    ReplicaExited,
    VmsNotCreated,
)
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import RESTARTS_MAX, Job, JobState, Placement, State
from trainmaster.core.model.members import can_spare, is_refused
from trainmaster.core.model.plan import Elastic, Plan
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.model.vm import LossCause
from trainmaster.core.model.where import Candidate, Option
from trainmaster.core.rules.evidence import round_end
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import WASTED_MAX

NOW = at(100)
MISSING = ReplicaState.REPLACING


def elastic(least: int = 2, **changes: Any) -> Plan:
    return a_plan(elastic=Elastic(least), on_notice=SaveOnNotice.GANG, **changes)


def job_of(plan: Plan | None = None, **round_: Any) -> Job:
    return a_job(plan=plan or elastic(), round=Round(3, began_at=at(20), **round_))


def held(*missing: ReplicaId, plan: Plan | None = None, **round_: Any) -> State:
    """Return a job whose third round is held, and whose other members are ready for it."""
    return in_round_3(*missing, plan=plan, is_held=True, ordered_at=at(90), **round_)


def in_round_3(*missing: ReplicaId, plan: Plan | None = None, **round_: Any) -> State:
    """Return a job in its third round. Some members wait for another VM."""
    job = job_of(plan, **round_)
    replicas = (
        a_replica(replica_id, MISSING, vm_generation=2, ordered_at=at(90))
        if replica_id in missing
        else a_replica(replica_id, incarnation=3)
        for replica_id in job.plan.replica_ids
    )
    return a_state(*replicas, job=job)


def refusal(kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT) -> VmsNotCreated:
    return VmsNotCreated(
        "digits_1",
        attempt=1,
        zone="us-central1-a",
        round=0,
        error_kind=kind,
        code="CODE",
        message="no",
        at=NOW,
    )


def all_ready(*without: ReplicaId, ends: tuple[ReplicaExited, ...] = ()) -> AllReady:
    """Return the event that the third round may begin, without these members.

    `ends`: how programs ended the round before.
    """
    return AllReady("digits_1", attempt=1, at=NOW, round=3, ends=ends, without=without)


def after(state: State, event: Any) -> State:
    return apply(state, evolve(state, judge(state, event, NOW), NOW))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (CapacityErrorKind.STOCKOUT, "stockout"),
        (CapacityErrorKind.QUOTA, "quota"),
        (CapacityErrorKind.BLOCKED, "blocked"),
        (CapacityErrorKind.DENIED, "blocked"),
        (CapacityErrorKind.INTERNAL, "blocked"),
    ],
)
def test_any_refusal_of_a_spare_member_is_noted_and_keeps_the_zone(
    kind: CapacityErrorKind, reason: str
) -> None:
    state = held(WORKER_1)
    decision = judge(state, refusal(kind), NOW)
    assert summarize(decision) == f"11 continue_provisioning {reason}"
    assert action_of(decision, ContinueProvisioning).zone_index == 0
    refused = after(state, refusal(kind)).job
    assert (is_refused(refused), refused.zone) == (True, "us-central1-a")


def test_alternatives_that_keep_the_other_vms_come_first() -> None:
    plan = elastic()
    spot = tuple(replace(group, purchase=Purchase(Spot())) for group in plan.groups)
    options = (Option(spot), Option(plan.groups))
    plan = change_plan(
        plan,
        zones=("us-central1-a",) * 2,
        options=options,
        candidates=(Candidate(option=0, rank=0), Candidate(option=1, rank=1)),
    )
    state = held(WORKER_1, plan=plan)
    state = replace(
        state, job=replace(state.job, placement=Placement(remaining=(1,), since=at(95)))
    )
    action = action_of(judge(state, refusal(), NOW), ContinueProvisioning)
    assert (action.zone_index, action.next_at, action.only_optional) == (1, None, True)


@pytest.mark.parametrize(
    ("missing", "named", "expected"),
    [
        pytest.param((WORKER_1,), (WORKER_1,), "0 begin_round round_begins", id="one"),
        pytest.param((WORKER_1,), (), "1 ignore provisional", id="not named"),
        pytest.param(
            (WORKER_0, WORKER_1),
            (WORKER_0, WORKER_1),
            "1 ignore provisional",
            id="too few are left",
        ),
        pytest.param((CHIEF,), (CHIEF,), "1 ignore provisional", id="the primary"),
        pytest.param((), (WORKER_1,), "0 begin_round round_begins", id="it has come"),
    ],
)
def test_round_begins_without_members_that_the_event_names_if_enough_are_left(
    missing: tuple[ReplicaId, ...], named: tuple[ReplicaId, ...], expected: str
) -> None:
    decision = judge(held(*missing), all_ready(*named), NOW)
    assert summarize(decision) == expected
    if isinstance(decision.action, BeginRound):
        assert decision.action.without == missing


def test_member_with_a_vm_is_never_left_out() -> None:
    """Its program of the last round may still run."""
    state = held()
    silent = tuple(
        replace(replica, incarnation=2) if replica.replica_id == WORKER_1 else replica
        for replica in state.replicas
    )
    decision = judge(replace(state, replicas=silent), all_ready(WORKER_1), NOW)
    assert decision.is_provisional


def spare(state: ReplicaState = MISSING, **changes: Any) -> Replica:
    """Return worker 1 as a spare member, on its second VM."""
    return a_replica(
        WORKER_1, state, **{"vm_generation": 2, "incarnation": 3, "ordered_at": at(90), **changes}
    )


def with_spare(replica: Replica, **round_: Any) -> State:
    """Return a job whose third round runs without worker 1."""
    return a_state(
        *(a_replica(replica_id, incarnation=3) for replica_id in (CHIEF, WORKER_0)),
        replica,
        job=job_of(without=(WORKER_1,), **round_),
    )


@pytest.mark.parametrize(
    ("replica", "event"),
    [
        pytest.param(
            spare(wasted=WASTED_MAX - 3),
            lost(WORKER_1, LossCause.STARTUP_TIMEOUT, incarnation=3, vm_generation=2),
            id="startup timeout, which counts as three early losses",
        ),
        pytest.param(
            spare(wasted=WASTED_MAX - 1),
            lost(WORKER_1, incarnation=3, vm_generation=2),
            id="thirtieth early loss",
        ),
        pytest.param(
            spare(),
            exited(WORKER_1, cause=ExitCause.SETUP, incarnation=3, vm_generation=2),
            id="set-up",
        ),
        pytest.param(
            spare(),
            exited(WORKER_1, 1, cause=ExitCause.INSTALL, incarnation=3, vm_generation=2),
            id="installation",
        ),
        pytest.param(
            spare(),
            exited(WORKER_1, cause=ExitCause.UNFIT, incarnation=3, vm_generation=2),
            id="unfit",
        ),
        pytest.param(
            spare(ReplicaState.RUNNING),
            lost(WORKER_1, LossCause.AGENT_SILENT, incarnation=3, vm_generation=2),
            id="silent",
        ),
    ],
)
def test_spare_member_gets_another_vm_whatever_happens_to_it(replica: Replica, event: Any) -> None:
    for is_held in (False, True):
        state = with_spare(replica, is_held=is_held)
        decision = judge(state, event, NOW)
        assert decision.action.kind == "replace_vm", decision
        assert after(state, event).job.round == state.job.round


def test_end_of_a_spare_members_vm_is_no_evidence() -> None:
    loss = lost(WORKER_1, incarnation=3, vm_generation=2)
    assert round_end(with_spare(spare(ReplicaState.RUNNING)), loss) is None
    end = round_end(
        with_spare(spare(ReplicaState.RUNNING, incarnation=2), is_held=True, ordered_at=at(95)),
        loss,
    )
    assert end is not None
    assert end.round == "1-3-held"


def test_loss_that_leaves_too_few_makes_all_missing_members_required_again() -> None:
    stopped = after(in_round_3(WORKER_1, without=(WORKER_1,)), lost(WORKER_0, incarnation=3))
    assert (stopped.job.round.number, stopped.job.round.without) == (4, ())
    failed = after(in_round_3(WORKER_1, without=(WORKER_1,)), exited(WORKER_0, 1, incarnation=3))
    assert (failed.job.round.number, failed.job.round.without) == (4, (WORKER_1,))


@pytest.mark.parametrize(
    ("changes", "round_"),
    [({}, 2), ({"is_held": True}, 3), ({"without": ()}, 3)],
    ids=["late", "held", "complete"],
)
def test_report_of_a_member_that_can_join_no_longer_is_ignored(
    changes: dict[str, Any], round_: int
) -> None:
    state = with_spare(spare(ReplicaState.RUNNING))
    state = replace(state, job=replace(state.job, round=replace(state.job.round, **changes)))
    assert judge(
        state, MembersJoin("digits_1", attempt=1, round=round_, number=1, at=NOW), NOW
    ).is_provisional


def test_rerun_waits_for_all_members_again() -> None:
    state = with_spare(spare(), is_held=True, ordered_at=at(90))
    chief, worker, spare_worker = state.replicas
    all_restarts_used = tuple(at(number) for number in range(RESTARTS_MAX))
    worker = replace(worker, restarts=all_restarts_used)
    state = replace(state, replicas=(chief, worker, spare_worker))
    crash = exited(WORKER_0, signal=11, incarnation=2)
    rerun = after(state, all_ready(WORKER_1, ends=(crash,)))
    assert (rerun.job.attempt, rerun.job.round.without, rerun.job.round.is_held) == (2, (), True)


def test_member_of_a_gang_whose_first_round_has_not_begun_is_not_spared() -> None:
    state = a_state(job=a_job(JobState.PREPARING, elastic(1)))
    assert not can_spare(state, WORKER_0)
