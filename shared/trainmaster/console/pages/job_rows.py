"""The rows of the list of jobs, and what is read for all rows of a page at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import TypeVar

from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.owner import Owner, owner
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Accelerator, TaskGroup
from trainmaster.core.reporting.next_steps import short_round
from trainmaster.core.rules.admission_queue import Wait, wait_of_job
from trainmaster.core.rules.messages import summary
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports.metrics import MetricReader
from trainmaster.presentation.cost_view import money_words
from trainmaster.presentation.durations import HOUR_S, duration_words
from trainmaster.presentation.failing import Failing, failing_jobs
from trainmaster.presentation.program_words import folder_words, program_words
from trainmaster.presentation.progress import Progress, final_progress_jobs, read_progress_jobs
from trainmaster.presentation.quiet import Quiet, read_quiet_jobs
from trainmaster.presentation.utilization import read_gpu_use_jobs, share_words

_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the list."""

    job: Job
    kind: str
    """Words for a tuning job or a trial; empty for an ordinary job."""
    program: str
    """What it runs."""
    folder: str
    """The folder and commit that the program was packed from; empty: none is known."""
    owner: Owner
    waited: str
    """Time from creation to RUNNING, or until now."""
    ran: str
    """Time from RUNNING to the end, or until now; empty before."""
    machines: tuple[str, ...]
    """The machines of each role, without their GPUs."""
    gpus: str
    """The GPUs of all its machines; empty: it has none."""
    gpu_use: str
    """Share of the last minutes in which a kernel ran; empty: not known, or it does not run."""
    share: float | None
    """Part of the work that is done, from 0 to 1; None: unknown."""
    progress: str
    """How far it is, in words; empty: unknown."""
    situation: str
    """Why it waits or how it ended, in one line; empty if it simply runs or succeeded."""
    cost: str
    """Price of its first machines since RUNNING; empty if it is not known.

    The job's page has the exact cost.
    """
    failing: Failing | None
    """Set if the job keeps failing."""
    quiet: Quiet | None
    """Set if its program prints nothing, and will be ended for that."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of jobs, by job id.

    Those of running jobs come from Cloud Monitoring, and are missing if it cannot be read.
    """

    progress: Mapping[str, Progress]
    gpu_use: Mapping[str, float]
    quiet: Mapping[str, Quiet]


def measure(console: Console, jobs: Sequence[Job]) -> Measured:
    """Return what is measured of these jobs, by three calls at most.

    The console keeps the answers for a minute.
    """
    return Measured(
        {**final_progress_jobs(jobs), **_measure(console, jobs, read_progress_jobs)},
        _measure(console, jobs, read_gpu_use_jobs),
        _measure(console, jobs, read_quiet_jobs),
    )


def _measure(
    console: Console,
    jobs: Sequence[Job],
    read: Callable[[MetricReader, Sequence[Job], datetime], Mapping[str, _Value]],
) -> Mapping[str, _Value]:
    """Return what `read` returns; nothing if Cloud Monitoring cannot be read."""
    # All calls of a minute are the same, so that the console answers most of them from its cache.
    minute = console.clock().replace(second=0, microsecond=0)
    try:
        return read(console.metrics, jobs, minute)
    except (PermanentError, TemporaryError) as error:
        _log.warning("Cannot read what programs measure: %s", error)
        return {}


def job_rows(console: Console, jobs: Sequence[Job], measured: Measured) -> tuple[JobRow, ...]:
    """Return the rows of these jobs, in their order."""
    now = console.now
    prices = console.cost_sources.prices()
    read_queue = cache(console.store.queue)  # read once for all rows, if any job is queued
    failing = failing_jobs(console.store, jobs, now, _log.warning)

    def row(job: Job) -> JobRow:
        ran = (job.ended_at or now) - job.started_at if job.started_at else None
        waited = (job.started_at or job.ended_at or now) - job.created_at
        use = measured.gpu_use.get(job.job_id)
        progress = measured.progress.get(job.job_id)
        cost = cost_of(job, now, prices)
        return JobRow(
            job=job,
            kind=_kind_in_list(job),
            program=program_words(job),
            folder=folder_words(job),
            owner=owner(job),
            waited=duration_words(max(waited, timedelta())),
            ran=duration_words(ran) if ran is not None else "",
            machines=tuple(machine_groups(job.placed.plan)),
            gpus=gpu_words(job.placed.plan),
            gpu_use=share_words(use) if use is not None else "",
            share=progress.share if progress else _share_of_trials(job),
            progress=progress.short_words() if progress else _trial_words(job),
            situation=situation(job, wait_of_job(job, read_queue, console.limits)),
            cost=money_words(cost, currency_of(prices)) if cost is not None else "",
            failing=failing.get(job.job_id),
            quiet=measured.quiet.get(job.job_id),
        )

    return tuple(map(row, jobs))


