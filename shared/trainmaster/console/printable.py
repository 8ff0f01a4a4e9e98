"""Texts of programs without the characters that hide or reverse text on a page."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Colours of terminals, which a page does not need, and control characters, which can hide or reverse text."""


def printable(text: str) -> str:
    return _CONTROL.sub("", text)


def finalize(value: object) -> object:
    """Return what a template prints for a value. Markup is the template's own, and stays as it is."""
    return printable(value) if type(value) is str else value
