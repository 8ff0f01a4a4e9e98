"""Output and reports of a job's programs that did not arrive, for `trainmaster why`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any, Final, NamedTuple

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
    MISSING_LINES,
    MISSING_MEASUREMENTS,
    MISSING_REPORTS,
    TRIAL,
    ReadPage,
)

PAGES_MAX: Final = 5
"""Pages of the log to read, at most. One entry counts all that is missing in a gap, so few logs
have more pages; the sentences about those begin with "At least".
"""


class _Loss(NamedTuple):
    """Something that may be missing, in words. `{task}` stands for the name of the replica."""

    one: str
    many: str
    where: str
    """Where it is missing."""


_LOSSES: Final = {
    MISSING_LINES: _Loss("line of {task}", "lines of {task}", "in the log"),
    MISSING_MEASUREMENTS: _Loss(
        "measurement of the metric that {task} reported",
        "measurements of the metric that {task} reported",
        "in its trial",
    ),
    MISSING_REPORTS: _Loss(
        "report of the use of {task} and of its progress",
        "reports of the use of {task} and of its progress",
        "in Cloud Monitoring",
    ),
}
"""Label of an entry, whose value is a number → what is missing."""


def losses_in_log(job: Job) -> Sequence[str]:
    """Return a sentence for each kind of loss that the agents have counted, and each replica.

    If the log cannot be read, report that on standard error, and return none.
    """
    if job.started_at is None:
        return ()
    from trainmaster.gcp.retries import OPTIONAL_READ_S
    from trainmaster.wiring.log_reader import log_entries

    try:
        return describe_losses(log_entries(OPTIONAL_READ_S).page, job)
    except (PermanentError, TemporaryError) as error:
        complain(
            "Cannot find out whether lines of the log, measurements or resource metrics are"
            f" missing: {error}"
        )
        return ()


def describe_losses(page: ReadPage, job: Job) -> Sequence[str]:
    """Return a sentence for each kind of loss, and each replica by name.

    `page` reads one page of the log. Raises PermanentError or TemporaryError.
    """
    since = (job.created_at - BEFORE_CREATION).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Agents report a loss by an entry with its number as a label. The severity comes first: few
    # entries have it.
    conditions = ["severity=WARNING", f'{JOB}="{public_id(job.job_id)}"']
    is_counted = " OR ".join(f'labels."{label}":*' for label in _LOSSES)
    conditions.append(f"({is_counted})")
    if trial_number(job.job_id):
        conditions.append(f'{TRIAL}="{trial_number(job.job_id)}"')
    text = " AND ".join([*conditions, f'timestamp>="{since}"'])
    counts: Counter[tuple[str, str]] = Counter()  # by label and replica
    token = ""
    for _ in range(PAGES_MAX):
        entries, token = page(text, token)
        for entry in entries:
            labels: Mapping[str, Any] = entry.get("labels", {})
            task = labels.get("ml.googleapis.com/task_name", "")
            for label in _LOSSES.keys() & labels.keys():
                counts[label, task] += int(labels[label])
        if not token:
            break
    least = "At least " if token else ""
    why = f"`trainmaster logs {job.job_id} --severity WARNING` shows where and why"
    return [
        f"{least}{_describe(_LOSSES[label], count, task)}: {why}."
        for (label, task), count in sorted(counts.items())
    ]


def _describe(loss: _Loss, count: int, task: str) -> str:
    """Return the clause about the loss of one replica."""
    if count == 1:
        return f"1 {loss.one.format(task=task)} is not {loss.where}"
    return f"{count} {loss.many.format(task=task)} are not {loss.where}"


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
