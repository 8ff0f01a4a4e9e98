"""The rules: what an event means for a job.

Every event has a decision, also a stale or an unknown one.

    event ──► stale? (rule 1) ──► the rule of its type ──► Decision(rule, reason, text, action)

docs/rules.md explains the rules. This module holds rule 1 and the table from event types to rules.

Events arrive late, twice and in any order. Rule 1 ignores those that are not about the current VM
of a replica (its VM generation), or not about the current execution of its program (attempt and
incarnation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from trainmaster.core.decisions import Decision, Reason, provisional, stale
from trainmaster.core.events import (
    AllReady,
    CancelRequested,
    CostChecked,
    DeadlinePassed,
    DeleteRequested,
    Event,
    JobSubmitted,
    LabelsChanged,
    MachinesLost,
    MachinesReleased,
    MemberMissing,
    MembersJoin,
    ProvisioningStarted,
    ReplicaEvent,
    ReplicaExited,
    SaveOver,
    StopRequested,
    TrialEnded,
    TrialsMeasured,
    TrialStarted,
    TrialSuggested,
    TrialUnpromising,
    TuningEnded,
    VmLost,
    VmNoticed,
    VmReady,
    VmsNotCreated,
    VmsOutOfReach,
    VmsQueued,
    ZonesEmptied,
)
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.members import current_incarnation, is_member
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.rules.capacity import (
    judge_vms_not_created,
    judge_vms_out_of_reach,
    judge_vms_queued,
    judge_zones_emptied,
)
from trainmaster.core.rules.early_stopping import judge_measurements, judge_stop, judge_unpromising
from trainmaster.core.rules.kept_machines import (
    judge_loss_while_kept,
    judge_lost_machines,
    judge_release,
)
from trainmaster.core.rules.lifecycle import (
    judge_all_ready,
    judge_provisioning_started,
    judge_ready,
    judge_submission,
)
from trainmaster.core.rules.member_exit import (
    judge_growth,
    judge_member_exit,
    judge_missing_member,
    judge_notice,
    judge_primary_success,
    judge_save_over,
)
from trainmaster.core.rules.replica_exit import judge_exit
from trainmaster.core.rules.tuning import judge_suggestion, judge_trial, judge_tuning_ended
from trainmaster.core.rules.user_requests import (
    judge_cancel,
    judge_cost,
    judge_deadline,
    judge_deletion,
    judge_labels,
)
from trainmaster.core.rules.vm_loss import judge_vm_loss

JobRule = Callable[[State, Any, datetime], Decision]
"""Decides about an event of one type, which is typed in the rule's own signature."""
ReplicaRule = Callable[[State, Replica, Any, datetime], Decision]

ENDED_JOB_RULES: Final[Mapping[type, JobRule]] = {
    LabelsChanged: judge_labels,
    DeleteRequested: judge_deletion,
    MachinesReleased: judge_release,
    MachinesLost: judge_lost_machines,
    TrialStarted: judge_trial,
    TrialEnded: judge_trial,
}
"""Rules of events that also concern a job that has ended."""

LIVE_JOB_RULES: Final[Mapping[type, JobRule]] = {
    ProvisioningStarted: judge_provisioning_started,
    AllReady: judge_all_ready,
    MemberMissing: judge_missing_member,
    MembersJoin: judge_growth,
    SaveOver: judge_save_over,
    VmsNotCreated: judge_vms_not_created,
    VmsOutOfReach: judge_vms_out_of_reach,
    VmsQueued: judge_vms_queued,
    ZonesEmptied: judge_zones_emptied,
    CancelRequested: judge_cancel,
    CostChecked: judge_cost,
    DeadlinePassed: judge_deadline,
    TrialSuggested: judge_suggestion,
    TrialsMeasured: judge_measurements,
    TrialUnpromising: judge_unpromising,
    StopRequested: judge_stop,
    TuningEnded: judge_tuning_ended,
}

REPLICA_RULES: Final[Mapping[type, ReplicaRule]] = {
    VmReady: judge_ready,
    ReplicaExited: judge_exit,
    VmLost: judge_vm_loss,
    VmNoticed: judge_notice,
}
"""Rules of events whose subject is the replica's current incarnation, or its current VM (`VmLost`).
"""


def judge(state: State | None, event: Event, now: datetime) -> Decision:
    """Return the decision about an event. `state` is None only if no job has the event's job id.

    `state` holds at least what `event.reads` names; a rerun is decided again with the whole
    attempt.
    """
    if isinstance(event, JobSubmitted):
        return judge_submission(state, event)
    if state is None:
        return provisional("No such job.")
    rule = ENDED_JOB_RULES.get(type(event))
    if rule is not None:
        return rule(state, event, now)
    without_subject = _without_subject(state, event)
    if without_subject is not None:
        return without_subject
    if isinstance(event, ReplicaEvent):
        return _judge_replica_event(state, event, now)
    return LIVE_JOB_RULES[type(event)](state, event, now)


