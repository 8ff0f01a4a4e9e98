"""The list of jobs: filters in the address, applied by the server, and pages by the position of the last job read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

from shared.console.durations import duration_words
from shared.console.pages.service import Console
from shared.core.model.job import Job, JobState
from shared.core.model.plan import Plan, TaskGroup
from shared.core.reporting.submission_origin import describe_origin
from shared.core.rules.admission_queue import Wait, queued_jobs
from shared.core.rules.messages import summary
from shared.cost.job_cost import hourly_cost
from shared.cost.price_list import PriceList
from shared.cost.sku import Unknown
from shared.errors import PermanentError
from shared.ports import JobPosition
from shared.presentation.cost_view import money_words

SIZE: Final = 50
SIZE_MAX: Final = 1_000
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
JOBS_READ_MAX: Final = 1_000
"""Jobs that one page reads when a filter accepts few of them."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a list, all of which a job must match."""

    states: tuple[JobState, ...] = ()
    """Any of these states; empty: all."""
    user: str = ""
    """Part of the user's e-mail address."""
    label: str = ""
    """`KEY=VALUE`, or `KEY` for any value."""
    text: str = ""
    """Part of the job id or of the display name."""
    after: JobPosition | None = None
    """The page begins behind this position."""
    size: int = SIZE

    @property
    def is_active(self) -> bool:
        return bool(self.states or self.user or self.label or self.text)

    def query(self, **changes: object) -> str:
        """Return the address of the list with these filters, some of them changed."""
        filters = replace(self, **changes)  # type: ignore[arg-type]
        pairs = [("state", state.value) for state in filters.states]
        pairs += [("user", filters.user), ("label", filters.label), ("q", filters.text)]
        pairs += [("after", encode_position(filters.after))] if filters.after else []
        pairs += [("size", str(filters.size))] if filters.size != SIZE else []
        query = urlencode([(name, value) for name, value in pairs if value])
        return f"/jobs?{query}" if query else "/jobs"

    def toggled(self, state: JobState) -> str:
        """Return the address of the first page with this state added to the filter, or removed from it."""
        states = tuple(other for other in self.states if other is not state)
        return self.query(states=states if len(states) < len(self.states) else (*states, state), after=None)


def read_filters(args: Mapping[str, list[str]]) -> Filters:
    """Return the filters of an address. Raises PermanentError for a wrong state, size or position."""

    def last(name: str) -> str:
        return (args.get(name) or [""])[-1].strip()

    try:
        states = tuple(dict.fromkeys(JobState(state) for state in args.get("state", []) if state))
    except ValueError:
        raise PermanentError(f"state: must be one of {', '.join(JobState)}") from None
    size = last("size")
    if size and not (size.isdecimal() and 1 <= int(size) <= SIZE_MAX):
        raise PermanentError(f"size: must be a whole number from 1 to {SIZE_MAX}")
    after = decode_position(last("after")) if last("after") else None
    return Filters(states, last("user"), last("label"), last("q"), after, int(size or SIZE))


def encode_position(position: JobPosition) -> str:
    return f"{position.created_at.isoformat()}/{position.job_id}"


def decode_position(text: str) -> JobPosition:
    """Parse the parameter `after`. Raises PermanentError with its form."""
    time, _, job_id = text.partition("/")
    try:
        created_at = datetime.fromisoformat(time)
    except ValueError:
        created_at = None
    if created_at is None or created_at.tzinfo is None or not _ID.fullmatch(job_id):
        raise PermanentError("after: must be TIME/JOB, such as 2026-11-21T03:00:00+00:00/digits_1")
    return JobPosition(created_at, job_id)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the list."""

    job: Job
    kind: str
    origin: str
    waited: str
    """Time from creation to RUNNING, or until now."""
    ran: str
    """Time from RUNNING to the end, or until now; empty before."""
    machines: str
    situation: str
    """Why it waits or how it ended, in one line; empty if it simply runs or succeeded."""
    cost: str = ""
    """Price of its first machines since RUNNING; empty if it is not known. The job's page has the exact cost."""


@dataclass(frozen=True, slots=True)
class JobList:
    filters: Filters
    rows: tuple[JobRow, ...]
    next_page: str | None
    """Address of the next page; None: there is none."""
    read: int
    """Number of jobs that were read for this page."""
    stopped_early: bool
    """Whether the page ended because it read `JOBS_READ_MAX` jobs, and not because it is full."""

    @property
    def has_costs(self) -> bool:
        return any(row.cost for row in self.rows)


