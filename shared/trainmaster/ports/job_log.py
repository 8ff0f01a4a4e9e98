"""Writing the service's own lines into a job's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainmaster.core.reporting.job_log import ServiceLine


class JobLog(Protocol):
    """The job's log, where its user reads it."""

    def write(self, lines: Sequence[ServiceLine]) -> None:
        """Write the lines. Idempotent: two lines with the same key and time are the same line.

        Raises TemporaryError for every failure, because a job never depends on its log.
        """
        ...
