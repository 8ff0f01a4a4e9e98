"""What the pages read from, and what the console may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from shared.console.ledger_cache import LedgerCache
from shared.core.rules.admission_queue import Limits
from shared.errors import PermanentError
from shared.ports import AddressBook, Store
from shared.presentation.price import Price

PAGE_TIME_STEP_S: Final = 15

ReadLog = Callable[[str], Sequence[Mapping[str, Any]]]
"""Filter → the newest entries of Cloud Logging that match it, the newest first."""


class NotFoundError(PermanentError):
    """The address names a job or replica that does not exist."""


@dataclass(frozen=True)
class Console:
    """The installation that the pages show."""

    project: str
    store: Store
    ledgers: LedgerCache
    read_log: ReadLog
    address_book: AddressBook
    clock: Callable[[], datetime]
    limits: Limits
    ml_unit_price: Price | None
    cancel: Callable[[str, str], None] | None
    """(job id, user) → cancels the job; None: the console is read-only."""
    version: str = ""

    @property
    def now(self) -> datetime:
        """The time that pages show: rounded down, so that most polls of an unchanged job find an unchanged page."""
        at = self.clock()
        return at - timedelta(seconds=at.second % PAGE_TIME_STEP_S, microseconds=at.microsecond)
