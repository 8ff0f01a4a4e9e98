"""Errors that are printed without a traceback: a syntax error in the main file, a missing module,
and why a runtime aborts itself.
"""

from __future__ import annotations

import re
from typing import Any

from trainmaster.agent.program.traceback_reader import (
    FRAME,
    MESSAGE_CHARS,
    TRAILING_LINES_MAX,
    format_frame,
)

BARE_LINES = 5
"""How many lines at the end of the output may contain an error of Python without a traceback."""

_SYNTAX = re.compile(r"(SyntaxError|IndentationError|TabError): (.*)$")
# What `python -m` prints if it finds no module: type of the error, and message
_NO_MODULE = re.compile(
    r"\S*python[\d.]*: (?:Error while finding module .*\((\w+): )?(No module named .*?|.*?)\)?$"
)
_ABORT = re.compile(
    r"(?:^|\S)F\d{4} \d\d:\d\d:[^\]]{1,200}\] (?P<log>.+)|^  what\(\):\s+(?P<exception>.+)"
    r"|^(?P<check>.{0,500}\bAssertion `.+' failed)\.?$"
    r"|^(?P<heap>(?:free|malloc|realloc|munmap_chunk)\(\): .+|double free or corruption.*"
    r"|corrupted (?:size|double).+|\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*.*)$"
)
"""What a runtime prints before it aborts itself: a fatal log line of absl, C++'s uncaught
exception, or what glibc says about an `assert` or a damaged heap.
"""


def find_bare_error(lines: list[str]) -> dict[str, Any] | None:
    """Return the error without a traceback that the lines end with; None if there is none.

    It has the fields `type`, `message` and `frame` of ``error`` in docs/interfaces.md section 2.
    The type is `Aborted` if a runtime aborted itself.
    """
    first = max(0, len(lines) - BARE_LINES)
    for number in range(len(lines) - 1, first - 1, -1):
        error = _read_syntax_error(lines, number) or _read_missing_module(lines[number])
        if error is not None:
            return error
    for line in reversed(lines[-TRAILING_LINES_MAX:]):
        abort = _ABORT.search(line)
        if abort:
            message = next(filter(None, abort.groups()))
            return {"type": "Aborted", "message": message[:MESSAGE_CHARS], "frame": ""}
    return None


def _read_syntax_error(lines: list[str], number: int) -> dict[str, Any] | None:
    """Return the syntax error that this line names, at the frame in one of the lines before it."""
    error = _SYNTAX.match(lines[number])
    if not error:
        return None
    lines_before = lines[max(0, number - BARE_LINES + 1) : number]
    frames = [frame for frame in map(FRAME.match, lines_before) if frame]
    if not frames:
        return None
    return {
        "type": error.group(1),
        "message": error.group(2),
        "frame": format_frame(frames[-1]),
    }


def _read_missing_module(line: str) -> dict[str, Any] | None:
    missing = _NO_MODULE.match(line)
    if not missing:
        return None
    kind, message = missing.groups()
    if not kind and "No module named" not in line:
        return None
    return {"type": kind or "ModuleNotFoundError", "message": message, "frame": ""}
