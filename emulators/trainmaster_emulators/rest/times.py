"""RFC 3339 times as nanoseconds since the epoch. Python's own types have no nanoseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from trainmaster_emulators.rest.api_errors import invalid

SECOND: Final = 1_000_000_000
"""Nanoseconds of a second."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):?(\d\d))"
)
"""The groups: day, time of day, fraction of a second; sign, hours and minutes of the offset."""


def nanoseconds(text: str) -> int:
    """Parse a time. Raises ApiError (400)."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise invalid(f"{text!r} is not an RFC 3339 time.")
    day, clock, fraction, sign, hours, minutes = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}+00:00")
    except ValueError:
        raise invalid(f"{text!r} is not a valid time.") from None
    if sign:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        at += offset if sign == "-" else -offset
    seconds = (at - _EPOCH) // timedelta(seconds=1)
    return seconds * SECOND + int((fraction or "").ljust(9, "0"))


def rfc3339(at_ns: int) -> str:
    """Format a time with 0, 3, 6 or 9 digits, as protobuf does in JSON."""
    seconds, fraction = divmod(at_ns, SECOND)
    digits = f"{fraction:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{text}.{digits}Z" if digits else f"{text}Z"
