"""Rule 11: what follows a capacity error: Google did not create the VMs that were requested.

A placement round is one request for all VMs in one zone. Its number is the `round` of a placement
and of a capacity error: so many requests failed before it.

Decisions are written as the number of the rule, the action and the reason:
`11 continue_provisioning blocked`.

An attempt is one execution of the whole job. A gang is the members of a job that start together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.decisions import Case, action_of, check_case, summarize
from tests.support.jobs import (
    CHIEF,
    START,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    a_state,
    at,
)
from trainmaster.core.actions import ContinueProvisioning, RerunJob
from trainmaster.core.events import CapacityErrorKind, VmsNotCreated, VmsQueued
from trainmaster.core.evolve import evolve
from trainmaster.core.model.job import Budgets, JobState, Placement, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import REFUSED_MAX

NOW = at(100)
WEEK_S = 7 * 86400
PREPARING = a_state(a_replica(WORKER_0, ReplicaState.WAITING), job=a_job(JobState.PREPARING))
IN_ZONE_B = a_state(job=a_job(JobState.PREPARING, placement=Placement(zone_index=1, round=1)))
BLOCKED_FOR_AN_HOUR = a_state(
    job=a_job(JobState.PREPARING, placement=Placement(blocked_since=NOW - REFUSED_MAX))
)
HUNDREDTH = 99
"""Number of the hundredth placement round: they count from 0."""
WEEK_OLD = a_job(
    JobState.PREPARING,
    placement=Placement(zone_index=0, round=HUNDREDTH),
    created_at=at(100 - WEEK_S),
)
FEW_ERRORS = a_state(job=replace(WEEK_OLD, placement=Placement(zone_index=0, round=HUNDREDTH - 1)))
YOUNGER = a_state(job=replace(WEEK_OLD, created_at=at(101 - WEEK_S)))
REPLACING = a_replica(
    WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=at(50)
)
PARTIAL = a_plan(gang=False, independent=True)
"""Workers are optional, and run while others are missing."""
MISSING_FOR_50_S = a_state(REPLACING)
MISSING_FOR_899_S = a_state(replace(REPLACING, ordered_at=at(100 - 899)))
MISSING_FOR_900_S = a_state(replace(REPLACING, ordered_at=at(100 - 900)))


def capacity_error(
    kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT,
    *,
    number: int = 0,
    zones_available: tuple[str, ...] = (),
) -> VmsNotCreated:
    """Return the capacity error of the placement round of this number."""
    return VmsNotCreated(
        "digits_1",
        attempt=1,
        zone="us-central1-a",
        round=number,
        error_kind=kind,
        code="ZONE_RESOURCE_POOL_EXHAUSTED",
        message="no resources",
        at=START,
        zones_available=zones_available,
    )


STOCKOUT = capacity_error()
QUOTA = capacity_error(CapacityErrorKind.QUOTA)
QUEUED = VmsQueued("digits_1", 1, "us-central1-a", 0, "VMs", START)
BLOCKED = "11 continue_provisioning blocked"
GIVEN_UP = "11 fail_job blocked"
CONTINUES = "11 continue_provisioning stockout"

CASES: Final[dict[str, Case]] = {
    "stockout before running": (PREPARING, STOCKOUT, CONTINUES),
    "request in Cloud TPU's queue": (PREPARING, QUEUED, "11 ignore queued"),
    "no quota": (PREPARING, QUOTA, "11 continue_provisioning quota"),
    "internal error": (PREPARING, capacity_error(CapacityErrorKind.INTERNAL), BLOCKED),
    "internal error since an hour": (
        BLOCKED_FOR_AN_HOUR,
        capacity_error(CapacityErrorKind.INTERNAL),
        GIVEN_UP,
    ),
    "internal error after running": (
        MISSING_FOR_900_S,
        capacity_error(CapacityErrorKind.INTERNAL),
        BLOCKED,
    ),
    "permanent error": (PREPARING, capacity_error(CapacityErrorKind.DENIED), GIVEN_UP),
    "permanent error after running": (
        MISSING_FOR_900_S,
        capacity_error(CapacityErrorKind.DENIED),
        BLOCKED,
    ),
    "error for an operator": (PREPARING, capacity_error(CapacityErrorKind.BLOCKED), BLOCKED),
    "error for an operator since an hour": (
        BLOCKED_FOR_AN_HOUR,
        capacity_error(CapacityErrorKind.BLOCKED),
        GIVEN_UP,
    ),
    "error for an operator after running": (
        MISSING_FOR_900_S,
        capacity_error(CapacityErrorKind.BLOCKED),
        BLOCKED,
    ),
    "hundredth stockout after a week": (
        a_state(job=WEEK_OLD),
        capacity_error(number=HUNDREDTH),
        "11 fail_job never_any_capacity",
    ),
    "99th stockout after a week": (
        FEW_ERRORS,
        capacity_error(number=HUNDREDTH - 1),
        CONTINUES,
    ),
    "hundredth stockout before a week": (
        YOUNGER,
        capacity_error(number=HUNDREDTH),
        CONTINUES,
    ),
    "stockout of an older round": (IN_ZONE_B, STOCKOUT, "1 ignore nothing_to_do"),
    "queued request of an older round": (IN_ZONE_B, QUEUED, "1 ignore nothing_to_do"),
    "stockout while part of the gang runs": (MISSING_FOR_50_S, STOCKOUT, CONTINUES),
    "stockout while part of the gang ran for just less than 15 minutes": (
        MISSING_FOR_899_S,
        STOCKOUT,
        CONTINUES,
    ),
    "lasting stockout while part of the gang runs": (
        MISSING_FOR_900_S,
        STOCKOUT,
        "11 rerun_job stockout",
    ),
}


@pytest.mark.parametrize(
    ("independent", "expected"), [(True, BLOCKED), (False, GIVEN_UP)], ids=["alone", "in rounds"]
)
def test_refusal_ends_a_job_only_before_a_program_of_it_may_run(
    *, independent: bool, expected: str
) -> None:
    """Replicas of independent jobs run while others have no VMs; those of any other job do not."""
    job = a_job(JobState.PREPARING, a_plan(independent=independent))
    state = a_state(a_replica(WORKER_0, ReplicaState.WAITING), job=job)
    assert summarize(judge(state, capacity_error(CapacityErrorKind.DENIED), NOW)) == expected


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_judge_decides_about_a_capacity_error(case: Case) -> None:
    check_case(case, NOW)


def test_gang_moves_to_a_zone_that_google_names_else_to_the_next_one() -> None:
    event = capacity_error(zones_available=("us-central1-b", "us-east1-b"))
    named = action_of(judge(PREPARING, event, NOW), ContinueProvisioning)
    assert (named.zone_index, named.round) == (1, 1)
    same_zone = capacity_error(zones_available=("us-central1-a",))
    assert action_of(judge(PREPARING, same_zone, NOW), ContinueProvisioning).zone_index == 1


ALL_LOST = a_state(
    *(replace(REPLACING, replica_id=replica_id) for replica_id in (CHIEF, WORKER_0, WORKER_1))
)
OPTIONAL_RUNS = a_state(
    replace(REPLACING, replica_id=CHIEF),
    replace(REPLACING, replica_id=WORKER_1),
    job=a_job(plan=PARTIAL),
)


@pytest.mark.parametrize(
    "state", [ALL_LOST, OPTIONAL_RUNS], ids=["all lost", "an optional worker runs"]
)
def test_gang_that_has_lost_all_required_vms_moves_at_once_and_keeps_its_attempt(
    state: State,
) -> None:
    """VMs that were lost together are gone for hours.

    Nothing runs that a wait in this zone could keep.
    """
    action = action_of(judge(state, STOCKOUT, NOW), ContinueProvisioning)
    assert (action.zone_index, action.next_at) == (1, None)
    job = evolve(state, judge(state, STOCKOUT, NOW), NOW).job
    assert job is not None
    assert (job.attempt, job.zone) == (1, "us-central1-b")


def test_moving_the_whole_gang_is_free_and_requests_all_of_it_in_the_other_zone() -> None:
    decision = judge(MISSING_FOR_900_S, STOCKOUT, NOW)
    assert isinstance(decision.action, RerunJob)
    job = evolve(MISSING_FOR_900_S, decision, NOW).job
    assert job is not None
    assert (job.attempt, job.budgets, job.zone, job.placement.round) == (
        2,
        Budgets(),
        "us-central1-b",
        1,
    )


def test_missing_quota_does_not_move_the_gang_because_zones_of_a_region_share_it() -> None:
    action = action_of(judge(PREPARING, QUOTA, NOW), ContinueProvisioning)
    assert (action.zone_index, action.round) == (0, 1)


@pytest.mark.parametrize(
    "kind", [CapacityErrorKind.STOCKOUT, CapacityErrorKind.INTERNAL, CapacityErrorKind.QUOTA]
)
@pytest.mark.parametrize(
    "state", [PREPARING, MISSING_FOR_900_S], ids=["before RUNNING", "after 15 minutes"]
)
def test_error_for_an_optional_vm_keeps_the_job_in_its_zone_and_attempt(
    kind: CapacityErrorKind, state: State
) -> None:
    decision = judge(state, replace(capacity_error(kind), required_present=True), NOW)
    action = decision.action
    assert isinstance(action, ContinueProvisioning)
    assert action.zone_index == state.job.placement.zone_index
    assert action.next_at is not None
    assert action.next_at > NOW


def test_error_for_an_operator_is_asked_again_in_the_same_zone_until_a_named_time() -> None:
    decision = judge(PREPARING, capacity_error(CapacityErrorKind.BLOCKED), NOW)
    action = action_of(decision, ContinueProvisioning)
    assert (action.zone_index, action.blocked_since) == (0, NOW)
    assert action.next_at is not None
    until = f"{NOW + REFUSED_MAX:%Y-%m-%d %H:%M} UTC"
    assert f"which an operator can repair, at most until {until}: trying again in" in decision.text
    blocked = evolve(PREPARING, decision, NOW).job
    assert blocked is not None
    assert blocked.placement.blocked_since == NOW
    again = State(blocked, PREPARING.replicas)
    assert (
        action_of(
            judge(again, capacity_error(number=1), at(60)), ContinueProvisioning
        ).blocked_since
        is None
    )
