"""The page of one job: everything but its spec comes from the ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import yaml

from shared.console.durations import duration_words
from shared.console.pages.job_list import job_kind, machine_words
from shared.console.pages.service import Console, NotFoundError
from shared.console.svg import DrawnTimeline, draw
from shared.console.timeline import read_timeline
from shared.core.decisions import Rule
from shared.core.events import ReplicaExited
from shared.core.ledger import LedgerEntry
from shared.core.model.job import INTERNAL_RETRIES_MAX, RERUNS_MAX, RESTARTS_MAX, Job, JobState, State
from shared.core.model.replica_id import ReplicaId
from shared.core.model.tuning import tuning_job_id
from shared.core.model.vm_names import vm_name
from shared.core.reporting.explain import concerns, condense, is_news, next_steps, rules_passed_over
from shared.core.reporting.goodput import Goodput, goodput
from shared.core.reporting.history import read_history
from shared.core.reporting.phases import Phase
from shared.core.reporting.submission_origin import describe_origin
from shared.core.rules.admission_queue import wait_of
from shared.core.rules.messages import cause, summary
from shared.jobspec import JOB_ID
from shared.presentation.ml_units import Usage, usage

DECISIONS_MAX: Final = 500
"""Decisions on the page; the page says how many older ones it leaves out."""
REPLICAS_MAX: Final = 1_000
COUNTERS: Final = ("restarts_used", "reruns_used", "internal_used", "replaced", "collateral")


@dataclass(frozen=True, slots=True)
class View:
    """Which part of the job the page shows, from its address."""

    replica: str = ""
    """Only decisions about this replica: `worker-1`."""
    with_ignored: bool = False
    """Ignored events, every capacity error, and the rules that did not apply."""
    with_all_replicas: bool = False
    """A lane for each replica, also above `timeline.LANES_MAX`."""
    with_gaps: bool = False
    """Draw stretches without a change in full length."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The exit or event that ended a failed job."""

    headline: str
    rule: int
    replica: str
    """The replica it was about; empty for the job as a whole."""
    error: str
    """The program's own error in one line."""
    tail: str
    """End of the program's output."""
    key: str


@dataclass(frozen=True, slots=True)
class DecisionRow:
    entry: LedgerEntry
    omitted: int
    """Number of similar entries left out before it."""
    replica: str
    changes: tuple[str, ...]
    """Budgets before and after."""
    passed_over: tuple[tuple[Rule, str], ...]


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    replica_id: ReplicaId
    state: str
    incarnation: int
    vm: str
    vm_generation: int
    restarts: str
    replaced: int
    collateral: int


@dataclass(frozen=True, slots=True)
class JobPage:
    job: Job
    kind: str
    origin: str
    machines: str
    elapsed: str
    usage: Usage
    budgets: tuple[str, ...]
    next_sentences: tuple[str, ...]
    """What the job waits for; empty for an ended one."""
    failure: Failure | None
    timeline: DrawnTimeline | None
    """None if the history of the job has expired."""
    hidden_lanes: int
    decisions: tuple[DecisionRow, ...]
    decisions_omitted: int
    replicas: tuple[ReplicaRow, ...]
    goodput: Goodput | None
    phases: tuple[Phase, ...]
    """Phases that occur in `goodput`."""
    spec: str
    """The job as submitted, as YAML."""
    view: View


def find_job(console: Console, job_id: str) -> Job:
    """Return the job. Raises NotFoundError if there is none, or its user deleted it."""
    is_valid = JOB_ID.fullmatch(tuning_job_id(job_id)) is not None
    loaded = console.store.load(job_id) if is_valid else None
    if loaded is None or loaded.state.job.deleted_at is not None:
        raise NotFoundError(f"there is no job {job_id}")
    return loaded.state.job


def read_job_page(console: Console, job_id: str, view: View) -> JobPage:
    """Return the page. Raises NotFoundError if there is no such job, or no such replica in `view`."""
    job = find_job(console, job_id)
    replica_id = parse_replica(view.replica, job) if view.replica else None
    entries = console.ledgers.entries(job_id, has_ended=job.state.is_terminal)
    history = read_history(entries)
    now = console.now
    state = history.state if history else State(job)
    timeline = read_timeline(history, now, with_all=view.with_all_replicas) if history else None
    result = goodput(history, now) if history else None
    decisions, omitted = _decisions(entries, replica_id, view)
    return JobPage(
        job=job,
        kind=job_kind(job),
        origin=describe_origin(job),
        machines=machine_words(job.plan),
        elapsed=duration_words((job.ended_at or now) - job.created_at),
        usage=usage(job, now, console.ml_unit_price),
        budgets=(
            f"{job.budgets.reruns_used} of {RERUNS_MAX} reruns used",
            f"{job.budgets.internal_used} of {INTERNAL_RETRIES_MAX} internal retries used",
        ),
        next_sentences=_next(console, job, state),
        failure=_failure(job, entries),
        timeline=draw(timeline, shortens_gaps=not view.with_gaps) if timeline else None,
        hidden_lanes=timeline.hidden if timeline else 0,
        decisions=decisions,
        decisions_omitted=omitted,
        replicas=_replicas(state),
        goodput=result,
        phases=_phases(result),
        spec=yaml.safe_dump(json.loads(job.spec_json), sort_keys=False, allow_unicode=True, width=110),
        view=view,
    )


