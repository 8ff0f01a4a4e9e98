"""Bounds of a filter: conditions that every accepted job meets, and that the store has indexes for.

A list reads the jobs within the bounds of its filter, and applies the filter to each of them.
Bounds that are too wide cost reads; bounds that are too narrow would lose jobs. A comparison of
which no index knows anything therefore has the bounds `Bounds()`, which contain every job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from trainmaster.core.model.job import JobState, Label
from trainmaster.ports import JobFilter, JobPosition

YEAR_10000_S: Final = 253_402_300_800
"""First second that a datetime cannot have."""


def _any_state(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Bounds:
    """A condition that is necessary for a filter."""

    has_state: Callable[[str], bool] = _any_state
    """Whether jobs in a state may match, by the word that the API shows for the state."""
    labels: frozenset[Label] = frozenset()
    """Labels that a matching job has, all of them."""
    name: str = ""
    """The id or the display name, in lower case; empty: any."""
    since_s: float = -math.inf
    """Earliest creation, in seconds since 1970."""
    until_s: float = math.inf
    """Latest creation."""

    def both(self, other: Bounds) -> Bounds:
        """Return the bounds of jobs that are within these and within the other ones."""
        return Bounds(
            lambda word: self.has_state(word) and other.has_state(word),
            self.labels | other.labels,
            self.name or other.name,
            max(self.since_s, other.since_s),
            min(self.until_s, other.until_s),
        )

    def either(self, other: Bounds) -> Bounds:
        """Return the bounds of jobs that are within these or within the other ones."""
        return Bounds(
            lambda word: self.has_state(word) or other.has_state(word),
            self.labels & other.labels,
            self.name if self.name == other.name else "",
            min(self.since_s, other.since_s),
            max(self.until_s, other.until_s),
        )

    def condition(self, words: Mapping[JobState, str]) -> JobFilter | None:
        """Return the one condition by which the store finds the jobs. None: no job can match.

        The store has an index for each condition alone. If it got two, it would read and skip jobs
        itself, and the list could not stop it after a number of jobs. For the same reason the store
        returns deleted jobs and trials, too (`with_unlisted`): the list skips them. `words`: the
        states as the API shows them.
        """
        states = tuple(state for state, word in words.items() if self.has_state(word))
        if not states or self.since_s > self.until_s:
            return None
        wanted = JobFilter(
            () if len(states) == len(words) else states,
            labels=tuple(sorted(self.labels, key=lambda label: (label.key, label.value))),
            name=self.name,
        )
        return replace(wanted.narrowest(), with_unlisted=True)

    def start(self, position: JobPosition | None) -> JobPosition | None:
        """Return where a list that continues at this position begins: not before `until_s`."""
        if self.until_s >= YEAR_10000_S:
            return position
        # No job within the bounds was created as late as this, so that any id will do.
        created_at = datetime.fromtimestamp(max(self.until_s, 0), UTC)
        is_later = position is not None and position.created_at <= created_at
        return position if is_later else JobPosition(created_at, "a")


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter, or a part of it."""

    holds: Callable[[Mapping[str, object]], bool]
    """Whether a job, as the API shows it, meets the condition."""
    bounds: Bounds = field(default_factory=Bounds)
    """Bounds of the jobs for which the condition holds."""
    bounds_of_others: Bounds = field(default_factory=Bounds)
    """Bounds of the jobs for which the condition does not hold."""
    nesting: int = 0
    """Depth of parentheses."""
