"""The rules: what an event means for a job. Total: every event has a verdict, stale and unknown ones included.

    event ──► stale? (rule 1) ──► the event's own rules, first match wins ──► verdict

The rule table is in docs/rules.md; the order of the checks in `_judge_exit` is the order of its rows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, assert_never

from shared.core import messages
from shared.core.events import (
    AllReady,
    CancelRequested,
    CapacityRefused,
    Deadline,
    DeadlinePassed,
    Event,
    ExitCause,
    JobSubmitted,
    LossCause,
    ProvisioningStarted,
    ReplicaEvent,
    ReplicaExited,
    VmLost,
    VmReady,
)
from shared.core.jobs import (
    INTERNAL_RETRIES_MAX,
    RERUNS_MAX,
    RESTARTS_MAX,
    Job,
    JobState,
    LastExit,
    Replica,
    ReplicaState,
    State,
)
from shared.core.verdicts import (
    AcceptJob,
    BeginPreparing,
    BeginRunning,
    Budget,
    CancelJob,
    FailJob,
    HoldReplica,
    Ignore,
    MarkReady,
    Reason,
    RecordCompletion,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    Rule,
    SucceedJob,
    TryElsewhere,
    Verdict,
)

PERMANENT_STATUSES: Final = (2, 126, 127)
"""Usage error, cannot execute, not found: the shell's own conventions; another try gives the same."""
CRASH_SIGNALS: Final = (6, 11)
CRASH_STATUSES: Final = (134, 139)
"""SIGABRT and SIGSEGV, as packages (signal) and containers (128 + signal) report them. Source: the service's rules."""
IMPORT_ERRORS: Final = ("ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError", "TabError")
PEER_LOSS_TYPES: Final = (
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
    "DistBackendError",
    "DistNetworkError",
    "ConnectionError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "BrokenPipeError",
)
PEER_LOSS_WORDS: Final = ("connection closed", "connection reset", "connection refused", "socket closed", "broken pipe")
"""Errors in which a framework tells that a peer is gone: TensorFlow's collectives and coordination service, torch's process
groups, plain sockets. Measured: UnavailableError, AbortedError; gloo's RuntimeError says it in words. Whoever raises one says
nothing of himself, so its repetition is never "the same failure again"."""


def judge(state: State | None, event: Event, now: datetime) -> Verdict:
    """`state` is None only where no job of that id exists."""
    if isinstance(event, JobSubmitted):
        return _judge_submission(state, event)
    if state is None:
        return Ignore(Rule.STALE, Reason.UNKNOWN_LIFE, "No such job.")
    if state.job.state.is_terminal:
        return Ignore(Rule.STALE, Reason.JOB_ENDED, f"The job has already ended: {state.job.state}.")
    match event:
        case ProvisioningStarted():
            if state.job.state is not JobState.QUEUED:
                return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "Provisioning had begun before.")
            return BeginPreparing(Rule.COURSE, Reason.PREPARING, "The job's VMs are being created.")
        case AllReady():
            if event.attempt != state.job.attempt:
                return Ignore(Rule.STALE, Reason.OLD_ATTEMPT, f"Attempt {event.attempt} was rerun.")
            if state.job.state is not JobState.PREPARING:
                return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The job is running already.")
            return BeginRunning(Rule.COURSE, Reason.ALL_READY, "Every replica is up: the job is running.")
        case CapacityRefused():
            return _judge_refusal(state.job, event)
        case CancelRequested():
            return CancelJob(
                messages.CANCELLED_BY_USER, Rule.ENDED, Reason.CANCELLED_BY_USER, f"Cancelled by {event.by}."
            )
        case DeadlinePassed():
            return _judge_deadline(state.job, event, now)
        case VmReady() | ReplicaExited() | VmLost():
            return _judge_replica(state, event)
        case _:
            assert_never(event)


def _judge_submission(state: State | None, event: JobSubmitted) -> Verdict:
    if state is None:
        return AcceptJob(event.job, Rule.COURSE, Reason.ACCEPTED, "The job is valid and new.")
    if state.job.submission == event.job.submission:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The same submission was accepted before.")
    return Ignore(Rule.STALE, Reason.JOB_ID_TAKEN, messages.JOB_EXISTS)


def _judge_refusal(job: Job, event: CapacityRefused) -> Verdict:
    """Rule 11. Before RUNNING the gang moves to the next zone; later the rest of it is sought where its peers are."""
    if (event.attempt, event.zone, event.round) != (job.attempt, job.zone, job.placement.round):
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, f"VMs are no longer sought in {event.zone}.")
    said = f"{event.code}: {event.message}"
    if event.refusal == "denied":
        message = messages.internal_error(f"Compute Engine refused to create the VMs: {said}")
        return FailJob(message, Rule.INTERNAL, Reason.DENIED, f"Google says {said}; trying again cannot help.")
    if event.refusal == "internal":
        return _internal(job, f"Compute Engine could not create the VMs: {said}", Reason.CREATE_FAILED)
    reason = Reason.QUOTA if event.refusal == "quota" else Reason.STOCKOUT
    zone_index, rounds = job.placement.zone_index, job.placement.round + 1
    if job.started_at is None and reason is Reason.STOCKOUT:
        named = [job.plan.zones.index(zone) for zone in event.zones_available if zone in job.plan.zones]
        zone_index = named[0] if named else (zone_index + 1) % len(job.plan.zones)
    where = job.plan.zones[zone_index]
    return TryElsewhere(
        zone_index, rounds, Rule.CAPACITY, reason, f"No VMs in {event.zone} ({said}); trying {where} next."
    )