def cost_of(job: Job, now: datetime, prices: PriceList | Unknown) -> Decimal | None:
    """Return the cost that follows from the job document alone; None: it is not known.

    The ledger of every job, its record of events, would be too much to read.
    """
    if job.started_at is None or job.tuning is not None or isinstance(prices, Unknown):
        return None
    hourly = hourly_cost(job.placed.plan, prices)
    seconds = Decimal(str(max(((job.ended_at or now) - job.started_at).total_seconds(), 0.0)))
    return None if isinstance(hourly, Unknown) else hourly * seconds / HOUR_S


def currency_of(prices: PriceList | Unknown) -> str:
    """Return the currency of the price list; empty if there is no list."""
    return "" if isinstance(prices, Unknown) else prices.currency


def _kind_in_list(job: Job) -> str:
    """Return the kind of a job where the row shows its progress elsewhere."""
    if job.tuning is not None:
        return "tuning"
    return job_kind(job) if job.trial_of else ""


def job_kind(job: Job) -> str:
    """Return what kind of job it is, in words: a tuning job with its progress, a trial, a job."""
    if job.tuning is not None:
        return f"tuning, {job.tuning.ended} of {job.tuning.max_trials} trials"
    return f"trial of {job.trial_of.job_id}" if job.trial_of else "job"


def situation(job: Job, wait: Wait | None) -> str:
    """Return why the job waits or how it ended, in one line; empty if it simply runs or
    succeeded without a note.
    """
    if job.error_message:
        return summary(job.error_message)
    if job.notes:
        return f"but: {job.notes[0]}"
    if wait is not None:
        return wait.sentence
    # A round of placement is one request for VMs: each one before this ended by a capacity error.
    if job.state is JobState.PREPARING and job.placement.round:
        return _capacity_errors(job)
    return "" if job.state.is_terminal else _round_or_attempt(job)


def _capacity_errors(job: Job) -> str:
    errors = job.placement.round
    problem = f" (the last one: {job.placement.problem})" if job.placement.problem else ""
    return (
        f"{errors} capacity error{'s' if errors > 1 else ''} so far{problem}; VMs are requested"
        f" in {job.zone}."
    )


def _round_or_attempt(job: Job) -> str:
    """Return what is special about the current round of a synchronous job, whose members start
    together, or that an attempt is not the first one.
    """
    waits_for_members = job.round.is_held and job.state is JobState.RUNNING
    if waits_for_members:
        return f"round {job.round.number} waits for its members"
    if job.round.without:
        return short_round(job)
    return f"attempt {job.attempt}" if job.attempt > 1 else ""


def _share_of_trials(job: Job) -> float | None:
    return job.tuning.ended / job.tuning.max_trials if job.tuning else None


def _trial_words(job: Job) -> str:
    return f"{job.tuning.ended} of {job.tuning.max_trials} trials" if job.tuning else ""


def machine_words(plan: Plan) -> str:
    """Return `1 x n1-standard-8 (chief), 4 x n1-standard-4 with 1 x nvidia-tesla-t4 (worker)`."""
    return ", ".join(
        f"{_group_words(group, with_gpus=True)} ({group.task_type})" for group in plan.groups
    )


def machine_groups(plan: Plan) -> Iterator[str]:
    """Yield `4 x n1-standard-4 (worker)` for each role; without the role if there is only one."""
    for group in plan.groups:
        role = f" ({group.task_type})" if len(plan.groups) > 1 else ""
        yield f"{_group_words(group, with_gpus=False)}{role}"


def _group_words(group: TaskGroup, *, with_gpus: bool) -> str:
    if group.tpu is not None:
        return f"{group.count} x {group.tpu.type}"
    gpus = ""
    if with_gpus and group.accelerator:
        gpus = f" with {group.accelerator.count} x {group.accelerator.type}"
    # How the VMs are bought, such as Spot; empty for ordinary VMs.
    price_words = group.purchase.price.prefix
    purchase = f", {price_words}" if price_words else ""
    return f"{group.count} x {group.machine_type}{gpus}{purchase}"


def gpu_count(plan: Plan) -> int:
    """Return the number of GPUs of all machines."""
    return sum(group.count * group.accelerator.count for group in plan.groups if group.accelerator)


def gpu_words(plan: Plan) -> str:
    """Return `8 x T4`: the GPUs of all machines."""
    counts: dict[str, int] = {}
    for group in plan.groups:
        if group.accelerator:
            name = _gpu_name(group.accelerator)
            counts[name] = counts.get(name, 0) + group.count * group.accelerator.count
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _gpu_name(accelerator: Accelerator) -> str:
    """Return `T4` for `nvidia-tesla-t4`."""
    name = accelerator.type.removeprefix("nvidia-").removeprefix("tesla-")
    return name.upper().replace("-", " ")
