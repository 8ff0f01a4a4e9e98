"""The stored jobs: a table in a file, so that a restarted emulator continues with the same jobs and
times.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from trainmaster_emulators.rest.api_errors import StatusError
from trainmaster_emulators.scheduler.execution import ScheduledJob

_STORED: Final = TypeAdapter(ScheduledJob)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    name TEXT PRIMARY KEY, due_at REAL, content TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS due ON jobs (due_at);
"""
"""`due_at`: seconds since the epoch; NULL: the job is paused. `content`: the job as JSON."""


def job_exists(name: str) -> StatusError:
    """Return the error for a new job of this name."""
    return StatusError("ALREADY_EXISTS", f"Job {name} already exists.")


def job_not_found(name: str) -> StatusError:
    """Return the error for a call about a job that does not exist."""
    return StatusError("NOT_FOUND", f"Job not found: {name}.")


class JobStore:
    """The jobs in a file of SQLite. All methods may be called from several threads. A change is one
    transaction.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        self._connection.close()

    def add(self, scheduled: ScheduledJob) -> None:
        """Store a new job. Raises ApiError (409) if a job of that name exists."""
        with self._lock:
            if self._load(scheduled.job.name) is not None:
                raise job_exists(scheduled.job.name)
            self._write(scheduled)

    def get(self, name: str) -> ScheduledJob:
        """Return the job. Raises ApiError (404) if it does not exist."""
        with self._lock:
            found = self._load(name)
        if found is None:
            raise job_not_found(name)
        return found

    def change(self, name: str, function: Callable[[ScheduledJob], ScheduledJob]) -> ScheduledJob:
        """Replace the job by the function's result, and return it.

        Raises ApiError (404), and the function's errors.
        """
        with self._lock:
            found = self._load(name)
            if found is None:
                raise job_not_found(name)
            changed = function(found)
            self._write(changed)
        return changed

    def delete(self, name: str) -> None:
        """Delete the job. Raises ApiError (404) if it does not exist."""
        with self._lock:
            if self._connection.execute("DELETE FROM jobs WHERE name = ?", (name,)).rowcount == 0:
                raise job_not_found(name)

    def page(self, parent: str, after: str, size: int) -> list[ScheduledJob]:
        """Return the first jobs of a location after that name, in the order of their names."""
        prefix = f"{parent}/jobs/"
        with self._lock:
            rows = self._connection.execute(
                "SELECT content FROM jobs WHERE name > ? AND substr(name, 1, ?) = ? ORDER BY name"
                " LIMIT ?",
                (after or prefix, len(prefix), prefix, size),
            ).fetchall()
        return [_STORED.validate_json(content) for (content,) in rows]

    def due(self, now: datetime) -> list[ScheduledJob]:
        """Return the jobs whose next attempt should have started, the oldest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT content FROM jobs WHERE due_at <= ? ORDER BY due_at", (now.timestamp(),)
            ).fetchall()
        return [_STORED.validate_json(content) for (content,) in rows]

    def _load(self, name: str) -> ScheduledJob | None:
        """Return the job; None if it does not exist. The caller holds the lock."""
        row: Any = self._connection.execute(
            "SELECT content FROM jobs WHERE name = ?", (name,)
        ).fetchone()
        return _STORED.validate_json(row[0]) if row else None

    def _write(self, scheduled: ScheduledJob) -> None:
        """Store the job, new or not. The caller holds the lock."""
        due_at = scheduled.due_at.timestamp() if scheduled.due_at else None
        content = _STORED.dump_json(scheduled, by_alias=True)
        self._connection.execute(
            "INSERT OR REPLACE INTO jobs (name, due_at, content) VALUES (?, ?, ?)",
            (scheduled.job.name, due_at, content.decode()),
        )
