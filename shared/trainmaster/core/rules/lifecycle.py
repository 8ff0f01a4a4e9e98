"""The normal course of a job: it is submitted, leaves the admission queue, and its replicas become
ready.

    submitted ──► QUEUED ──► PREPARING: VMs requested ──► RUNNING: all required replicas ready

A synchronous job begins with a held round: its members wait until all of them are ready, and start
together. An incarnation is one execution of a replica's program. An event that comes too late is
ignored (`stale`); so is one that comes too early, which is judged again when it is repeated
(`provisional`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import (
    AcceptJob,
    BeginPreparing,
    MarkHostReady,
    MarkReady,
    SucceedJob,
)
from trainmaster.core.decisions import Decision, Reason, Rule, provisional, stale
from trainmaster.core.events import AllReady, JobSubmitted, ProvisioningStarted, VmReady
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.machine_set import HeldMachines, Taken
from trainmaster.core.model.members import current_incarnation, has_kept_vm, is_member, is_ready
from trainmaster.core.model.replica import HostVm, Replica
from trainmaster.core.model.round import Round
from trainmaster.core.rules import messages
from trainmaster.core.rules.capacity_backoff import next_request_at
from trainmaster.core.rules.evidence import round_end
from trainmaster.core.rules.member_exit import judge_primary_success
from trainmaster.core.rules.search import describe_order, first_turn
from trainmaster.core.rules.verdict import begin_running, judge_round


def is_same_submission(stored: Job, submitted: Job) -> bool:
    """Whether a submission was repeated: same source and same content.

    The sender of a message chooses its source.
    """
    return (stored.submission, stored.spec_json) == (submitted.submission, submitted.spec_json)


def judge_submission(state: State | None, event: JobSubmitted) -> Decision:
    """Accept the job unless its id is used. The same submission delivered twice is one job."""
    if state is None:
        job = event.job
        if job.plan.is_synchronous and job.tuning is None:
            job = replace(job, round=Round(is_held=True, ordered_at=job.created_at))
        if job.plan.keep_s is not None and job.tuning is None:
            job = replace(job, machines=HeldMachines(job.job_id))
        return Decision(
            Rule.LIFECYCLE, Reason.ACCEPTED, "The job is valid and new.", AcceptJob(job)
        )
    if is_same_submission(state.job, event.job):
        return stale(Reason.NOTHING_TO_DO, "The same submission was accepted before.")
    return stale(Reason.JOB_ID_TAKEN, messages.JOB_EXISTS)


def judge_provisioning_started(state: State, event: ProvisioningStarted, now: datetime) -> Decision:
    """Move the job out of the admission queue."""
    if state.job.state is not JobState.QUEUED:
        return stale(Reason.NOTHING_TO_DO, "Provisioning had begun before.")
    job = state.job
    if job.tuning:
        text = "The first trial's VMs are being created."
        begin = BeginPreparing(event.is_admission, order=())
        return Decision(Rule.LIFECYCLE, Reason.PREPARING, text, begin)
    if event.taken is not None:
        return _take(event.taken, job, event)
    turn = first_turn(job, event.outlook, now)  # the first request for VMs, and in which zone
    order = (turn.candidate, *(turn.remaining or ()))
    next_at = next_request_at(job, now, now) if turn.waits else None
    text = f"The job's VMs are being created.{describe_order(job, order, event.outlook)}"
    why_no_kept_machines = f" {event.misfit}" if event.misfit else ""
    text += why_no_kept_machines
    return Decision(
        Rule.LIFECYCLE, Reason.PREPARING, text, BeginPreparing(event.is_admission, order, next_at)
    )


def _take(taken: Taken, job: Job, event: ProvisioningStarted) -> Decision:
    """Let the job take kept machines. If they are lost, its search begins with their zone."""
    others = (number for number in range(len(job.plan.where.zones)) if number != taken.candidate)
    machines = taken.machine_set
    count = len(taken.vms)
    text = (
        f"The job takes {count} kept {'machine' if count == 1 else 'machines'} of"
        f" {machines.holder} in {machines.zone}."
    )
    missing = len(job.plan.replica_ids) - count
    text += f" {missing} more VMs are being created." if missing else ""
    begin = BeginPreparing(event.is_admission, (taken.candidate, *others), taken=taken)
    return Decision(Rule.LIFECYCLE, Reason.PREPARING, text, begin)


def judge_all_ready(state: State, event: AllReady, now: datetime) -> Decision:
    """Begin RUNNING when every required replica of the attempt has been ready since the gang last
    moved, or begin a held round.
    """
    job = state.job
    is_of_held_round = event.round > 0
    if is_of_held_round:
        return judge_round(state, event, now)
    if event.attempt != job.attempt:
        return stale(Reason.OUTDATED, f"The job was rerun after attempt {event.attempt}.")
    if job.state is not JobState.PREPARING:
        return stale(Reason.NOTHING_TO_DO, "The job is running already.")
    if event.floor != job.placement.floor:
        return provisional("The gang moved while its replicas were counted.")
    return begin_running(job)


def judge_ready(state: State, replica: Replica, event: VmReady, now: datetime) -> Decision:
    """Mark a replica ready. A slice is ready when the last of its hosts is."""
    job = state.job
    subject = event.subject
    who = replica.replica_id.words
    # `event.ended`: the exit of the previous program, which no message has reported before.
    success = judge_primary_success(state, event.ended, now) if event.ended else None
    # If only some hosts of a slice have exited 0, the job goes on: this host is ready like others.
    if success and isinstance(success.action, SucceedJob):
        return success
    host_vm = HostVm(subject.host or 0, event.host_vm) if event.host_vm else None
    if is_ready(job, replica):
        return stale(Reason.NOTHING_TO_DO, "The replica is ready already.")
    number = job.round.number if is_member(job.plan, replica.replica_id) else None
    # `placed`: the plan of the alternative whose VMs are requested now.
    hosts = job.placed.plan.group(replica.replica_id.task_type).hosts
    finding = f" Its VM failed the preflight: {event.finding}." if event.finding else ""
    # Those of an earlier incarnation count no longer.
    hosts_are_current = current_incarnation(job, replica) == replica.incarnation
    reported = replica.hosts_ready if hosts_are_current else ()
    has_ended = round_end(state, event) is not None
    keeps_vm = number is not None and has_kept_vm(job, replica)
    hosts_ready = {*reported, subject.host}
    if subject.host is not None and len(hosts_ready) < hosts:
        text = f"Host {subject.host} of {who} is ready: {len(hosts_ready)} of {hosts}.{finding}"
        host_ready = MarkHostReady(
            replica.key,
            subject.host,
            subject.vm.instance_id,
            host_vm,
            number,
            has_kept_vm=keeps_vm,
            has_ended=has_ended,
            left_peers=event.left_peers,
        )
        return Decision(Rule.LIFECYCLE, Reason.HOST_READY, text, host_ready)
    action = MarkReady(
        replica.key,
        subject.vm.instance_id,
        replica.vm_since or event.at,
        host_vm,
        number,
        has_kept_vm=keeps_vm,
        has_ended=has_ended,
        left_peers=event.left_peers,
        measurement=event.ended.measurement if event.ended else None,
    )
    # The first round of a job is not named: users see it as the start of the job.
    is_for_later_round = number is not None and job.round.is_held and job.started_at is not None
    is_left_out = replica.replica_id in job.round.without
    which = f" for round {number}" if is_for_later_round else ""
    if is_left_out and not job.round.is_held:
        which = " for the next round"
    before = f" Before, it {messages.exit_outcome(event.ended)}." if event.ended else ""
    return Decision(
        Rule.LIFECYCLE,
        Reason.READY,
        f"{who} is ready{which} on {subject.vm.name}.{before}{finding}",
        action,
    )