def _judge_deadline(job: Job, event: DeadlinePassed, now: datetime) -> Verdict:
    """Rule 12. The judge looks at the clock itself: a deadline that was reported too early is not one."""
    if event.deadline is not passed_deadline(job, now):
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The deadline has not passed.")
    match event.deadline:
        case Deadline.RUNNING:
            limit_s, said, reason = job.plan.max_running_s, messages.exceeded_running_time, Reason.MAX_RUNNING_TIME
        case Deadline.WAIT:
            limit_s, said, reason = job.plan.max_wait_s or 0, messages.exceeded_wait_time, Reason.MAX_WAIT_TIME
        case _:
            assert_never(event.deadline)
    return CancelJob(said(limit_s), Rule.ENDED, reason, f"{limit_s} s have passed: the job is cancelled.")


def passed_deadline(job: Job, now: datetime) -> Deadline | None:
    """maxRunningTime counts from RUNNING, maxWaitTime from creation until then."""
    plan = job.plan
    if job.started_at is not None:
        return Deadline.RUNNING if now >= job.started_at + timedelta(seconds=plan.max_running_s) else None
    if plan.max_wait_s is not None and now >= job.created_at + timedelta(seconds=plan.max_wait_s):
        return Deadline.WAIT
    return None


def _judge_replica(state: State, event: ReplicaEvent) -> Verdict:
    life = event.life
    replica = state.find(life.attempt, life.seat)
    if life.attempt < state.job.attempt:
        return Ignore(Rule.STALE, Reason.OLD_ATTEMPT, f"Attempt {life.attempt} was rerun.")
    if replica is None or life.attempt > state.job.attempt:
        return Ignore(Rule.STALE, Reason.UNKNOWN_LIFE, "The job has no such replica.")
    if life.machine != replica.machine:
        return _other_life(Reason.OLD_MACHINE, "VM", is_older=life.machine < replica.machine)
    if isinstance(event, VmLost):
        return _judge_loss(replica, event)
    if life.incarnation != replica.incarnation:
        return _other_life(Reason.OLD_INCARNATION, "incarnation", is_older=life.incarnation < replica.incarnation)
    if replica.state is ReplicaState.COMPLETED:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica has already exited 0.")
    if isinstance(event, VmReady):
        if replica.state is ReplicaState.RUNNING:
            return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica is up already.")
        return MarkReady(
            replica.key,
            life.vm.instance_id,
            Rule.COURSE,
            Reason.READY,
            f"{replica.seat.words} is up on {life.vm.name}.",
        )
    return _judge_exit(state, replica, event)


def _other_life(reason: Reason, what: str, *, is_older: bool) -> Ignore:
    if is_older:
        return Ignore(Rule.STALE, reason, f"It comes from an older {what} of this replica.")
    return Ignore(Rule.STALE, Reason.UNKNOWN_LIFE, f"It comes from a {what} that was never ordered.")


def _judge_loss(replica: Replica, event: VmLost) -> Verdict:
    """Rule 4. The incarnation does not matter: whatever life was on that machine, the machine is lost."""
    if replica.state is ReplicaState.COMPLETED:
        return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, "The replica had exited 0; its VM is not needed.")
    why = {
        LossCause.MAINTENANCE: "goes into host maintenance",
        LossCause.PREEMPTION: "was preempted",
        LossCause.HOST_ERROR: "was lost to a host error",
        LossCause.GONE: "is gone",
    }[event.cause]
    return ReplaceVm(
        replica.key,
        Rule.VM_LOST,
        Reason(event.cause.value),
        f"{event.life.vm.name} {why}: {replica.seat.words} starts on another VM with the same hostname, at no charge.",
    )


