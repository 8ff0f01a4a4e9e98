"""Job ids that hold a time, for a message that comes again and again: `nightly_{time:%Y%m%d_%H%M}`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

TIME: Final = re.compile(r"\{time(?::([^{}]*))?\}")
DEFAULT: Final = "%Y%m%d_%H%M%S"


def is_template(text: str) -> bool:
    return TIME.search(text) is not None


def at_time(text: str, at: datetime) -> str:
    """With that moment, in UTC, where `{time:FORMAT}` stands; the format is strftime's."""
    return TIME.sub(lambda found: at.astimezone(UTC).strftime(found[1] or DEFAULT), text)
