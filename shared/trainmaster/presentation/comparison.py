"""Jobs side by side: what became of them, and what differs between their specs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.core.reporting.explain import shown_entries
from trainmaster.core.reporting.submission_words import describe_submission
from trainmaster.cost.report import CostReport
from trainmaster.errors import PermanentError
from trainmaster.presentation.cost_view import cost_sentence
from trainmaster.presentation.durations import duration_words
from trainmaster.presentation.job_view import timestamp
from trainmaster.presentation.machine_time import lost_work_words
from trainmaster.presentation.progress import Progress

JOBS_MAX: Final = 6
"""The number of line styles of a chart."""
Rows = dict[str, list[str | None]]
"""Name → its value for each job. None: that job has no such value."""
_HASH: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
"""A SHA-256, whose first digits are enough to see that contents differ."""
_OPTION: Final = re.compile(r"--?[A-Za-z]")
"""Beginning of an argument that is an option, and not the value of one."""


def chosen_ids(job_ids: Sequence[str]) -> tuple[str, ...]:
    """Return each id once. Raises PermanentError if there are too many or none."""
    chosen = tuple(dict.fromkeys(filter(None, job_ids)))
    if not 1 <= len(chosen) <= JOBS_MAX:
        raise PermanentError(f"1 to {JOBS_MAX} jobs can be compared; {len(chosen)} are named")
    return chosen


def spec_differences(jobs: Sequence[Job]) -> Rows:
    """Return the fields whose values differ, by their paths. The ids of the jobs are left out."""
    rows = side_by_side([dict(_fields(_spec(job), path="")) for job in jobs])
    return {path: values for path, values in rows.items() if len(set(values)) > 1}


def shown_value(value: str | None) -> str:
    """Return a value for a table, with the first digits of each SHA-256 in it."""
    return _HASH.sub(r"\1…", value or "-")


def side_by_side(columns: Sequence[Mapping[str, str]]) -> Rows:
    """Return the rows of columns, each of which has the values of one job by their names."""
    rows: Rows = {}
    for index, column in enumerate(columns):
        for name, value in column.items():
            row = rows.setdefault(name, [None] * len(columns))
            row[index] = value
    return rows


def facts(
    job: Job,
    entries: Sequence[LedgerEntry],
    report: CostReport | None,
    progress: Progress | None,
    now: datetime,
) -> Iterator[tuple[str, str]]:
    """Yield what became of a job until now: name and value. `entries`: its ledger."""
    end = job.ended_at or now
    yield "state", job.state.value
    yield "submitted", describe_submission(job)
    yield "created", timestamp(job.created_at)
    yield "waited", duration_words((job.started_at or end) - job.created_at)
    if job.started_at:
        yield "ran", duration_words(end - job.started_at)
    yield "zone", job.zone
    yield "attempts", str(job.attempt)
    shown = shown_entries(entries, replica_id=None, everything=False)
    yield "decisions", str(sum(1 + omitted for _, omitted in shown))
    best_trial = next(iter(job.tuning.best_first()), None) if job.tuning else None
    if job.tuning and best_trial and best_trial.measurement:
        value = best_trial.measurement.value
        yield f"best {job.tuning.metric_tag}", f"{value:g} (trial {best_trial.number})"
    if report:
        yield "machine-hours paid", f"{report.goodput.paid_s / 3600:.2f}"
        yield "goodput", report.goodput.words
        yield "lost work", lost_work_words(report) if report.losses else "none"
        yield "cost", cost_sentence(report.cost)
    if progress:
        if progress.share is not None:
            yield "work done", f"{int(progress.share * 100)} %"
        if progress.step is not None:
            of_steps = f" of {progress.steps}" if progress.steps is not None else ""
            yield "last step", f"{progress.step}{of_steps}"
        for name, value in progress.metrics.items():
            yield f"last {name}", f"{value:.4g}"
        for name in progress.not_finite:
            yield f"last {name}", "NaN or infinite"


def _spec(job: Job) -> dict[str, object]:
    """Return the job as submitted, without its id; of a trial, with its hyperparameters."""
    spec: dict[str, object] = {
        name: value for name, value in json.loads(job.spec_json).items() if name != "jobId"
    }
    if job.trial_of is not None:
        spec["hyperparameters"] = {
            parameter.name: parameter.value for parameter in job.trial_of.assigned
        }
    return spec


def _fields(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each scalar."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from _fields(inner, f"{path}.{name}" if path else name)
        case list() if path.endswith(("args", "command")):
            yield from _arguments(list(map(str, value)), path)
        case list():
            for index, inner in enumerate(value):
                name = inner.get("name", index) if isinstance(inner, dict) else index
                yield from _fields(inner, f"{path}[{name}]")
        case _:
            yield path, value if isinstance(value, str) else json.dumps(value)


def _arguments(arguments: Sequence[str], path: str) -> Iterator[tuple[str, str]]:
    """Yield each option with its values.

    With the index of an argument as name, an added option would change all that follow.
    """
    options: dict[str, list[str]] = {}
    name = path
    for argument in arguments:
        if not _OPTION.match(argument):
            options.setdefault(name, []).append(argument)
            continue
        option, equals, value = argument.partition("=")
        name = f"{path} {option}"
        values = options.setdefault(name, [])
        if equals:
            values.append(value)
    for option, values in options.items():
        yield option, " ".join(values) or "set"
