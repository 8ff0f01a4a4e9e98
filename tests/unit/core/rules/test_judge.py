"""Rule 1, the normal course of a job, rule 12 and other requests of users.

Rule 1 ignores events that are out of date, or about something that was never ordered (provisional:
they may count later). A job that moves to another zone raises the floor, the lowest VM generation
that counts, so that VMs in the zone before no longer count.

Decisions are written as the number of the rule, the action and the reason:
`0 accept_job accepted`.

An attempt is one execution of the whole job, and an incarnation one execution of a replica's
program within it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, get_args

import pytest

from tests.support.alone import a_job, a_state
from tests.support.decisions import Case, action_of, check_case
from tests.support.jobs import CHIEF, WORKER_0, a_replica, at, exited, ready
from trainmaster.core.actions import CancelJob, Ignore
from trainmaster.core.events import (
    AllReady,
    CancelRequested,
    Deadline,
    DeadlinePassed,
    DeleteRequested,
    Event,
    JobSubmitted,
    LabelsChanged,
    ProvisioningStarted,
)
from trainmaster.core.model.job import JobState, Label, Placement
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.rules.judge import ENDED_JOB_RULES, LIVE_JOB_RULES, REPLICA_RULES, judge

NOW = at(100)
RUNNING = a_state()
QUEUED = a_state(job=a_job(JobState.QUEUED))
PREPARING = a_state(job=a_job(JobState.PREPARING))
MOVED = a_state(job=a_job(JobState.PREPARING, placement=Placement(zone_index=1, floor=3)))
SUCCEEDED = a_state(job=a_job(JobState.SUCCEEDED))
FAILED = a_state(job=a_job(JobState.FAILED))
DELETED = a_state(job=a_job(JobState.FAILED, deleted_at=NOW))
RELABELLED = a_state(job=a_job(labels_version=2))
ATTEMPT_2 = a_state(job=a_job(attempt=2))
WORKER_0_WAITING = a_state(a_replica(WORKER_0, ReplicaState.WAITING))
WORKER_0_RESTARTING = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2))
WORKER_0_REPLACED = a_state(a_replica(WORKER_0, incarnation=2, vm_generation=2))
WORKER_0_COMPLETED = a_state(a_replica(WORKER_0, ReplicaState.COMPLETED))
SAME_JOB = JobSubmitted(a_job(), NOW)
OTHER_JOB = JobSubmitted(a_job(submission="other"), NOW)
STARTED = ProvisioningStarted("digits_1", NOW)
ALL_READY = AllReady("digits_1", attempt=1, at=NOW)
CANCEL = CancelRequested("digits_1", "me@example.com", NOW)
DELETE = DeleteRequested("digits_1", change="a", at=NOW, by="me@example.com")
LABEL = LabelsChanged("digits_1", (Label("a", "b"),), change="a", at=NOW, by="me@example.com")
LABEL_SEEN_1 = replace(LABEL, labels=(), seen=1)
"""Of a user who saw the first version of the labels."""
RUNNING_DEADLINE = DeadlinePassed("digits_1", Deadline.RUNNING, NOW)
WAIT_DEADLINE = DeadlinePassed("digits_1", Deadline.WAIT, NOW)

CASES: Final[dict[str, Case]] = {
    "new job is accepted": (
        None,
        JobSubmitted(a_job(JobState.QUEUED), NOW),
        "0 accept_job accepted",
    ),
    "same submission is the same job": (RUNNING, SAME_JOB, "1 ignore nothing_to_do"),
    "other submission of a used job id is ignored": (RUNNING, OTHER_JOB, "1 ignore job_id_taken"),
    "queued job begins provisioning": (QUEUED, STARTED, "0 begin_preparing preparing"),
    "preparing job begins provisioning only once": (PREPARING, STARTED, "1 ignore nothing_to_do"),
    "waiting replica becomes ready": (WORKER_0_WAITING, ready(WORKER_0), "0 mark_ready ready"),
    "restarting replica becomes ready": (
        WORKER_0_RESTARTING,
        ready(WORKER_0, incarnation=2),
        "0 mark_ready ready",
    ),
    "running replica is ready only once": (RUNNING, ready(WORKER_0), "1 ignore nothing_to_do"),
    "last ready replica starts the job": (PREPARING, ALL_READY, "0 begin_running all_ready"),
    "readiness that was counted before a move does not start the job": (
        MOVED,
        ALL_READY,
        "1 ignore provisional",
    ),
    "readiness that was counted after a move starts the job": (
        MOVED,
        replace(ALL_READY, floor=3),
        "0 begin_running all_ready",
    ),
    "readiness of an older attempt is ignored": (ATTEMPT_2, ALL_READY, "1 ignore outdated"),
    # Rule 1
    "exit after the job's end is ignored": (SUCCEEDED, exited(CHIEF, 1), "1 ignore nothing_to_do"),
    "exit of an older attempt is ignored": (ATTEMPT_2, exited(CHIEF, 1), "1 ignore outdated"),
    "exit of an older incarnation is ignored": (
        WORKER_0_RESTARTING,
        exited(WORKER_0, 1),
        "1 ignore outdated",
    ),
    "exit on an older VM is ignored": (
        WORKER_0_REPLACED,
        exited(WORKER_0, 1),
        "1 ignore outdated",
    ),
    "exit of a later incarnation than ordered is ignored": (
        RUNNING,
        exited(WORKER_0, 1, incarnation=9),
        "1 ignore provisional",
    ),
    "exit of a later attempt than ordered is ignored": (
        RUNNING,
        exited(WORKER_0, 1, attempt=9),
        "1 ignore provisional",
    ),
    "exit of an unknown replica is ignored": (
        RUNNING,
        exited(replace(WORKER_0, index=7), 1),
        "1 ignore provisional",
    ),
    "exit of a queued job, which has no VM, is ignored": (
        QUEUED,
        exited(CHIEF, 0),
        "1 ignore provisional",
    ),
    "second exit of a completed replica is ignored": (
        WORKER_0_COMPLETED,
        exited(WORKER_0, 1),
        "1 ignore nothing_to_do",
    ),
    # Rule 12 and other requests of users
    "running job is cancelled": (RUNNING, CANCEL, "12 cancel_job cancelled_by_user"),
    "deadline that has not passed is ignored": (RUNNING, RUNNING_DEADLINE, "1 ignore provisional"),
    "ended job is deleted": (FAILED, DELETE, "0 delete_job deleted_by_user"),
    "deleted job is deleted only once": (
        DELETED,
        replace(DELETE, change="b"),
        "1 ignore nothing_to_do",
    ),
    "running job is not deleted": (RUNNING, DELETE, "1 ignore not_ended"),
    "running job is labelled": (RUNNING, LABEL, "0 set_labels labels_changed"),
    "ended job is labelled": (FAILED, LABEL_SEEN_1, "0 set_labels labels_changed"),
    "labels that changed since they were read are kept": (
        RELABELLED,
        LABEL_SEEN_1,
        "1 ignore outdated",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_judge_decides_by_rule_1_and_requests(case: Case) -> None:
    check_case(case, NOW)


def test_judge_has_a_rule_for_every_type_of_event() -> None:
    assert {*ENDED_JOB_RULES, *LIVE_JOB_RULES, *REPLICA_RULES, JobSubmitted} == set(get_args(Event))


def test_running_deadline_counts_from_running_to_the_second() -> None:
    """The job of these tests runs since `at(10)`, with a `maxRunningTime` of an hour."""
    assert isinstance(judge(RUNNING, RUNNING_DEADLINE, at(10 + 3599)).action, Ignore)
    action = action_of(judge(RUNNING, RUNNING_DEADLINE, at(10 + 3600)), CancelJob)
    assert (
        action.message
        == "Job was cancelled for exceeding the maximum allowed duration of 3600 seconds."
    )


def test_wait_deadline_counts_from_creation_and_ends_with_running() -> None:
    """The job of these tests was created at `at(0)`, with a `maxWaitTime` of half an hour."""
    assert isinstance(judge(PREPARING, WAIT_DEADLINE, at(1799)).action, Ignore)
    assert isinstance(judge(PREPARING, WAIT_DEADLINE, at(1800)).action, CancelJob)
    assert isinstance(judge(RUNNING, WAIT_DEADLINE, at(1800)).action, Ignore)
