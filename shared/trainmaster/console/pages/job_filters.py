"""The filters of the job list: in the address, applied by the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlencode

from trainmaster.console.pages.job_order import JobOrder, read_job_order
from trainmaster.console.pages.times import parse_time
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.job_names import display_name
from trainmaster.core.model.owner import owner
from trainmaster.errors import PermanentError
from trainmaster.jobspec.fields.job_id import is_stored_id
from trainmaster.ports import JobPosition

SIZE: Final = 50
"""Rows of a page, unless the address has another number."""
SIZE_MAX: Final = 1_000
_SIZE: Final = re.compile(r"[0-9]{1,4}", re.ASCII)
_START: Final = re.compile(r"[0-9]{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a list, all of which a job must match."""

    states: tuple[JobState, ...] = ()
    """Any of these states; empty: all."""
    user: str = ""
    """Part of the owner's e-mail address, verified or not."""
    label: str = ""
    """`KEY=VALUE`, or `KEY` for any value."""
    text: str = ""
    """Part of the job id or of the display name."""
    after: JobPosition | None = None
    """The page begins after this position."""
    size: int = SIZE
    order: JobOrder = field(default_factory=JobOrder)
    start: int = 0
    """Number of jobs on the pages before, in any order but the newest first."""

    @property
    def needs_scan(self) -> bool:
        """Whether the page needs the newest jobs themselves, because the store has no index for a
        filter, or for the order.
        """
        has_key_only = bool(self.label) and "=" not in self.label
        return bool(self.user or self.text or has_key_only or not self.order.is_newest_first)

    @property
    def whole_label(self) -> Label | None:
        """The label of the filter `KEY=VALUE`; None: there is no such filter."""
        key, separator, value = self.label.partition("=")
        return Label(key, value) if key and separator else None

    @property
    def is_active(self) -> bool:
        return bool(self.states or self.user or self.label or self.text)

    @property
    def is_first_page(self) -> bool:
        return self.after is None and not self.start

    def sort_query(self, column: str) -> str:
        """Return the address of the first page in the order that a heading selects."""
        return self.query(order=self.order.next(column), after=None, start=0)

    def query(self, **changes: object) -> str:
        """Return the address of the list with these filters, some of them changed."""
        filters = replace(self, **changes)  # type: ignore[arg-type]
        pairs = [("state", state.value) for state in filters.states]
        pairs += [("user", filters.user), ("label", filters.label), ("q", filters.text)]
        if not filters.order.is_newest_first:
            pairs += [("sort", filters.order.column), ("order", filters.order.order)]
            pairs += [("start", str(filters.start))] if filters.start else []
        if filters.after:
            pairs.append(("after", encode_position(filters.after)))
        if filters.size != SIZE:
            pairs.append(("size", str(filters.size)))
        query = urlencode([(name, value) for name, value in pairs if value])
        return f"/jobs?{query}" if query else "/jobs"

    def toggle_query(self, state: JobState) -> str:
        """Return the address of the first page with this state added to the filter, or removed from
        it.
        """
        states = tuple(other for other in self.states if other is not state)
        return self.query(
            states=states if len(states) < len(self.states) else (*states, state),
            after=None,
            start=0,
        )


def read_filters(args: Mapping[str, list[str]]) -> Filters:
    """Return the filters of an address.

    Raises PermanentError for a wrong state, order, size or position.
    """

    def last(name: str) -> str:
        return (args.get(name) or [""])[-1].strip()

    try:
        states = tuple(dict.fromkeys(JobState(state) for state in args.get("state", []) if state))
    except ValueError:
        raise PermanentError(f"state: must be one of {', '.join(JobState)}") from None
    size = last("size")
    if size and not (_SIZE.fullmatch(size) and 1 <= int(size) <= SIZE_MAX):
        raise PermanentError(f"size: must be a whole number from 1 to {SIZE_MAX}")
    after = decode_position(last("after")) if last("after") else None
    start = last("start")
    if start and not _START.fullmatch(start):
        raise PermanentError("start: must be a whole number")
    return Filters(
        states=states,
        user=last("user"),
        label=last("label"),
        text=last("q"),
        after=after,
        size=int(size or SIZE),
        order=read_job_order(last("sort"), last("order")),
        start=int(start or 0),
    )


def encode_position(position: JobPosition) -> str:
    """Return the value of the parameter `after`: `TIME/JOB`."""
    return f"{position.created_at.isoformat()}/{position.job_id}"


def decode_position(text: str) -> JobPosition:
    """Parse the parameter `after`. Raises PermanentError with its form."""
    time, _, job_id = text.partition("/")
    if not is_stored_id(job_id):
        raise PermanentError("after: must be TIME/JOB, such as 2026-11-21T03:00:00+00:00/digits_1")
    return JobPosition(parse_time("after", time), job_id)


def matches(job: Job, filters: Filters) -> bool:
    """Return whether the job matches all filters. An empty one matches every job."""
    if filters.states and job.state not in filters.states:
        return False
    if filters.user.lower() not in owner(job).user.lower():
        return False
    text = filters.text.lower()
    if text not in job.job_id.lower() and text not in display_name(job).lower():
        return False
    return _has_label(job, filters.label)


def _has_label(job: Job, label: str) -> bool:
    """Return whether the job has the label `KEY=VALUE`, or any label `KEY`; an empty one: True."""
    key, separator, value = label.partition("=")
    if not key:
        return True
    labels = {label.key: label.value for label in job.labels}
    return key in labels and (not separator or labels[key] == value)
