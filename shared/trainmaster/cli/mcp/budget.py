"""The budget of agents: all jobs with one label together cost at most an amount, whoever submits them.

    submit ──► the label's jobs + this one ≤ amount? ──► create ──► the same again, with what was created meanwhile

A job counts with its cap, `maxCost`; one that has ended, with what it has cost. Nothing is stored besides the label. Of
jobs that two servers create at one time, both servers find the later ones to be too many, and cancel them. Jobs that
were there before are never cancelled.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, Final

from trainmaster.client.client import Client
from trainmaster.client.job import Job as CreatedJob
from trainmaster.core.model.job import Job, JobState, Label, public_id
from trainmaster.core.model.plan import Cap, Dialect
from trainmaster.cost.cap import spent_at_most
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.jobspec import accept, detect_kind, parse_document
from trainmaster.jobspec.job_document import with_field
from trainmaster.ports import JobFilter, Store

LABEL: Final = "budget"
LATE_S: Final = 65.0
"""How long after a lost answer the API may still create the job. Source: the timeout of `api` in infra/functions.tf."""
JOBS_MAX: Final = 10_000
ROUNDING: Final = 1e-6

_BUDGET: Final = re.compile(r"([a-z0-9_-]{1,63}):([0-9]{1,9}(?:\.[0-9]{1,2})?) ?([A-Z]{3})")


@dataclass
class Budget:
    """The jobs of one label. Several servers may have the same budget; one server submits one job at a time."""

    name: str
    limit: Cap
    only: JobFilter
    client: Client
    store: Store
    sleep: Callable[[float], None] = time.sleep
    _lock: Lock = field(default_factory=Lock)
    _costs: dict[str, float] = field(default_factory=dict)
    """Of jobs that have ended, by id: a cost takes one read for each decision about the job."""

    def submit(self, document: Mapping[str, Any], region: str | None) -> CreatedJob:
        """Create the job, with the label. Raises InvalidJob, and PermanentError if the budget is used up by now."""
        cap = self._cap(accept(document, default_job_id="job").plan.cap, "the job")
        labelled = with_field(document, ("labels",), {LABEL: self.name})
        with self._lock:
            before = self._jobs()
            used = sum(map(self._amount, before))
            if used + cap > self.limit.amount + ROUNDING:
                raise PermanentError(f"trainmaster.maxCost: {cap:g} is too much: {self.words(used)}")
            try:
                created = self.client.submit(labelled, region)
                cancelled = self._cancel_excess(before)
            except TemporaryError:
                self.sleep(LATE_S)
                self._cancel_excess(before)
                raise
        if created.address in cancelled:
            raise PermanentError(f"{created.address} was cancelled: another server has used the budget meanwhile")
        return created

    def words(self, used: float | None = None) -> str:
        """Return how much is used, in words; default: now."""
        used = sum(map(self._amount, self._jobs())) if used is None else used
        return f"{used:.2f} of {self.limit} of the budget {self.name} are used or reserved"

    def _jobs(self) -> Sequence[Job]:
        """Return all jobs of the budget, the oldest first."""
        if len(jobs := self.store.recent_jobs(JOBS_MAX, None, self.only)) == JOBS_MAX:
            raise PermanentError(f"the budget {self.name} has {JOBS_MAX} jobs or more: use another name")
        return jobs[::-1]

    def _cancel_excess(self, before: Sequence[Job]) -> set[str]:
        """Cancel the jobs that are too many, and return the addresses of all that are cancelled by now, also by other
        servers. `before`: jobs that stay."""
        jobs, known, cancelled = self._jobs(), {job.job_id for job in before}, set[str]()
        left = self.limit.amount + ROUNDING - sum(self._amount(job) for job in jobs if job.job_id in known)
        for job in (job for job in jobs if job.job_id not in known):
            is_excess = not job.state.is_terminal and self._amount(job) > left
            if is_excess:
                self.client.cancel(address_of(job))
            else:
                left -= self._amount(job)
            if is_excess or job.state is JobState.CANCELLED:
                cancelled.add(address_of(job))
        return cancelled

    def _amount(self, job: Job) -> float:
        """Return the job's cap, or what it has cost, which is not known of tuning jobs."""
        amount, cap = self._cap(job.plan.cap, job.job_id), job.plan.cap
        if job.state.is_terminal and not job.tuning and cap and cap.rates and job.job_id not in self._costs:
            entries = self.store.ledger(job.job_id)
            self._costs[job.job_id] = spent_at_most(cap, entries, datetime.now(UTC)) if entries else amount
        return self._costs.get(job.job_id, amount)

    def _cap(self, cap: Cap | None, what: str) -> float:
        if cap is None or cap.currency != self.limit.currency:
            rule = f"{what} must have one in {self.limit.currency}, because of the budget"
            raise PermanentError(f"trainmaster.maxCost: {rule}. Example: maxCost: 5 {self.limit.currency}")
        return cap.amount


def read_budget(text: str) -> Callable[[Client, Store], Budget]:
    """Return the budget of `NAME:20USD`, without its client and store. Raises PermanentError."""
    if not (found := _BUDGET.fullmatch(text)) or not float(found[2]):
        rule = "must be a label (a-z, 0-9, _ and -), an amount above 0 and a currency"
        raise PermanentError(f"--budget: {rule}, not {text!r}. Example: --budget agents:20USD")
    only = JobFilter(labels=(Label(LABEL, found[1]),))
    return partial(Budget, found[1], Cap(float(found[2]), found[3]), only)


def address_of(job: Job) -> str:
    """Return the job's address below the project, as the client has it."""
    if job.plan.dialect is Dialect.AI_PLATFORM:
        return f"jobs/{job.job_id}"
    kind = detect_kind(parse_document(job.spec_json.encode(), job.job_id))
    return f"locations/{job.plan.region}/{kind.collection}/{public_id(job.job_id)}"
