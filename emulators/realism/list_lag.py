"""Lists that do not show a new resource at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from emulators.realism.spans import Span


@dataclass(frozen=True, slots=True)
class ListLag:
    """Each resource has one delay, so that it never disappears from a list again."""

    span: Span

    def hides(self, number: int, created_at: datetime, now: datetime) -> bool:
        """Return whether lists do not contain the resource yet. `number` is its numeric id."""
        delay = timedelta(seconds=self.span.draw(Random(number)))  # noqa: S311 - a duration, not a secret
        return now < created_at + delay
