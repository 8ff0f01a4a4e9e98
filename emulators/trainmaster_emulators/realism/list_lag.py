"""The delay after which lists show a new resource."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from trainmaster_emulators.realism.spans import Span


@dataclass(frozen=True, slots=True)
class ListLag:
    """Each resource has one delay. A resource that a list has shown therefore never disappears from later lists."""

    span: Span

    def hides(self, number: int, created_at: datetime, now: datetime) -> bool:
        """Return whether lists do not yet contain the resource with this numeric id."""
        delay = timedelta(seconds=self.span.draw(Random(number)))  # noqa: S311 - a duration, not a secret
        return now < created_at + delay
