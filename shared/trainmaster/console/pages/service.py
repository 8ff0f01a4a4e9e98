"""The ports that the pages read, and the actions that the console allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from trainmaster.console.actions import Actions, Denied
from trainmaster.console.caches import LedgerCache
from trainmaster.console.pages.log_window import ReadLog
from trainmaster.core.rules.admission_queue import Limits
from trainmaster.cost.report import CostSources
from trainmaster.errors import PermanentError
from trainmaster.ports import AddressBook, Store
from trainmaster.ports.metrics import MetricReader
from trainmaster.presentation.price import Price

PAGE_TIME_STEP_S: Final = 15


class NotFoundError(PermanentError):
    """The address names a job or replica that does not exist."""


@dataclass(frozen=True)
class Console:
    """The installation that the pages show."""

    project: str
    store: Store
    ledgers: LedgerCache
    read_log: ReadLog
    metrics: MetricReader
    address_book: AddressBook
    clock: Callable[[], datetime]
    limits: Limits
    ml_unit_price: Price | None
    actions: Actions
    version: str = ""
    cost_sources: CostSources = field(default_factory=CostSources)

    @property
    def denied(self) -> Denied:
        """Actions that the user may not perform, with the missing permissions."""
        return self.actions.denied()

    @property
    def now(self) -> datetime:
        """The time that pages show: rounded down, so that most polls of an unchanged job find an unchanged page."""
        at = self.clock()
        return at - timedelta(seconds=at.second % PAGE_TIME_STEP_S, microseconds=at.microsecond)
