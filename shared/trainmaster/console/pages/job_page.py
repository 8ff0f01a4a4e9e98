"""The page of one job: everything but its spec comes from the ledger.

The ledger is the append-only record of the job's events, each with the decision about it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.console.pages.cost_section import CostSection, read_cost_section
from trainmaster.console.pages.job_rows import job_kind, machine_words
from trainmaster.console.pages.replica_rows import REPLICAS_MAX, ReplicaRow, replica_rows
from trainmaster.console.pages.service import Console, NotFoundError
from trainmaster.console.pages.times import parse_time
from trainmaster.console.pages.view import View
from trainmaster.console.svg import DrawnTimeline, draw
from trainmaster.console.timeline import LANES_MAX, Timeline, read_timeline, zoom
from trainmaster.core.decisions import Rule
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import RERUNS_MAX, Job, State
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.explain import (
    budget_changes,
    final_entry,
    final_exit,
    replica_of,
    rules_passed_over,
    shown_entries,
)
from trainmaster.core.reporting.history import History, read_history
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.reporting.submission_words import describe_submission
from trainmaster.core.rules.admission_queue import wait_of_job
from trainmaster.core.rules.messages import cause
from trainmaster.core.transitions.change import Effect
from trainmaster.jobspec.fields.job_id import is_stored_id
from trainmaster.jobspec.reading.yaml_document import as_yaml
from trainmaster.ports.machine_sets import machine_set_of
from trainmaster.presentation.durations import duration_words
from trainmaster.presentation.failing import Failing, failing_of, with_failures
from trainmaster.presentation.job_view import timestamp
from trainmaster.presentation.ml_units import Usage, usage
from trainmaster.presentation.program_words import folder_words, program_words
from trainmaster.presentation.remedies import ending_of, headline
from trainmaster.presentation.similar_jobs import similar_job

DECISIONS_MAX: Final = 400
"""Decisions on the page. A note has the number of older ones."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The exit or event that ended a failed job."""

    headline: str
    entry: LedgerEntry | None
    """The decision; None if the ledger has expired."""
    remedy: str = ""
    """What the user does about it; empty if nothing is known."""
    replica: str = ""
    """The replica it was about; empty for the job as a whole."""
    error: str = ""
    """The program's own error in one line."""
    tail: str = ""
    """End of the program's output."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A row of the table of decisions."""

    entry: LedgerEntry
    omitted: int
    """Number of similar entries left out before it."""
    replica: str
    """Replica that it is about; empty: the job as a whole."""
    changes: tuple[str, ...]
    """Budgets before and after."""
    passed_over: tuple[tuple[Rule, str], ...]
    """Rules that did not apply, each with its condition."""
    keeps_machines: bool
    """Whether the job has ended and its machines wait for a next job. Until they are released, the
    effects of its decisions are not confirmed.
    """

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the effects of the decision are not confirmed, although no kept machines delay
        that.
        """
        return self.entry.is_pending and not self.keeps_machines

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects that the decision requested, except notifications of the job's state."""
        return tuple(effect for effect in self.entry.effects if effect is not Effect.NOTIFY)


@dataclass(frozen=True, slots=True)
class JobPage:
    """The page of one job."""

    job: Job
    kind: str
    origin: str
    """How it was submitted."""
    machines: str
    program: str
    """What it runs."""
    folder: str
    """The folder and commit that the program was packed from; empty: none is known."""
    elapsed: str
    """Time since it was submitted, until now or its end."""
    usage: Usage
    budgets: tuple[str, ...]
    """Use of the budgets of the job, in words."""
    failing: Failing | None
    """Set if the job keeps failing."""
    keeps_machines: bool
    """Whether the job has ended, and its machines wait for a next one."""
    next_sentences: tuple[str, ...]
    """Sentences about what the job waits for; empty if it has ended."""
    failure: Failure | None
    timeline: DrawnTimeline | None
    """None if the history of the job has expired."""
    range: tuple[str, str]
    """First and last time of the timeline, as its form shows them; both empty if there is no
    timeline.
    """
    hidden_lanes: int
    """Number of replicas without a lane."""
    decisions: tuple[DecisionRow, ...]
    """The newest decisions, in the order of their commits."""
    decisions_omitted: int
    """Number of older ones."""
    replicas: tuple[ReplicaRow, ...]
    cost: CostSection | None
    """None for a tuning job, or if the history of the job has expired."""
    spec: str
    """The job as submitted, as YAML."""
    view: View


def find_job(console: Console, job_id: str) -> Job:
    """Return the job. Raises NotFoundError if there is none, or its user deleted it."""
    loaded = console.store.load(job_id) if is_stored_id(job_id) else None
    if loaded is None or loaded.state.job.deleted_at is not None:
        similar = similar_job(console.store, job_id)
        hint = f"; did you mean {similar}?" if similar else ""
        raise NotFoundError(f"There is no job {job_id}{hint}")
    return loaded.state.job


