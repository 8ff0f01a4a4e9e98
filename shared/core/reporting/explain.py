"""The ledger in plain words, and what would have been decided under another policy: what `why` and `replay` print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby
from typing import Final

from shared.core.decisions import AcceptJob, ContinueProvisioning, Decision, Reason, Rule
from shared.core.events import ReplicaEvent, ReplicaExited
from shared.core.evolve import apply, evolve
from shared.core.ledger import LedgerEntry
from shared.core.model.exit_policy import ExitPolicy
from shared.core.model.job import Job, State
from shared.core.model.replica import Replica, ReplicaState
from shared.core.model.replica_id import ReplicaId
from shared.core.model.tuning import trial_id
from shared.core.reconcile.trial_jobs import tuning_of
from shared.core.rules.capacity import PROVISIONING_MAX_S
from shared.core.rules.judge import judge
from shared.core.rules.replica_exit import ROWS
from shared.core.rules.tuning import planned

REFUSALS_TOLD: Final = 8
"""In a row: twice round the zones of a region."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One decision that another policy would have taken otherwise, on the state that really was."""

    entry: LedgerEntry
    would_be: Decision


def concerns(entry: LedgerEntry, replica_id: ReplicaId) -> bool:
    """Whether the entry is about this replica, or about the job as a whole."""
    event = entry.event
    return not isinstance(event, ReplicaEvent) or event.subject.replica_id == replica_id


def is_news(entry: LedgerEntry) -> bool:
    """Whether something was decided, or is waited for."""
    return entry.decision.kind != "ignore" or entry.decision.reason is Reason.QUEUED


def condensed(entries: Iterable[LedgerEntry]) -> tuple[tuple[LedgerEntry, int], ...]:
    """Each with how many were left out before it: of a long search for machines its beginning and its last capacity error are
    told."""
    found: list[tuple[LedgerEntry, int]] = []
    for is_search, group in groupby(entries, lambda entry: isinstance(entry.decision, ContinueProvisioning)):
        run = list(group)
        told = len(run) if not is_search or len(run) <= REFUSALS_TOLD + 1 else REFUSALS_TOLD
        found += [(entry, 0) for entry in run[:told]]
        if told < len(run):
            found.append((run[-1], len(run) - told - 1))
    return tuple(found)


def passed_over(entry: LedgerEntry) -> tuple[tuple[Rule, str], ...]:
    """The rules of an exit that come before the one that applied, each with what it would have taken."""
    if not isinstance(entry.event, ReplicaExited) or entry.decision.rule in (Rule.LIFECYCLE, Rule.STALE):
        return ()
    before = []
    for row in ROWS:
        if row.rule is entry.decision.rule:
            break
        before.append((row.rule, row.takes))
    return tuple(before)


def what_comes_next(job: Job, replicas: Iterable[Replica]) -> tuple[str, ...]:
    """One sentence for each thing that is still to come."""
    if job.state.is_terminal:
        return ()
    if job.tuning is not None:
        return _trials_to_come(job)
    waits = {
        ReplicaState.WAITING: "waits for its VM and its set-up",
        ReplicaState.RESTARTING: "restarts in its VM as soon as the agent reads its directive",
        ReplicaState.REPLACING: "waits for another VM of the same name",
    }
    replicas = tuple(replicas)
    requested = any(each.state in (ReplicaState.WAITING, ReplicaState.REPLACING) for each in replicas)
    down = [each.replica_id.words for each in replicas if each.state.is_down and each.replica_id.is_in_cluster]
    found = [f"{each.replica_id.words} {waits[each.state]}." for each in replicas if each.state in waits]
    if requested and job.placement.round:
        found.append(_search(job))
    for replica in replicas:
        if replica.state is ReplicaState.HELD:
            until = f"until {' and '.join(down)} is back" if down else "no longer: it is being started"
            found.append(f"{replica.replica_id.words} waits {until}.")
    return tuple(found) or ("Nothing is on its way: every replica runs.",)


def _trials_to_come(job: Job) -> tuple[str, ...]:
    tuning = tuning_of(job)
    found = []
    if tuning.live:
        under_way = ", ".join(str(trial.number) for trial in tuning.live)
        each = trial_id(job.job_id, tuning.live[0].number)
        found.append(f"Trials under way: {under_way}; each is a job, such as {each}.")
    if left := planned(tuning) - len(tuning.trials):
        found.append(f"{left} more trials may begin, at most {tuning.max_parallel} at once.")
    return tuple(found)


def _search(job: Job) -> str:
    """Where machines are requested after refusals, and until when."""
    times = f"{job.placement.round} time{'s' if job.placement.round > 1 else ''}"
    text = f"VMs are requested in {job.zone}; they were refused {times} so far"
    if job.placement.next_at is not None:
        text += f", and are asked for again at {job.placement.next_at:%H:%M:%S} or within the minute after"
    if job.started_at is not None:
        return f"{text}."
    plan = job.plan
    limit_s, whose = (
        (PROVISIONING_MAX_S, "without a maxWaitTime") if plan.max_wait_s is None else (plan.max_wait_s, "maxWaitTime")
    )
    return f"{text}, and are requested until {job.created_at + timedelta(seconds=limit_s):%Y-%m-%d %H:%M:%S} ({whose})."


def differences(entries: Iterable[LedgerEntry], policy: ExitPolicy) -> tuple[Difference, ...]:
    """Every exit that `policy` would have judged otherwise. Each is judged on the state that really was at the time."""
    state: State | None = None
    found = []
    for entry in entries:
        if state is not None and isinstance(entry.event, ReplicaExited):
            job = replace(state.job, plan=replace(state.job.plan, exit_policy=policy))
            decision = judge(replace(state, job=job), entry.event, entry.at)
            if decision.kind != entry.decision.kind:
                found.append(Difference(entry, decision))
        change = evolve(state, entry.decision, entry.at)
        if isinstance(entry.decision, AcceptJob):
            state = State(entry.decision.job, change.replicas, whole=True)
        elif state is not None:
            state = apply(state, change)
    return tuple(found)
