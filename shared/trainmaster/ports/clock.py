"""The current time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """A function that returns the current time, so that tests and the simulator can pass their own."""

    def __call__(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...
