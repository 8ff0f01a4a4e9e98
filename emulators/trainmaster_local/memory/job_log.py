"""The JobLog port in memory, for tests and a stack without emulators."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.reporting.job_log import ServiceLine


class MemoryJobLog:
    """Adapter of `trainmaster.ports.JobLog`: the lines that the platform writes about jobs."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], ServiceLine] = {}
        """The lines, by job id and key of the line."""

    def write(self, lines: Sequence[ServiceLine]) -> None:
        """Write the lines; one that was written already, by its job and key, is left as it is."""
        for line in lines:
            self._lines.setdefault((line.job_id, line.key), line)

    def lines(self, job_id: str) -> list[ServiceLine]:
        """Return the lines of the job, oldest first."""
        return sorted(
            (line for line in self._lines.values() if line.job_id == job_id),
            key=lambda line: line.at,
        )
