"""Job ids that contain a time, for a message that is published repeatedly:
`nightly_{time:%Y%m%d_%H%M}`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

TIME: Final = re.compile(r"\{time(?::([^{}]*))?\}")
DEFAULT: Final = "%Y%m%d_%H%M%S"


def is_template(text: str) -> bool:
    """Whether the job id contains a time."""
    return TIME.search(text) is not None


def at_time(text: str, at: datetime) -> str:
    """Return the job id with `{time:FORMAT}` replaced by the time `at` in UTC. The format is that
    of strftime.
    """
    return TIME.sub(lambda match: at.astimezone(UTC).strftime(match[1] or DEFAULT), text)
