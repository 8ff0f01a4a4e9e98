"""Show texts of programs, on pages and terminals, without characters that hide or reverse text."""

from __future__ import annotations

import re
from typing import Final

_STYLE: Final = r"(?:0?[0-4]|2[1-4]|3[0-79]|9[0-7]|38;5;[0-9]{1,3}|38;2(?:;[0-9]{1,3}){3})"
"""Weights, underline and text colours.

Conceal (8), reverse and backgrounds are missing: they can hide text.
"""
_COLOUR: Final = rf"\x1b\[(?:{_STYLE}(?:;{_STYLE})*)?m"
_HARMFUL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
"""Characters that move the cursor, set the terminal's title, or reverse text.

They are the control characters except tabs and newlines.
"""
_ANY: Final = re.compile(rf"\x1b\[[0-9;]*m|{_HARMFUL}")
_ANY_BUT_COLOURS: Final = re.compile(rf"({_COLOUR})|{_HARMFUL}")


def printable(text: str) -> str:
    """Return the text without control characters, and without the colours of terminals."""
    return _ANY.sub("", text)


def make_visible(text: str) -> str:
    """Return the text so that a terminal can show it safely.

    Text colours stay; every other control character becomes a replacement character.
    """
    return _ANY_BUT_COLOURS.sub(lambda match: match[1] or "\N{REPLACEMENT CHARACTER}", text)


def finalize(value: object) -> object:
    """Return what a template prints for a value.

    Markup is the template's own, and stays as it is.
    """
    return printable(value) if type(value) is str else value
