"""Times in addresses of pages."""

from __future__ import annotations

from datetime import datetime

from shared.errors import PermanentError


def parse_time(name: str, text: str) -> datetime:
    """Return the time of a parameter. Raises PermanentError with its form."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise PermanentError(f"{name}: must be a time with its offset, such as 2026-11-21T03:00:00Z")
    return moment