def read_job_page(console: Console, job_id: str, view: View) -> JobPage:
    """Return the page.

    Raises NotFoundError if there is no such job, or no such replica in `view`.
    """
    job = find_job(console, job_id)
    replica_id = parse_replica(view.replica, job) if view.replica else None
    entries = console.ledgers.entries(job_id, has_ended=job.state.is_terminal)
    history = read_history(entries)
    now = console.now
    state = history.state if history else State(job)
    timeline = _timeline(history, now, view) if history else None
    failing = failing_of(job, state.replicas, now)
    wait = wait_of_job(job, console.store.queue, console.limits)
    # The VMs that one job after another uses, each as their holder; None for other jobs.
    machine_set = machine_set_of(job, console.store)
    keeps_machines = (
        machine_set is not None and machine_set.is_kept and machine_set.holder == job_id
    )
    decisions, omitted = _decisions(entries, replica_id, view, keeps_machines=keeps_machines)
    return JobPage(
        job=job,
        kind=job_kind(job),
        origin=describe_submission(job),
        machines=machine_words(job.placed.plan),
        program=program_words(job),
        folder=folder_words(job),
        elapsed=duration_words((job.ended_at or now) - job.created_at),
        usage=usage(job, now, console.ml_unit_price),
        budgets=(f"{job.budgets.reruns_used} of {RERUNS_MAX} reruns used",),
        failing=failing,
        keeps_machines=keeps_machines,
        next_sentences=with_failures(
            failing, next_steps(job, state.replicas, entries, wait, machine_set)
        ),
        failure=_failure(job, entries),
        timeline=draw(timeline, shortens_gaps=not view.with_gaps) if timeline else None,
        range=(timestamp(timeline.start), timestamp(timeline.end)) if timeline else ("", ""),
        hidden_lanes=timeline.hidden if timeline else 0,
        decisions=decisions,
        decisions_omitted=omitted,
        # At first as many rows as the timeline has lanes.
        replicas=replica_rows(state, REPLICAS_MAX if view.with_whole_table else LANES_MAX),
        cost=read_cost_section(history, entries, now, console.cost_sources),
        spec=as_yaml(json.loads(job.spec_json)),
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


def _failure(job: Job, entries: tuple[LedgerEntry, ...]) -> Failure | None:
    """Return what ended a job that did not succeed; the tail is that of the exit in the ledger."""
    if not job.error_message:
        return None
    ending = ending_of(job, entries)
    words = headline(job, ending)
    entry = final_entry(job, entries)
    if ending is None:
        return Failure(words, entry)
    event = final_exit(job, entries)
    if event is None:
        return Failure(words, entry, ending.remedy)
    subject = f"{event.subject.replica_id.words}, incarnation {event.subject.incarnation}"
    return Failure(words, entry, ending.remedy, subject, cause(event), event.tail.strip())


def _decisions(
    entries: tuple[LedgerEntry, ...],
    replica_id: ReplicaId | None,
    view: View,
    *,
    keeps_machines: bool,
) -> tuple[tuple[DecisionRow, ...], int]:
    """Return the newest decisions in the order of their commits, and the number of older ones."""
    # Marks of the timeline lead to the ends of rounds, too.
    shown = shown_entries(entries, replica_id, everything=view.with_ignored, with_ends=True)
    newest = shown[-DECISIONS_MAX:]
    rows = tuple(
        _decision(entry, omitted, with_rules=view.with_ignored, keeps_machines=keeps_machines)
        for entry, omitted in newest
    )
    return rows, len(shown) - len(newest)


def _decision(
    entry: LedgerEntry, omitted: int, *, with_rules: bool, keeps_machines: bool
) -> DecisionRow:
    changes = tuple(
        f"{name.replace('_', ' ')}: {old} → {new}" for name, old, new in budget_changes(entry)
    )
    passed_over: tuple[tuple[Rule, str], ...] = ()
    if with_rules and entry.decision.rule.is_judgement:
        passed_over = rules_passed_over(entry)
    return DecisionRow(
        entry=entry,
        omitted=omitted,
        replica=str(replica_of(entry) or ""),
        changes=changes,
        passed_over=passed_over,
        keeps_machines=keeps_machines,
    )


def _timeline(history: History, now: datetime, view: View) -> Timeline:
    """Return the part of the timeline that the address names.

    Raises PermanentError for wrong times.
    """
    timeline = read_timeline(history, now, with_all=view.with_all_replicas)
    if not (view.start or view.end):
        return timeline
    start = parse_time("from", view.start) if view.start else None
    end = parse_time("to", view.end) if view.end else None
    return zoom(timeline, start, end)