def parse_replica(text: str, job: Job) -> ReplicaId:
    """Return the replica of `worker-1`. Raises NotFoundError if the job has no such replica."""
    try:
        replica_id = ReplicaId.parse(text)
    except ValueError:
        replica_id = None
    if replica_id is None or replica_id not in job.plan.replica_ids:
        raise NotFoundError(f"{job.job_id} has no replica {text}")
    return replica_id


def _next(console: Console, job: Job, state: State) -> tuple[str, ...]:
    if job.state is JobState.QUEUED and console.limits and job.tuning is None:
        wait = wait_of(job.job_id, console.store.live_jobs(), console.limits)
        if wait is not None:
            return (f"Position {wait.position} in the admission queue: {wait.reason}.",)
    return next_steps(job, state.replicas)


def _failure(job: Job, entries: tuple[LedgerEntry, ...]) -> Failure | None:
    """Return what ended a job that did not succeed; the tail is that of the exit in the ledger."""
    if not job.error_message:
        return None
    ended_by = next((entry for entry in reversed(entries) if entry.at == job.ended_at and is_news(entry)), None)
    if ended_by is None:
        return Failure(summary(job.error_message), 0, "", "", "", "")
    event = ended_by.event
    if not isinstance(event, ReplicaExited):
        return Failure(summary(job.error_message), int(ended_by.decision.rule), "", "", "", ended_by.key)
    subject = f"{event.subject.replica_id.words}, incarnation {event.subject.incarnation}"
    return Failure(
        summary(job.error_message), int(ended_by.decision.rule), subject, cause(event), event.tail.strip(), ended_by.key
    )


def _decisions(
    entries: tuple[LedgerEntry, ...], replica_id: ReplicaId | None, view: View
) -> tuple[tuple[DecisionRow, ...], int]:
    """Return the newest decisions in the order of their commits, and the number of older ones."""
    chosen = [entry for entry in entries if replica_id is None or concerns(entry, replica_id)]
    shown = (
        tuple((entry, 0) for entry in chosen)
        if view.with_ignored
        else condense(entry for entry in chosen if is_news(entry))
    )
    newest = shown[-DECISIONS_MAX:]
    rows = tuple(_decision(entry, omitted, with_rules=view.with_ignored) for entry, omitted in newest)
    return rows, len(shown) - len(newest)


def _decision(entry: LedgerEntry, omitted: int, *, with_rules: bool) -> DecisionRow:
    subject = getattr(entry.event, "subject", None)
    before, after = entry.before, entry.after
    changes = tuple(
        f"{name.replace('_', ' ')}: {getattr(before, name)} → {getattr(after, name)}"
        for name in COUNTERS
        if getattr(before, name) != getattr(after, name) and before.attempt == after.attempt
    )
    passed_over = rules_passed_over(entry) if with_rules and entry.decision.rule > Rule.STALE else ()
    return DecisionRow(entry, omitted, str(subject.replica_id) if subject else "", changes, passed_over)


def _replicas(state: State) -> tuple[ReplicaRow, ...]:
    has_ended = state.job.state.is_terminal
    return tuple(
        ReplicaRow(
            replica.replica_id,
            "ended" if has_ended and replica.state != "COMPLETED" else replica.state.lower(),
            replica.incarnation,
            vm_name(state.job.job_id, replica.replica_id),
            replica.vm_generation,
            f"{replica.restarts_used} of {RESTARTS_MAX}",
            replica.replaced,
            replica.collateral,
        )
        for replica in state.replicas[:REPLICAS_MAX]
    )


def _phases(result: Goodput | None) -> tuple[Phase, ...]:
    attempts = result.attempts if result else ()
    return tuple(phase for phase in Phase if any(round(attempt.total_s.get(phase, 0.0), 1) for attempt in attempts))
