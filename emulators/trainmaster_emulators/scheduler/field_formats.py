"""Types of the fields of Cloud Scheduler's job resource whose text or number has a form of its own.

The emulator's models use them, so that a wrong value gets an error that names its field.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BeforeValidator, Field

UNSPECIFIED: Final = "HTTP_METHOD_UNSPECIFIED"
"""The method of a request that names none: POST."""
CRON_FIELDS: Final = 5
"""Fields of a crontab expression: minute, hour, day, month, weekday."""
METHODS: Final = (
    UNSPECIFIED,
    "POST",
    "GET",
    "HEAD",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
)
"""In the order of the enum's numbers, which the client library sends."""
_DURATION: Final = re.compile(r"(\d+(?:\.\d{1,9})?)s")


def _base64(text: str) -> str:
    """Return the text. Raises ValueError, as all of these checks do; pydantic reports it."""
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("must be Base64") from None
    return text


def _method(value: object) -> object:
    """Return the name of a method that is given by its number; other values as they are."""
    return METHODS[value] if isinstance(value, int) and 0 <= value < len(METHODS) else value


def _time_zone(name: str) -> str:
    """Return the name, if it is one of the tz database."""
    try:
        ZoneInfo("UTC" if name.lower() == "utc" else name)
    except (OSError, ValueError, KeyError):
        raise ValueError(f"{name!r} is not a time zone of the tz database") from None
    return name


def _schedule(text: str) -> str:
    """Return the expression, if it has five fields and a time at which it is due."""
    problem = (
        f"Schedule or time zone is invalid: {text!r} must be a crontab expression of {CRON_FIELDS}"
        " fields, such as '0 3 * * *'"
    )
    if len(text.split()) != CRON_FIELDS:
        raise ValueError(problem)
    try:
        next(CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration):
        raise ValueError(problem) from None
    return text


def _duration(text: str) -> str:
    """Return the text, if it is a number of seconds and `s`."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} must be a duration in seconds, such as '5s'")
    return text


Base64 = Annotated[str, AfterValidator(_base64)]
Duration = Annotated[str, AfterValidator(_duration)]
Method = Annotated[str, BeforeValidator(_method), Field(pattern=f"^({'|'.join(METHODS)})$")]
Schedule = Annotated[str, AfterValidator(_schedule)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]


def seconds(duration: str) -> float:
    """Return the seconds of a checked duration, such as `5s`."""
    return float(duration.removesuffix("s"))
