"""Lengths of time in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400
WITH_TENTHS_S: Final = 10
"""Below this many seconds, tenths are shown."""


def duration_words(length: timedelta) -> str:
    """Return `4.2 s`, `3 min 20 s`, `2 h 14 min` or `3 d 2 h`."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s" if seconds < WITH_TENTHS_S else f"{seconds:.0f} s"
    minutes = int(seconds // MINUTE_S)
    if seconds < HOUR_S:
        return f"{minutes} min {int(seconds % MINUTE_S)} s"
    hours = int(seconds // HOUR_S)
    if seconds < DAY_S:
        return f"{hours} h {minutes % 60} min"
    days = int(seconds // DAY_S)
    return f"{days} d {hours % 24} h"
