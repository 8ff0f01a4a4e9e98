"""Cloud Logging as `trainmaster logs` reads it."""

from __future__ import annotations

from functools import cache

from shared.gcp.log_entries import LogEntries
from shared.settings import settings


@cache
def log_entries() -> LogEntries:
    values = settings()
    return LogEntries(values.project, values.logging_endpoint)
