"""How many lines of a job's log are missing, for `trainmaster why`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, Final

from trainmaster.cli.output import complain
from trainmaster.core.events import ReplicaExited
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, public_id
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import trial_number
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.presentation.log_reader import (
    BEFORE_CREATION,
    JOB,
    MISSING_LABEL,
    TRIAL,
    ReadPage,
)

PAGES_MAX: Final = 5
"""Pages of the log to read, at most. An entry counts all lines of a gap, so more pages are rare;
then the sentences say "At least".
"""


def missing_lines(job: Job) -> Sequence[str]:
    """Return a sentence for each replica of which lines are missing in the log.

    If the log cannot be read, report that on standard error, and return none.
    """
    if job.started_at is None:
        return ()
    from trainmaster.gcp.retries import OPTIONAL_READ_S
    from trainmaster.wiring.log_reader import log_entries

    try:
        return describe_missing(log_entries(OPTIONAL_READ_S).page, job)
    except (PermanentError, TemporaryError) as error:
        complain(f"Cannot find out whether lines of the log are missing: {error}")
        return ()


def describe_missing(page: ReadPage, job: Job) -> Sequence[str]:
    """Return a sentence for each replica of which lines are missing, by name.

    `page` reads one page of the log. Raises PermanentError or TemporaryError.
    """
    since = (job.created_at - BEFORE_CREATION).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Agents report a gap by an entry with the number of its lines as a label. The severity comes
    # first: few entries have it.
    conditions = ["severity=WARNING", f'{JOB}="{public_id(job.job_id)}"']
    conditions.append(f'labels."{MISSING_LABEL}":*')
    if trial_number(job.job_id):
        conditions.append(f'{TRIAL}="{trial_number(job.job_id)}"')
    text = " AND ".join([*conditions, f'timestamp>="{since}"'])
    counts: Counter[str] = Counter()
    token = ""
    for _ in range(PAGES_MAX):
        entries, token = page(text, token)
        for entry in entries:
            labels: Mapping[str, Any] = entry.get("labels", {})
            counts[labels.get("ml.googleapis.com/task_name", "")] += int(labels[MISSING_LABEL])
        if not token:
            break
    least = "At least " if token else ""
    where = f"`trainmaster logs {job.job_id} --severity WARNING` shows where and why"
    return [
        f"{least}{_lines(count)} of {task} {'is' if count == 1 else 'are'} not in the log: {where}."
        for task, count in sorted(counts.items())
    ]


def unlogged_lines(entries: Iterable[LedgerEntry]) -> Sequence[str]:
    """Return a sentence for each replica whose log was refused when its last exit was published: no
    entry of the log may say so.
    """
    last: dict[ReplicaId, ReplicaExited] = {}
    for entry in entries:
        if isinstance(entry.event, ReplicaExited):
            last[entry.event.subject.replica_id] = entry.event
    return [_unlogged(event) for _, event in sorted(last.items()) if event.unlogged_lines]


def _unlogged(event: ReplicaExited) -> str:
    """Return the sentence about the exit, whose agent has counted the lines."""
    return (
        f"When {event.subject.replica_id.words} exited, Cloud Logging had not accepted the last"
        f" {_lines(event.unlogged_lines)} of its log: {event.log_problem}. They may have arrived"
        " since."
    )


def _lines(count: int) -> str:
    """Return the number of lines in words."""
    return "1 line" if count == 1 else f"{count} lines"
