"""Publish transitions of jobs to subscribers, at least once (docs/notifications.md).

A notification is an effect of its own: its ledger entry stays open until the message is published,
independently of the requests to provision and to tune. An error delays neither the event nor the
job. The sweep, which looks at all jobs every minute, publishes what is left.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import AcceptJob
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.errors import TemporaryError
from trainmaster.messaging import topics
from trainmaster.messaging.job_state import (
    encode_job_state,
    job_state_attributes,
    job_state_message,
)
from trainmaster.ports import Bus, Clock, Ledgers, States, Store

OPEN_MIN: Final = timedelta(seconds=60)
"""Age at which the sweep publishes a notification.

A younger one is probably being published by its own event.
"""
OPEN_MAX: Final = timedelta(days=1)
"""Age from which a notification is dropped.

It was left open while the installation published none, or could not.
"""
FAILURES_MAX: Final = 3
"""Failures after which a sweep leaves the rest to the next one: each may take as long as the
retries of a call.
"""
SWEEP_MAX: Final = 200
"""Notifications that one sweep publishes.

Each takes one read, one message and one write, about 50 ms.
"""

_log = logging.getLogger(__name__)


def notify(entry: LedgerEntry, job: Job | None, bus: Bus, store: Store, clock: Clock) -> bool:
    """Publish the entry's notification and confirm it.

    Return whether both succeeded. Safe to repeat.

    `job` is the job before or after the transition; None: it is loaded, except at the acceptance,
    which contains it.
    """
    try:
        if known := job or _job_of(entry, store):
            message = job_state_message(entry, known)
            bus.publish(topics.JOB_STATE, encode_job_state(message), job_state_attributes(message))
        store.confirm_notification(entry.job_id, entry.key, clock())
    except TemporaryError as error:
        _log.warning(
            "a notification is left to the sweep: %s",
            error,
            extra={"job_id": entry.job_id, "event": entry.key},
        )
        return False
    return True


def publish_open(bus: Bus, store: Store, clock: Clock) -> None:
    """Publish the notifications that their events did not publish, the oldest first."""
    now = clock()
    try:
        entries = store.open_notifications(SWEEP_MAX)
    except TemporaryError as error:
        _log.warning("the notifications are left to the next sweep: %s", error)
        return
    failures = 0
    for entry in sorted(entries, key=lambda entry: entry.at):
        if now - entry.at > OPEN_MAX:
            _drop(entry, store, now)
        elif now - entry.at >= OPEN_MIN:
            failures += not notify(entry, job=None, bus=bus, store=store, clock=clock)
        if failures >= FAILURES_MAX:
            return


def _drop(entry: LedgerEntry, store: Ledgers, now: datetime) -> None:
    _log.warning(
        "a notification is too old: %s",
        entry.at,
        extra={"job_id": entry.job_id, "event": entry.key},
    )
    try:
        store.confirm_notification(entry.job_id, entry.key, now)
    except TemporaryError as error:
        _log.warning("it is left to the next sweep: %s", error)


def _job_of(entry: LedgerEntry, store: States) -> Job | None:
    """Return the entry's job.

    None: it was removed from the database by hand, so there is nothing to report.
    """
    action = entry.decision.action
    if isinstance(action, AcceptJob):
        return action.job
    loaded = store.load(entry.job_id)
    return loaded.state.job if loaded else None