def _judge_exit(state: State, replica: Replica, event: ReplicaExited) -> Verdict:
    job, who = state.job, replica.seat.words
    how = messages.how_it_ended(event)
    if event.succeeded and replica.seat == job.plan.primary:
        return SucceedJob(
            replica.key, Rule.PRIMARY_DONE, Reason.PRIMARY_EXITED_ZERO, f"{who} is the primary and exited 0."
        )
    if event.succeeded:
        return RecordCompletion(replica.key, Rule.REPLICA_DONE, Reason.EXITED_ZERO, f"{who} exited 0; the job goes on.")
    last = LastExit(replica.incarnation, event.exit_status, event.signal, event.signature)
    if event.cause is ExitCause.VM_RESTARTED:
        return RestartReplica(
            replica.key, last, Budget.FREE, Rule.VM_LOST, Reason.VM_RESTARTED, f"The VM of {who} restarted under it."
        )
    if event.cause is ExitCause.SETUP:
        return _internal(
            job, f"{who} could not be set up: {event.tail.strip() or 'no cause given'}", Reason.SETUP_FAILED
        )
    if job.plan.disable_retries:
        return FailJob(
            messages.failed(event),
            Rule.RETRIES_DISABLED,
            Reason.RETRIES_DISABLED,
            f"{who} {how}; retries are disabled.",
        )
    if cause := _lost_peer(state, replica, event):
        down = cause.state.is_down
        reason = Reason.PEER_DOWN if down else Reason.PEER_LOST_MEANWHILE
        text = f"{who} {how} because {cause.seat.words} was lost: " + (
            "it restarts when its peers are back, at no charge." if down else "it restarts at no charge."
        )
        return HoldReplica(replica.key, cause.key, Rule.COLLATERAL, reason, text)
    if permanent := _permanent(replica, event):
        return FailJob(messages.failed(event), Rule.PERMANENT, permanent, f"{who} {how}: trying again gives the same.")
    if event.signal in CRASH_SIGNALS or event.exit_status in CRASH_STATUSES:
        return _rerun(job, event, Rule.CRASH, Reason.CRASH_SIGNAL, f"{who} {how}")
    if job.plan.restart_job_on_worker_restart:
        return _rerun(job, event, Rule.RESTART, Reason.RESTART_JOB_ON_WORKER_RESTART, f"{who} {how}")
    if replica.restarts_used >= RESTARTS_MAX:
        return _rerun(job, event, Rule.RESTART, Reason.RESTARTS_SPENT, f"{who} {how} after {RESTARTS_MAX} restarts")
    nth = replica.restarts_used + 1
    return RestartReplica(
        replica.key,
        last,
        Budget.RESTARTS,
        Rule.RESTART,
        Reason.NON_ZERO_EXIT,
        f"{who} {how}: it restarts in the same VM (restart {nth} of {RESTARTS_MAX}).",
    )


def _lost_peer(state: State, replica: Replica, event: ReplicaExited) -> Replica | None:
    """A peer whose own loss explains this exit: it is down now, or was lost during this replica's present life.

    A loss explains at most one exit of each peer (what was forgiven after it is settled, and a held replica runs
    nothing), so free restarts stay bounded by charged ones and real losses. A peer that is only HELD has no loss of
    its own. A peer that died of the very same error explains nothing: that is one bug in both.
    """
    settled = max((at for at in (replica.ready_at, replica.forgiven_at) if at), default=None)
    for peer in state.replicas:
        if peer.seat == replica.seat or peer.attempt != replica.attempt or peer.lost_at is None:
            continue
        if _is_own_error(event) and peer.last_exit and peer.last_exit.signature == event.signature:
            continue
        if peer.state.is_down or settled is None or peer.lost_at > settled:
            return peer
    return None


def _is_own_error(event: ReplicaExited) -> bool:
    """Whether the traceback tells of this replica, not of a peer."""
    error = event.error
    if error is None or error.type.rpartition(".")[2] in PEER_LOSS_TYPES:
        return False
    return not any(words in error.message.lower() for words in PEER_LOSS_WORDS)


def _permanent(replica: Replica, event: ReplicaExited) -> Reason | None:
    if event.out_of_memory:
        return Reason.OUT_OF_MEMORY
    if event.cause is ExitCause.INSTALL or (event.error and event.error.type in IMPORT_ERRORS):
        return Reason.INSTALL_FAILED
    if event.exit_status in PERMANENT_STATUSES:
        return Reason.COMMON_ERROR
    before = replica.last_exit
    is_repetition = (
        before is not None
        and _is_own_error(event)
        and before.incarnation == event.life.incarnation - 1
        and (before.exit_status, before.signal, before.signature) == (event.exit_status, event.signal, event.signature)
    )
    return Reason.SAME_FAILURE_AGAIN if is_repetition else None


def _internal(job: Job, cause: str, reason: Reason) -> Verdict:
    """Rule 5."""
    if job.plan.disable_retries or job.budgets.internal_used >= INTERNAL_RETRIES_MAX:
        return FailJob(messages.internal_error(cause), Rule.INTERNAL, Reason.INTERNAL_BUDGET_SPENT, f"{cause}.")
    nth = job.budgets.internal_used + 1
    text = f"{cause}: the attempt is restarted (internal retry {nth} of {INTERNAL_RETRIES_MAX})."
    return RerunJob(Budget.INTERNAL, Rule.INTERNAL, reason, text)


def _rerun(job: Job, event: ReplicaExited, rule: Rule, reason: Reason, what: str) -> Verdict:
    if job.budgets.reruns_used >= RERUNS_MAX:
        return FailJob(
            messages.failed(event), rule, Reason.RERUNS_SPENT, f"{what}, and the job was rerun {RERUNS_MAX} times."
        )
    nth = job.budgets.reruns_used + 1
    return RerunJob(Budget.RERUNS, rule, reason, f"{what}: the whole job is rerun (rerun {nth} of {RERUNS_MAX}).")
