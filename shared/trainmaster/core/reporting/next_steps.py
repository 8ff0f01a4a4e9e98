"""What a job waits for, in sentences, as `why` and the console show it.

    queued          its position in the admission queue
    preparing       where VMs are requested, and what was missing at the last request
    running         replicas that start again, and members that a round waits for or goes without
    tuning job      its trials

A round is one common run of the members of a synchronous job. It is held, which means that its
members wait, until all of them are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import takewhile
from typing import Final

from trainmaster.core.actions import ContinueProvisioning
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CapacityErrorKind, VmsNotCreated
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.capacity import candidate_words
from trainmaster.core.model.job import Job, JobState, State, tuning_of
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.members import channel_members, is_ready, members
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.tuning import trial_id
from trainmaster.core.rules.admission_queue import Wait
from trainmaster.core.rules.messages import capacity_problem, member_names
from trainmaster.core.rules.tuning import planned_trials
from trainmaster.core.timeouts import PROVISIONING_MAX_S

ADMISSION_PENDING: Final = "The job waits to be admitted; the sweep looks at it every minute."

EVERY_REPLICA_RUNS: Final = "Every replica runs."
"""The only sentence about a job that waits for nothing."""

_WAITS_FOR: Final = {
    ReplicaState.WAITING: "waits for its VM and its setup",
    ReplicaState.RESTARTING: "restarts in its VM as soon as the agent reads its directive",
    ReplicaState.REPLACING: "waits for another VM of the same name",
}


def next_steps(
    job: Job,
    replicas: Iterable[Replica],
    entries: Sequence[LedgerEntry] = (),
    wait: Wait | None = None,
    machines: MachineSet | None = None,
) -> tuple[str, ...]:
    """Return one sentence for each thing that the job waits for, and one for kept machines.

    `entries`: the job's ledger, which shows whether quota or capacity was missing. `wait`: why the
    job is not admitted. `machines`: its machine set.
    """
    if job.state.is_terminal:
        return _kept_until(job, machines)
    if job.tuning is not None:
        return _trials_to_come(job)
    if job.state is JobState.QUEUED:
        return (wait.sentence if wait else ADMISSION_PENDING,)
    replicas = tuple(replicas)
    sentences = [
        f"{replica.replica_id.words} {_WAITS_FOR[replica.state]}{_when_requested(replica)}."
        for replica in replicas
        if replica.state in _WAITS_FOR
    ]
    is_vm_requested = any(
        replica.state in (ReplicaState.WAITING, ReplicaState.REPLACING) for replica in replicas
    )
    if is_vm_requested and job.placement.round:
        sentences.append(_provisioning(job, entries))
    waits_for_first_vms = job.started_at is None and not any(
        is_ready(job, replica) for replica in replicas
    )
    if job.round.is_held and not waits_for_first_vms:
        sentences.append(_awaited_members(State(job, replicas)))
    elif job.round.without:
        sentences.append(f"{short_round(job)}.")
    sentences += _causes_out_of_reach(entries)
    return tuple(sentences) or (EVERY_REPLICA_RUNS,)


def _kept_until(job: Job, machines: MachineSet | None) -> tuple[str, ...]:
    if machines is None or not machines.is_kept or machines.holder != job.job_id:
        return ()
    return (f"Its machines are kept for a next job until {machines.until:%H:%M:%S} UTC.",)


def _causes_out_of_reach(entries: Sequence[LedgerEntry]) -> list[str]:
    """Return the problems for which Google changed no VMs in the hour before the last entry, if
    nothing else followed.
    """
    latest = list(
        takewhile(lambda entry: entry.decision.reason is Reason.OUT_OF_REACH, reversed(entries))
    )
    in_time = [entry for entry in reversed(latest) if latest[0].at - entry.at < timedelta(hours=1)]
    causes = {entry.decision.text: entry.at for entry in in_time}
    return [
        f"This has to end, last seen at {at:%H:%M} (recorded once an hour): {text}"
        for text, at in causes.items()
    ]


def _awaited_members(state: State) -> str:
    """Return which members the held round waits for."""
    waiting = [member.replica_id for member in members(state) if not is_ready(state.job, member)]
    if not waiting:
        return f"Every member is ready: round {state.job.round.number} begins."
    return (
        f"Round {state.job.round.number} begins when every member is ready. It waits for"
        f" {member_names(waiting)}."
    )


def short_round(job: Job) -> str:
    """Return that the running round goes without members, as a sentence without its full stop."""
    size = len(channel_members(job.plan))
    without = job.round.without
    began_at = job.round.began_at
    since = f" since {began_at:%H:%M:%S}" if began_at else ""
    runs = f"The job runs with {size - len(without)} of {size} replicas{since}"
    return f"{runs}, without {member_names(without)}, until VMs are ready and another round begins"


def _trials_to_come(job: Job) -> tuple[str, ...]:
    tuning = tuning_of(job)
    sentences = []
    if tuning.live:
        numbers = ", ".join(str(trial.number) for trial in tuning.live)
        example = trial_id(job.job_id, tuning.live[0].number)
        sentences.append(f"Trials under way: {numbers}; each is a job, such as {example}.")
    if left := planned_trials(tuning) - len(tuning.trials):
        sentences.append(f"{left} more trials may begin, at most {tuning.max_parallel} at once.")
    return tuple(sentences)


def _when_requested(replica: Replica) -> str:
    """Return when the next VM of a replica that waits alone for it is requested."""
    if not replica.awaits_vm or replica.next_at is None:
        return ""
    return f", which is requested at {replica.next_at:%H:%M:%S}, or within a minute after"


def _provisioning(job: Job, entries: Sequence[LedgerEntry]) -> str:
    """Return where VMs are requested after capacity errors, why the last one occurred, and until
    when.
    """
    errors = f"{job.placement.round} capacity error{'s' if job.placement.round > 1 else ''}"
    what = (
        f" ({candidate_words(job.plan, job.placement.zone_index)})"
        if job.plan.where.options
        else f" in {job.zone}"
    )
    text = f"VMs are requested{what}, after {errors} so far"
    if problem := _last_capacity_error(job, entries):
        text += f" ({problem})"
    if job.placement.next_at is not None:
        text += (
            f"; the next request is at {job.placement.next_at:%H:%M:%S}, or within a minute after"
        )
    if job.started_at is not None:
        return f"{text}."
    plan = job.plan
    limit_s, limit = (
        (PROVISIONING_MAX_S, "no maxWaitTime is set")
        if plan.limits.max_wait_s is None
        else (plan.limits.max_wait_s, "maxWaitTime")
    )
    return (
        f"{text}. Requests end at {job.created_at + timedelta(seconds=limit_s):%Y-%m-%d %H:%M:%S}"
        f" ({limit})."
    )


def _last_capacity_error(job: Job, entries: Sequence[LedgerEntry]) -> str:
    """Return which quota was used up, or where there was no capacity, at the attempt's last error;
    empty if unknown.
    """
    events = (
        entry.event
        for entry in reversed(entries)
        if isinstance(entry.decision.action, ContinueProvisioning)
    )
    error = next((event for event in events if isinstance(event, VmsNotCreated)), None)
    if error is None or error.attempt != job.attempt:
        return ""
    details = ""
    if error.error_kind is CapacityErrorKind.QUOTA:
        details = f": {' '.join(error.message.split()).rstrip('.')}"
    return f"the last one: {capacity_problem(error)}{details}"
