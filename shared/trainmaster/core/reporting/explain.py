"""The ledger in plain words, and what another exit policy would have decided: what `why` and
`replay` print.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, takewhile
from typing import Final

from trainmaster.core.actions import (
    ContinueProvisioning,
    FailJob,
    Ignore,
    MarkHostReady,
    MarkReady,
    RecordMeasurements,
    ReplaceVm,
    RerunJob,
    StopRound,
)
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import (
    AllReady,
    CapacityErrorKind,
    MemberMissing,
    ReplicaEvent,
    ReplicaExited,
    SaveOver,
    VmReady,
    VmsNotCreated,
)
from trainmaster.core.ledger import LedgerEntry, judged, replay
from trainmaster.core.model.capacity import candidate_words
from trainmaster.core.model.exit_policy import ExitPolicy
from trainmaster.core.model.job import Job, JobState, State, tuning_of
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.members import channel_members, is_ready, members
from trainmaster.core.model.replica import Replica, ReplicaState, replica_key
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import trial_id
from trainmaster.core.rules.admission_queue import Wait
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.messages import capacity_problem, member_names
from trainmaster.core.rules.replica_exit import ROWS
from trainmaster.core.rules.tuning import planned_trials
from trainmaster.core.timeouts import PROVISIONING_MAX_S

CAPACITY_ERRORS_SHOWN: Final = 8
"""Capacity errors in a row that are shown: two passes over the zones of a region."""
MEASUREMENTS_SHOWN: Final = 1
"""Entries in a row with measurements of running trials that are shown, besides the last one."""

_COUNTERS: Final = ("restarts_used", "reruns_used", "replaced")

ADMISSION_PENDING: Final = "The job waits to be admitted; the sweep looks at it every minute."

EVERY_REPLICA_RUNS: Final = "Every replica runs."
"""The only sentence about a job that waits for nothing."""

_WAITS_FOR: Final = {
    ReplicaState.WAITING: "waits for its VM and its setup",
    ReplicaState.RESTARTING: "restarts in its VM as soon as the agent reads its directive",
    ReplicaState.REPLACING: "waits for another VM of the same name",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that another policy would have changed, judged on the state that existed at the
    time.
    """

    entry: LedgerEntry
    would_be: Decision


def replica_of(entry: LedgerEntry) -> ReplicaId | None:
    """Return the replica that the entry is about; None: the job as a whole."""
    event = entry.event
    if isinstance(event, MemberMissing | SaveOver):
        return event.replica_id
    return event.subject.replica_id if isinstance(event, ReplicaEvent) else None


def is_news(entry: LedgerEntry) -> bool:
    """Whether the entry changed something, or reports what the job waits for."""
    decision = entry.decision
    return not isinstance(decision.action, Ignore) or decision.reason in (
        Reason.QUEUED,
        Reason.OUT_OF_REACH,
    )


