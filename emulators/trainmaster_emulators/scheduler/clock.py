"""Starts the attempts of jobs that are due, each on a thread of a pool.

The result of an attempt is recorded after the attempt. If the process ends before that, the attempt
is repeated; Cloud Scheduler, too, may run a job more than once. A job has one attempt at a time,
except for those that `run` forces.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from trainmaster_emulators.rest.api_errors import ApiError
from trainmaster_emulators.scheduler.dispatch import Dispatcher
from trainmaster_emulators.scheduler.execution import ScheduledJob, after_attempt
from trainmaster_emulators.scheduler.job_store import JobStore

POLL_S: Final = 0.2
"""Pause between two looks for jobs that are due."""
ATTEMPTS_MAX: Final = 32
"""Attempts at the same time."""

log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


class Clock:
    """The loop that starts attempts; `scheduler.__main__` runs it on a thread of its own.

    An *attempt* is one call of a job's target. `now`: the clock, which tests set.
    """

    def __init__(
        self, store: JobStore, dispatcher: Dispatcher, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._now = now
        self._running: set[str] = set()
        self._pool = ThreadPoolExecutor(ATTEMPTS_MAX, thread_name_prefix="attempt")
        self._stopped = threading.Event()

    def run(self) -> None:
        """Start attempts until `stop` is called."""
        while not self._stopped.wait(POLL_S):
            self.start_due()

    def stop(self) -> None:
        """Do not start another attempt. Attempts that wait for a response do not delay the end."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start_due(self) -> None:
        """Start an attempt of each job that is due, unless one is running."""
        # Copied before the query: its result may still contain a job whose attempt ends during the
        # query.
        running = set(self._running)
        for scheduled in self._store.due(self._now()):
            if scheduled.job.name not in running:
                self._running.add(scheduled.job.name)
                self._pool.submit(self._attempt, scheduled)

    def force(self, scheduled: ScheduledJob) -> None:
        """Start an attempt now, even of a paused job.

        The schedule does not change, and a failure is not retried.
        """
        self._pool.submit(self._forced_attempt, scheduled)

    def _attempt(self, scheduled: ScheduledJob) -> None:
        """Make the attempt of a job that is due, and record its result.

        If a user has changed the job since, the time of the next attempt follows from that change.
        """
        name = scheduled.job.name
        try:
            began_at = self._now()
            at = scheduled.execution_at or scheduled.job.schedule_time or began_at
            status = self._dispatcher.attempt(scheduled.job, at)
            if status:
                log.warning("%s: %s", name, status["message"])

            def record(current: ScheduledJob) -> ScheduledJob:
                if current.version == scheduled.version:
                    return after_attempt(scheduled, began_at, status, self._now())
                return _with_attempt(current, began_at, status)

            self._store.change(name, record)
        except ApiError:
            log.info("%s was deleted during its attempt", name)
        except Exception:
            log.exception("%s", name)
        finally:
            self._running.discard(name)

    def _forced_attempt(self, scheduled: ScheduledJob) -> None:
        """Make an attempt that a user requests, and record its result."""
        began_at = self._now()
        try:
            status = self._dispatcher.attempt(scheduled.job, began_at)
            self._store.change(
                scheduled.job.name, lambda current: _with_attempt(current, began_at, status)
            )
        except ApiError:
            log.info("%s was deleted during its attempt", scheduled.job.name)
        except Exception:
            log.exception("%s", scheduled.job.name)


def _with_attempt(
    current: ScheduledJob, began_at: datetime, status: dict[str, object]
) -> ScheduledJob:
    """Return the job with the attempt's result, and an unchanged schedule."""
    job = current.job.model_copy(update={"last_attempt_time": began_at, "status": status})
    return replace(current, job=job)
