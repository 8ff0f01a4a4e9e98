"""`trainmaster cost`: what jobs cost together, by their owners or by a label."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Final

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.job_filters import ByLabel, ByState, ByUser, Mine, job_filter
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, complain, print_result
from trainmaster.core.model.job import Job
from trainmaster.core.model.label_rules import is_legal_job_label
from trainmaster.core.model.owner import owner
from trainmaster.core.model.tuning import trial_id
from trainmaster.core.reporting.history import read_history
from trainmaster.cost.job_cost import JobCost
from trainmaster.cost.report import CostSources, cost_report
from trainmaster.errors import PermanentError
from trainmaster.ports import Store
from trainmaster.ports.machine_sets import machine_set_of
from trainmaster.presentation.cost_view import money_words
from trainmaster.presentation.durations import HOUR_S
from trainmaster.presentation.job_view import timestamp

USER: Final = "user"
"""Value of `--by`: one sum for each owner."""
JOB: Final = "job"
"""Value of `--by`: each job by itself."""


@dataclass
class Sum:
    """The cost of all jobs of one owner, or with one value of a label."""

    jobs: int = 0
    """Number of jobs."""
    paid_s: float = 0.0
    """Paid machine time, in machine-seconds."""
    amount: Decimal = Decimal(0)
    currency: str = ""
    not_known: int = 0
    """Number of jobs whose cost is not fully known.

    Prices are missing, or the ledger (record of events) of the job or of a trial has expired.
    """

    @property
    def machine_hours(self) -> float:
        return self.paid_s / HOUR_S


def cost(
    by: Annotated[
        str,
        typer.Option(help="`user`, `job`, or the key of a label, such as `team`.", metavar="KEY"),
    ] = USER,
    limit: Annotated[
        int,
        typer.Option(min=1, max=1000, metavar="NUMBER", help="The newest jobs that are counted."),
    ] = 100,
    state: ByState = None,
    user: ByUser = None,
    mine: Mine = False,
    label: ByLabel = None,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Show what jobs cost at list prices, by user, job or label. Reads the ledger of each job."""
    if not is_legal_job_label(by, value=""):
        raise PermanentError(
            f"--by: must be `user`, `job` or the key of a label, not {by!r}. Example: --by team"
        )
    only = job_filter(state, user, mine, label)
    store = open_store()
    jobs = store.recent_jobs(limit + 1, after=None, only=only)
    has_more = len(jobs) > limit
    jobs = jobs[:limit]
    sums: defaultdict[str, Sum] = defaultdict(Sum)
    for job in jobs:
        labels = {label.key: label.value for label in job.labels}
        names_by_key = {**labels, USER: owner(job).words, JOB: job.job_id}
        _add(job, store, sums[names_by_key.get(by, "-")])
    rows = sorted(sums.items(), key=lambda item: (-item[1].amount, item[0]))
    print_result(
        form,
        (
            {
                "by": by,
                "value": name,
                "jobs": row.jobs,
                "machineHours": row.machine_hours,
                "cost": str(row.amount),
                "currency": row.currency,
                "notKnown": row.not_known,
            }
            for name, row in rows
        ),
        [by, "jobs", "machine-hours", "cost", "not known"],
        [
            (
                name,
                f"{row.jobs}",
                f"{row.machine_hours:.2f}",
                money_words(row.amount, row.currency),
                f"{row.not_known}",
            )
            for name, row in rows
        ],
    )
    is_label = by not in (USER, JOB)
    has_label = any(label.key == by for job in jobs for label in job.labels)
    if jobs and is_label and not has_label:
        complain(f"None of these {len(jobs)} jobs has the label {by}.")
    if has_more:
        complain(
            f"Jobs created before {timestamp(jobs[-1].created_at)} are not counted: raise"
            " `--limit`."
        )


def _add(job: Job, store: Store, total: Sum) -> None:
    """Add a job, or all trials of a tuning job, to `total`."""
    from trainmaster.wiring.price_list import price_list

    total.jobs += 1
    job_ids = [job.job_id]
    if job.tuning:
        job_ids = [trial_id(job.job_id, trial.number) for trial in job.tuning.trials]
    is_known = True
    for job_id in job_ids:
        entries = store.ledger(job_id)
        history = read_history(entries)
        report = None
        if history:
            sources = CostSources(
                price_list,
                checkpoint_times=None,
                machine_set=lambda job: machine_set_of(job, store),
            )
            report = cost_report(history, entries, datetime.now(UTC), sources)
        if report:
            total.paid_s += report.goodput.paid_s
        if report and isinstance(report.cost, JobCost):
            total.amount += report.cost.total
            total.currency = report.cost.currency
        else:
            is_known = False
    if not is_known:
        total.not_known += 1
