"""Order of the list of jobs, from the address: `?sort=COLUMN&order=asc|desc`; without it, the
newest first.

The store has an index for that order only. For any other, the console sorts the newest
`job_counts.JOBS_READ_MAX` jobs, and the page shows a note if there are more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.console.pages.job_rows import Measured, cost_of, gpu_count
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.owner import owner
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError

ORDERS: Final = ("asc", "desc")
CREATED: Final = "created"
FIRST_ORDERS: Final = {
    "state": "asc",
    "job": "asc",
    "owner": "asc",
    "progress": "desc",
    CREATED: "desc",
    "waited": "desc",
    "ran": "desc",
    "gpus": "desc",
    "cost": "desc",
}
"""Column → the order that the first click on its heading selects."""

Sortable = float | str
Key = Callable[[Job], Sortable | None]
"""Job → its value in the column. None: it has none, and comes last in both orders."""


@dataclass(frozen=True, slots=True)
class JobOrder:
    """The column by which the list is sorted, and the direction."""

    column: str = CREATED
    order: str = "desc"

    @property
    def is_newest_first(self) -> bool:
        return self.column == CREATED and self.order == "desc"

    def next(self, column: str) -> JobOrder:
        """Return the order that a click on the heading of a column selects."""
        if column != self.column:
            return JobOrder(column, FIRST_ORDERS[column])
        return JobOrder(column, "desc" if self.order == "asc" else "asc")

    def aria_sort(self, column: str) -> str:
        """Return the value of `aria-sort` of the column's heading."""
        if column != self.column:
            return "none"
        return "ascending" if self.order == "asc" else "descending"

    def sort(self, jobs: Sequence[Job], key: Key) -> list[Job]:
        """Return the jobs, which come newest first, in this order; equal ones stay newest first."""
        values = [(key(job), job) for job in jobs]
        present = [(value, job) for value, job in values if value is not None]
        present.sort(key=lambda pair: pair[0], reverse=self.order == "desc")
        return [job for _, job in present] + [job for value, job in values if value is None]


def read_job_order(sort: str, order: str) -> JobOrder:
    """Parse the address. Raises PermanentError that names the parameter and its values."""
    if order not in ("", *ORDERS):
        raise PermanentError(f"order: must be one of {', '.join(ORDERS)}, or be left out")
    if sort and sort not in FIRST_ORDERS:
        raise PermanentError(f"sort: must be one of {', '.join(FIRST_ORDERS)}, or be left out")
    column = sort or CREATED
    return JobOrder(column, order or FIRST_ORDERS[column])


def key_of(column: str, measured: Measured, prices: PriceList | Unknown, now: datetime) -> Key:
    """Return the values that a column is sorted by."""
    states = list(JobState)
    progress = measured.progress

    def waited(job: Job) -> float:
        return ((job.started_at or job.ended_at or now) - job.created_at).total_seconds()

    def ran(job: Job) -> float | None:
        if job.started_at is None:
            return None
        return ((job.ended_at or now) - job.started_at).total_seconds()

    def cost(job: Job) -> float | None:
        amount = cost_of(job, now, prices)
        return None if amount is None else float(amount)

    keys: Mapping[str, Key] = {
        "state": lambda job: states.index(job.state),
        "job": lambda job: job.job_id.lower(),
        "owner": lambda job: owner(job).user.lower() or None,
        "progress": lambda job: progress[job.job_id].share if job.job_id in progress else None,
        CREATED: lambda job: job.created_at.timestamp(),
        "waited": waited,
        "ran": ran,
        "gpus": lambda job: gpu_count(job.plan) or None,
        "cost": cost,
    }
    return keys[column]