def read_job_list(console: Console, filters: Filters) -> JobList:
    """Return a page of jobs, the newest first. Trials are left out: their tuning job shows them."""
    position, jobs, read = filters.after, list[Job](), 0
    batch = min(filters.size + 1, 200)
    has_more = True
    while has_more and len(jobs) <= filters.size and read < JOBS_READ_MAX + 1:
        page = console.store.recent_jobs(batch, position)
        has_more = len(page) == batch
        for job in page:
            read += 1
            if is_listed(job) and matches(job, filters):
                jobs.append(job)
            position = JobPosition(job.created_at, job.job_id)
            if len(jobs) > filters.size:
                break
    is_full = len(jobs) > filters.size
    shown = jobs[: filters.size]
    last = JobPosition(shown[-1].created_at, shown[-1].job_id) if is_full else position
    next_page = filters.query(after=last) if is_full or has_more else None
    waits = _waits(console, shown)
    now = console.now
    prices = console.cost_sources.prices()
    rows = tuple(replace(job_row(job, now, waits.get(job.job_id)), cost=_cost(job, now, prices)) for job in shown)
    return JobList(filters, rows, next_page, read, stopped_early=has_more and not is_full)


def is_listed(job: Job) -> bool:
    return job.deleted_at is None and job.trial_of is None


def matches(job: Job, filters: Filters) -> bool:
    """Whether the job matches all filters."""
    key, separator, value = filters.label.partition("=")
    labels = {label.key: label.value for label in job.labels}
    text = filters.text.lower()
    return (
        (not filters.states or job.state in filters.states)
        and (not filters.user or filters.user.lower() in (job.submitted_by or "").lower())
        and (not key or (key in labels and (not separator or labels[key] == value)))
        and (not text or text in job.job_id.lower() or text in display_name(job).lower())
    )


def display_name(job: Job) -> str:
    """Return the display name of a job in Vertex AI's format; empty in AI Platform's, which has only ids."""
    name = json.loads(job.spec_json).get("displayName")
    return name if isinstance(name, str) else ""


def _waits(console: Console, jobs: list[Job]) -> dict[str, Wait]:
    if not console.limits or not any(job.state is JobState.QUEUED for job in jobs):
        return {}
    return {wait.job_id: wait for wait in queued_jobs(console.store.live_jobs(), console.limits)}


def job_row(job: Job, now: datetime, wait: Wait | None) -> JobRow:
    running = (job.ended_at or now) - job.started_at if job.started_at else None
    waited = (job.started_at or job.ended_at or now) - job.created_at
    return JobRow(
        job,
        job_kind(job),
        describe_origin(job),
        duration_words(max(waited, timedelta())),
        duration_words(running) if running is not None else "",
        machine_words(job.plan),
        situation(job, wait),
    )


def _cost(job: Job, now: datetime, prices: PriceList | Unknown) -> str:
    """Return the cost as far as the job document tells it: reading the ledger of every job would be too much."""
    if job.started_at is None or job.tuning is not None or isinstance(prices, Unknown):
        return ""
    hourly = hourly_cost(job.plan, prices)
    seconds = Decimal(str(max(((job.ended_at or now) - job.started_at).total_seconds(), 0.0)))
    return "" if isinstance(hourly, Unknown) else money_words(hourly * seconds / 3600, prices.currency)


def job_kind(job: Job) -> str:
    if job.tuning is not None:
        return f"tuning, {job.tuning.ended} of {job.tuning.max_trials} trials"
    return f"trial of {job.trial_of.job_id}" if job.trial_of else "job"


def situation(job: Job, wait: Wait | None) -> str:
    """Return why the job waits or how it ended, in one line; empty if it simply runs or succeeded."""
    if job.error_message:
        return summary(job.error_message)
    if wait is not None:
        return wait.sentence
    if job.state is JobState.PREPARING and job.placement.round:
        errors = job.placement.round
        return f"{errors} capacity error{'s' if errors > 1 else ''} so far; VMs are requested in {job.zone}."
    return f"attempt {job.attempt}" if job.attempt > 1 and not job.state.is_terminal else ""


def machine_words(plan: Plan) -> str:
    """Return `1 x n1-standard-8 (chief), 4 x n1-standard-4 with 1 x nvidia-tesla-t4 (worker)`."""
    return ", ".join(f"{_group_words(group)} ({group.task_type})" for group in plan.groups)


def _group_words(group: TaskGroup) -> str:
    if group.tpu is not None:
        return f"{group.count} x {group.tpu.type}"
    gpus = f" with {group.accelerator.count} x {group.accelerator.type}" if group.accelerator else ""
    return f"{group.count} x {group.machine_type}{gpus}{', Spot' if group.spot else ''}"