def _without_subject(state: State, event: Event) -> Decision | None:
    """Return the decision about an event whose subject never existed or whose job has ended: to
    ignore it, unless it is the loss or a fault of a VM that is kept. None: judge it further.
    """
    if isinstance(event, VmLost | ReplicaExited):
        kept_loss = judge_loss_while_kept(state, event)
        if kept_loss is not None:
            return kept_loss
    if isinstance(event, ReplicaEvent) and _was_never_ordered(state, event):
        return provisional("The event is about an incarnation or VM that was never ordered.")
    if state.job.state.is_terminal:
        return stale(Reason.NOTHING_TO_DO, f"The job has already ended: {state.job.state}.")
    return None


def _was_never_ordered(state: State, event: ReplicaEvent) -> bool:
    """Whether the event names something that does not exist.

    Such events are not stored: a program could invent any number of them. Events about what existed
    are few.
    """
    subject = event.subject
    job = state.job
    if job.state is JobState.QUEUED:
        return True  # the database was restored to a time before the job had VMs
    named = state.find(subject.attempt, subject.replica_id)
    replica = named or state.find(job.attempt, subject.replica_id)
    if (
        replica is None
        or subject.attempt > job.attempt
        or subject.vm_generation > replica.vm_generation
    ):
        return True
    if named is None:
        return False
    is_current = named.attempt == job.attempt
    return subject.incarnation > (
        current_incarnation(job, named) if is_current else named.incarnation
    )


def _judge_replica_event(state: State, event: ReplicaEvent, now: datetime) -> Decision:
    """Return the decision of rule 1 if the event is outdated, else that of the event's own rule.

    A success of the primary counts first, because it may be of an earlier round or attempt.
    """
    subject = event.subject
    job = state.job
    if isinstance(event, ReplicaExited):
        exits = (event, event.ended) if event.ended else (event,)
        successes = [judge_primary_success(state, exited, now) for exited in exits]
        success = next(filter(None, successes), None)
        if success is not None:
            return success
    replica = state.find(job.attempt, subject.replica_id)
    # A VM outlives an attempt: its loss counts even if the event names an older attempt.
    is_vm_loss = isinstance(event, VmLost) and event.is_vm_loss
    if subject.attempt < job.attempt and not is_vm_loss:
        reason = Reason.PROVISIONAL if _is_of_member(state, event) else Reason.OUTDATED
        return stale(reason, f"The job was rerun after attempt {subject.attempt}.")
    if replica is None:
        return provisional("The job has no such replica.")
    is_member_exit = isinstance(event, ReplicaExited) and is_member(job.plan, subject.replica_id)
    rule: ReplicaRule = judge_member_exit if is_member_exit else REPLICA_RULES[type(event)]
    return _fence(state, replica, event) or rule(state, replica, event, now)


def _is_of_member(state: State, event: ReplicaEvent) -> bool:
    """Whether the event is a report of a member about a round.

    Late ones are many, and are not recorded.
    """
    return not isinstance(event, VmLost) and is_member(state.job.plan, event.subject.replica_id)


def _fence(state: State, replica: Replica, event: ReplicaEvent) -> Decision | None:
    """Return the decision to ignore an event about a VM or incarnation that is not the current one;
    None: judge it further. Those that were never ordered are ignored before (`_was_never_ordered`).
    """
    subject = event.subject
    if subject.vm_generation != replica.vm_generation:
        return stale(Reason.OUTDATED, "The event is about an older VM of this replica.")
    if _is_other_vm(state, replica, event):
        return provisional("The event is about another VM than the one that this replica runs on.")
    if isinstance(event, VmLost):
        return None
    incarnation = current_incarnation(state.job, replica)
    if subject.incarnation != incarnation:
        reason = Reason.PROVISIONAL if _is_of_member(state, event) else Reason.OUTDATED
        return stale(reason, "The event is about an older incarnation of this replica.")
    if replica.state is ReplicaState.COMPLETED:
        return stale(Reason.NOTHING_TO_DO, "The replica has already exited 0.")
    return None


def _is_other_vm(state: State, replica: Replica, event: ReplicaEvent) -> bool:
    """Whether another VM of the same VM generation has reported.

    A VM that is missing has no id in an event. The hosts of a slice may not know the id of their
    node.
    """
    is_slice = state.job.plan.group(replica.replica_id.task_type).tpu is not None
    if replica.instance_id is None or is_slice:
        return False
    return event.subject.vm.instance_id not in ("", replica.instance_id)
