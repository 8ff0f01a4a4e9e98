"""Cloud Logging as `trainmaster logs` reads it."""

from __future__ import annotations

from functools import cache

from trainmaster.gcp.job_log import LogEntries
from trainmaster.settings import settings


@cache
def log_entries() -> LogEntries:
    values = settings()
    return LogEntries(values.project, values.logging_endpoint)
