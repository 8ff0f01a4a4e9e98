"""Times in addresses of pages."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from trainmaster.errors import PermanentError

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)", re.ASCII
)
"""Python accepts other forms and characters.

The text becomes a part of queries, in which `"` ends a text.
"""
_YEARS: Final = range(1970, 2200)
"""Pages add to the time and subtract from it.

Near the years 1 and 9999, Python's datetime would overflow.
"""


def parse_time(name: str, text: str) -> datetime:
    """Return the time of a parameter. Raises PermanentError with its form."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.year not in _YEARS or not _RFC3339.fullmatch(text):
        raise PermanentError(
            f"{name}: must be a time with its offset, such as 2026-11-21T03:00:00Z"
        )
    return moment
