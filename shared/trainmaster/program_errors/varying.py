"""What differs between the messages of two lives of a program that fails in the same way: chance
and the clock decide it, and not the fault.

All patterns search in linear time, because programs choose the text.
"""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = re.compile(
    r"0x[0-9a-f]+"  # an address
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # a UUID
    r"|\b(?=[a-f]{0,40}\d)[0-9a-f]{8,}\b"  # a digest or a random id, which has a digit
    r"|\btmp(?:\.\w{6,}|[a-z0-9_]{8}\b)"  # a temporary file of mktemp or of Python
    r"|\d{4}[-/]\d\d[-/]\d\d|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"  # a date, a time of day
    r"|^[IWEF]\d{4}\b"  # the level, month and day of glog
    r"|\bpid[ =:]*\d+",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER: Final = re.compile(r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|\b(?:nan|inf)\b)", re.IGNORECASE)
_NUMBERS_IN_A_ROW: Final = re.compile(r"#(?:[,;] ?#)+")
"""A list or tensor of numbers, after each of them has become `#`."""
_SET: Final = re.compile(r"\{[^{}]*\}")
"""A set as Python prints it. The order of texts in it differs from process to process."""


def without_random_names(text: str) -> str:
    """Return the text with `#` for each address, date, time of day, process id, UUID, digest and
    name of a temporary file, and with its sets in alphabetic order.
    """
    return _SET.sub(_sorted_set, _NAMES.sub("#", text))


def without_numbers(text: str) -> str:
    """Return the text as `without_random_names` does, with `#` also for each number, and for each
    list of numbers.

    A sign belongs to a number: that of a random loss differs, too.
    """
    numbers = _NUMBER.sub("#", _NAMES.sub("#", text))
    return _SET.sub(_sorted_set, _NUMBERS_IN_A_ROW.sub("#", numbers))


def _sorted_set(found: re.Match[str]) -> str:
    items = sorted(item.strip() for item in found[0][1:-1].split(","))
    return f"{{{', '.join(items)}}}"
