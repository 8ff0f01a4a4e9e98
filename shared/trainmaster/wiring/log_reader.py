"""Cloud Logging as `trainmaster logs` reads it."""

from __future__ import annotations

from functools import cache

from trainmaster.gcp.log_entries import PAGE_TIMEOUT_S, LogEntries
from trainmaster.settings import settings


@cache
def log_entries(timeout_s: float = PAGE_TIMEOUT_S) -> LogEntries:
    """Return the reader of the installation's log entries. `timeout_s`: deadline of one page."""
    values = settings()
    return LogEntries(values.project, values.logging_endpoint, timeout_s=timeout_s)