def final_entry(job: Job, entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Return the entry whose decision ended the job; None if the job has not ended, or if its
    ledger has expired.
    """
    return next(
        (entry for entry in reversed(entries) if entry.at == job.ended_at and is_news(entry)), None
    )


def final_exit(job: Job, entries: Sequence[LedgerEntry]) -> ReplicaExited | None:
    """Return the exit that ended the job; None if something else did, or if it is not known.

    A verdict about a round ends the job for the exit of one member, which is in the ledger.
    """
    final = final_entry(job, entries)
    if final is None:
        return None
    if isinstance(final.event, ReplicaExited):
        return final.event
    action = final.decision.action
    if not isinstance(action, FailJob):
        return None
    exits = (
        entry.event
        for entry in reversed(entries)
        if isinstance(entry.event, ReplicaExited) and entry.before.attempt == job.attempt
    )
    return next((event for event in exits if _replica_key(event) == action.replica), None)


def _replica_key(event: ReplicaExited) -> str:
    return replica_key(event.subject.attempt, event.subject.replica_id)


def shown_entries(
    entries: Iterable[LedgerEntry],
    replica_id: ReplicaId | None,
    *,
    everything: bool,
    with_ends: bool = False,
) -> tuple[tuple[LedgerEntry, int], ...]:
    """Return the entries about a replica, or all, in the form of `condense`.

    `everything`: without leaving any out. `with_ends`: with the end of each round besides its
    verdict.
    """
    chosen = [
        entry for entry in entries if replica_id is None or replica_of(entry) in (None, replica_id)
    ]
    return (
        tuple((entry, 0) for entry in chosen)
        if everything
        else condense(one_per_round(chosen, with_ends=with_ends))
    )


def one_per_round(
    entries: Iterable[LedgerEntry], *, with_ends: bool = False
) -> tuple[LedgerEntry, ...]:
    """Return the news among these entries, with one about each round: its verdict, or its end while
    that is all.

    The reports of members that they are ready for a later round are left out, unless their VM
    failed the preflight.
    """
    shown = []
    is_judged = False
    for entry in reversed([entry for entry in entries if is_news(entry)]):
        action = entry.decision.action
        is_verdict = isinstance(entry.event, AllReady)
        is_detail = isinstance(action, MarkReady | MarkHostReady) and (
            action.round or 1,
            entry.after.attempt,
        ) > (1, 1)
        is_detail &= not (isinstance(entry.event, VmReady) and entry.event.finding)
        if is_detail or (
            isinstance(action, StopRound) and is_judged and not is_verdict and not with_ends
        ):
            continue
        is_judged |= is_verdict or isinstance(action, RerunJob | FailJob)
        shown.append(entry)
    return tuple(reversed(shown))


def budget_changes(entry: LedgerEntry) -> tuple[tuple[str, int, int], ...]:
    """Return the counters of an attempt that the decision changed: name, before, after."""
    before = entry.before
    after = entry.after
    if before.attempt != after.attempt:
        return ()
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in _COUNTERS)
    return tuple((name, old, new) for name, old, new in pairs if old != new)


def condense(entries: Iterable[LedgerEntry]) -> tuple[tuple[LedgerEntry, int], ...]:
    """Return the entries to show, each with the number of entries left out before it.

    In a long series of capacity errors or of measurements, the first ones and the last one are
    shown.
    """
    shown: list[tuple[LedgerEntry, int]] = []
    for limit, group in groupby(entries, _shown_in_a_row):
        series = list(group)
        is_long = limit is not None and len(series) > limit + 1
        head = series[:limit] if is_long else series
        shown += [(entry, 0) for entry in head]
        if len(head) < len(series):
            shown.append((series[-1], len(series) - len(head) - 1))
    return tuple(shown)


def _shown_in_a_row(entry: LedgerEntry) -> int | None:
    """Return how many entries of this kind are shown at the head of a series; None: all."""
    match entry.decision.action:
        case ContinueProvisioning() | ReplaceVm(next_at=datetime()):
            return CAPACITY_ERRORS_SHOWN
        case RecordMeasurements():
            return MEASUREMENTS_SHOWN
        case _:
            return None


def rules_passed_over(entry: LedgerEntry) -> tuple[tuple[Rule, str], ...]:
    """Return the rules that come before the one that decided about an exit, each with its
    condition.
    """
    if not _is_about_exit(entry) or entry.decision.rule in (Rule.LIFECYCLE, Rule.STALE, Rule.ROUND):
        return ()
    passed_over = []
    for row in ROWS:
        if row.rule is entry.decision.rule:
            break
        passed_over.append((row.rule, row.condition))
    return tuple(passed_over)


def _is_about_exit(entry: LedgerEntry) -> bool:
    """Whether the rules for exits judged the event: an exit, or a verdict."""
    return isinstance(entry.event, ReplicaExited) or (
        isinstance(entry.event, AllReady) and entry.event.round > 0
    )


def _kept_until(job: Job, machines: MachineSet | None) -> tuple[str, ...]:
    if machines is None or not machines.is_kept or machines.holder != job.job_id:
        return ()
    return (f"Its machines are kept for a next job until {machines.until:%H:%M:%S} UTC.",)


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


def _causes_out_of_reach(entries: Sequence[LedgerEntry]) -> list[str]:
    """Return what kept Google from changing VMs in the hour before the last entry, if nothing else
    followed.
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
    """Return when the next VM of a replica is requested that waits alone for it."""
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


def differences(entries: Iterable[LedgerEntry], policy: ExitPolicy) -> tuple[Difference, ...]:
    """Return every exit that `policy` would have judged differently, on the state that existed at
    the time.
    """
    stored: State | None = None
    changed = []
    for entry in entries:
        if stored is not None and _is_about_exit(entry):
            state = judged(stored, entry)
            plan = state.job.plan
            restarts = replace(plan.restarts, exit_policy=policy)
            job = replace(state.job, plan=replace(plan, restarts=restarts))
            decision = judge(replace(state, job=job), entry.event, entry.at)
            if decision.action.kind != entry.decision.action.kind:
                changed.append(Difference(entry, decision))
        stored = replay(stored, entry)
    return tuple(changed)
