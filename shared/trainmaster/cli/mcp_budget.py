"""The budget of `trainmaster mcp`: what all jobs with one label may cost together.

It holds for all jobs with the label, whoever submits them:

    submit ──► the label's jobs + this one ≤ amount? ──► create
                 ▲                                         │ again, with what was created meanwhile
                 └─────────────────────────────────────────┘

A job counts with its cap, `trainmaster.maxCost`, until its cost is known. If two servers create
jobs at the same time and these are too many together, both servers cancel the later ones.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from threading import Lock
from typing import Any, Final

from trainmaster.client.client import Client
from trainmaster.client.job import Job as CreatedJob
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.job import Job, Label, public_id
from trainmaster.core.model.money import ZERO, Money
from trainmaster.core.model.origin import Dialect
from trainmaster.cost.cap import spent_at_most
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import with_field
from trainmaster.jobspec.reading.document_kinds import detect_kind
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.ports import JobFilter, Store

LABEL: Final = "budget"
"""Key of the label that each job of a budget has; its value is the budget's name."""
LATE_S: Final = 65.0
"""How long after a lost answer the API may still create the job.

Source: the timeout of `api` in infra/functions.tf.
"""
JOBS_MAX: Final = 1_000_000
"""More than any installation has: a budget counts all of its jobs."""
_BUDGET: Final = re.compile(
    r"(?P<name>[a-z0-9_-]{1,63}):(?P<amount>[0-9]{1,9}(?:\.[0-9]{1,2})?) ?(?P<currency>[A-Z]{3})"
)


@dataclass
class Budget:
    """The jobs of one label, and what they may cost together.

    Several servers may have the same budget; one server submits one job at a time.
    """

    name: str
    limit: Money
    only: JobFilter
    """Chooses the jobs of the label."""
    client: Client
    store: Store
    sleep: Callable[[float], None] = time.sleep
    _lock: Lock = field(default_factory=Lock)
    """Held while one job is checked and created."""
    _costs: dict[str, Decimal] = field(default_factory=dict)
    """Costs of jobs that have ended, by id.

    To compute one takes a read of each entry of the job's ledger, its record of events.
    """

    def submit(self, document: Mapping[str, Any], region: str | None) -> CreatedJob:
        """Create the job, with the label.

        Raises InvalidJob, and PermanentError if the budget is used up by now.
        """
        cap = self._cap_amount(accept(document, default_job_id="job").plan.limits.cap, "the job")
        labelled = with_field(document, ("labels",), {LABEL: self.name})
        with self._lock:
            before = self.jobs()
            if sum(map(self._amount, before)) + cap > self.limit.amount:
                raise PermanentError(
                    f"trainmaster.maxCost: {float(cap):g} is too much: {self.words(before)}"
                )
            try:
                created = self.client.submit(labelled, region)
                self._cancel_excess(before)
                created = self.client.describe(created)  # another server may have cancelled it
            except TemporaryError:
                # The answer is lost, and not the request: the API may still create the job.
                self.sleep(LATE_S)
                self._cancel_excess(before)
                raise
        if created.state == "CANCELLED":
            raise PermanentError(
                f"{created.address} was cancelled: another server has used the budget meanwhile"
            )
        return created

    def words(self, jobs: Sequence[Job]) -> str:
        """Return how much these jobs use, in words."""
        return (
            f"{sum(map(self._amount, jobs)):.2f} of {self.limit} of the budget {self.name} are used"
            " or reserved"
        )

    def require(self, address: str) -> None:
        """Raise PermanentError for a job that is not the budget's: a line of a log may have talked
        the agent into cancelling it.
        """
        if address not in map(address_of, self.jobs()):
            raise PermanentError(
                f"{address} is not a job of the budget {self.name}, and this server cancels no"
                " others: cancel it with `trainmaster cancel`"
            )

    def jobs(self) -> Sequence[Job]:
        """Return all jobs of the budget, the oldest first."""
        return self.store.recent_jobs(JOBS_MAX, after=None, only=self.only)[::-1]

    def _cancel_excess(self, before: Sequence[Job]) -> None:
        """Cancel the jobs that the budget has no money for, also those of other servers.

        The jobs of `before` stay. Money goes to the others from the oldest on, so that all servers
        choose the same jobs.
        """
        jobs = self.jobs()
        known_ids = {job.job_id for job in before}
        known_amounts = [self._amount(job) for job in jobs if job.job_id in known_ids]
        left = self.limit.amount - sum(known_amounts)
        for job in jobs:
            if job.job_id in known_ids:
                continue
            amount = self._amount(job)
            if not job.state.is_terminal and amount > left:
                self.client.cancel(address_of(job))
            else:
                left -= amount

    def _amount(self, job: Job) -> Decimal:
        """Return what a job uses of the budget: its cap, or its cost once it has ended.

        The cost of a tuning job is not known, so its cap counts.
        """
        if job.job_id in self._costs:
            return self._costs[job.job_id]
        cap = job.plan.limits.cap
        amount = self._cap_amount(cap, job.job_id)
        is_cost_known = cap is not None and cap.rates and not job.tuning
        if cap is None or not is_cost_known or not job.state.is_terminal:
            return amount
        entries = self.store.ledger(job.job_id)
        if entries:
            amount = spent_at_most(cap, entries, datetime.now(UTC))
        self._costs[job.job_id] = amount
        return amount

    def _cap_amount(self, cap: Cap | None, what: str) -> Decimal:
        """Return the amount of a job's cap. `what`: the job, in words.

        Raises PermanentError if there is no cap in the budget's currency.
        """
        if cap is None or cap.limit.currency != self.limit.currency:
            rule = f"{what} must have one in {self.limit.currency}, because of the budget"
            raise PermanentError(
                f"trainmaster.maxCost: {rule}. Example: maxCost: 5 {self.limit.currency}"
            )
        return cap.limit.amount


def read_budget(text: str, client: Client, store: Store, prices: PriceList | Unknown) -> Budget:
    """Return the budget of `NAME:20USD`.

    Raises PermanentError, also for another currency than that of the prices.
    """
    match = _BUDGET.fullmatch(text)
    amount = Decimal(match["amount"]) if match else ZERO
    if match is None or amount == 0:
        rule = "must be a label (a-z, 0-9, _ and -), an amount above 0 and a currency"
        raise PermanentError(f"--budget: {rule}, not {text!r}. Example: --budget agents:20USD")
    name = match["name"]
    currency = match["currency"]
    if not isinstance(prices, Unknown) and prices.currency != currency:
        raise PermanentError(
            f"--budget: must be in {prices.currency}, as the list prices are, not in {currency}"
        )
    only = JobFilter(labels=(Label(LABEL, name),))
    return Budget(name, Money(amount, currency), only, client, store)


def address_of(job: Job) -> str:
    """Return the job's address below the project, as the client has it."""
    if job.plan.origin.dialect is Dialect.AI_PLATFORM:
        return f"jobs/{job.job_id}"
    kind = detect_kind(parse_document(job.spec_json.encode(), job.job_id))
    return f"locations/{job.plan.where.region}/{kind.collection}/{public_id(job.job_id)}"
