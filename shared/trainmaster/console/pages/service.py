"""The ports that the pages read, and the actions that the console allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from threading import Lock
from typing import Final

from cachetools import TTLCache, cached

from trainmaster.console.actions import Actions, Denied
from trainmaster.console.caches import LedgerCache
from trainmaster.console.job_counter import JobCounter
from trainmaster.console.pages.log_window import ReadLog, Tail, read_tail
from trainmaster.core.model.money import Money
from trainmaster.core.rules.admission_queue import Limits
from trainmaster.cost.report import CostSources
from trainmaster.errors import PermanentError
from trainmaster.ports import AddressBook, Store
from trainmaster.ports.metrics import MetricReader

PAGE_TIME_STEP_S: Final = 15
"""The time that pages show advances in steps of this length."""
TAILS_MAX: Final = 256
"""Ends of logs that are kept."""


class NotFoundError(PermanentError):
    """The address names a job or replica that does not exist."""


@dataclass(frozen=True)
class Console:
    """The installation that the pages show."""

    project: str
    store: Store
    ledgers: LedgerCache
    counter: JobCounter
    read_log: ReadLog
    metrics: MetricReader
    address_book: AddressBook
    clock: Callable[[], datetime]
    limits: Limits
    """Resource → how much of it all jobs together may use."""
    ml_unit_price: Money | None
    """Price of an ML unit, in which AI Platform Training counted usage; None: no cost is shown."""
    actions: Actions
    version: str = ""
    log_project: str = ""
    """Project whose logs Google's console shows; empty: messages of jobs do not link to logs."""
    cost_sources: CostSources = field(default_factory=CostSources)
    bucket_browser: str = ""
    """Address that `BUCKET/FOLDER` is appended to; empty: nobody shows these buckets in a browser.
    """

    @property
    def denied(self) -> Denied:
        """Actions that the user may not perform, with the missing permissions."""
        return self.actions.denied()

    @cached_property
    def read_tail(self) -> Callable[[str], Tail]:
        """Query → the end of a log, read at most once in `PAGE_TIME_STEP_S`: several tabs show the
        same.
        """
        return cached(TTLCache(TAILS_MAX, PAGE_TIME_STEP_S), lock=Lock())(
            partial(read_tail, self.read_log)
        )

    @property
    def now(self) -> datetime:
        """The time that pages show: rounded down, so that most polls of an unchanged job find an
        unchanged page.
        """
        at = self.clock()
        return at - timedelta(seconds=at.second % PAGE_TIME_STEP_S, microseconds=at.microsecond)
