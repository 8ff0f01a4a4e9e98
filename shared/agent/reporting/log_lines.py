"""What one printed line becomes in Cloud Logging: its payload, its severity, its time.

One entry a line, tracebacks too, as the old service did it. `jsonPayload.message` holds the text, which is what its
clients read; a line that is a JSON object is the payload itself, and its `severity` is the entry's.
"""

from __future__ import annotations

import functools
import json
import re
import time
from typing import TYPE_CHECKING

from shared.agent.reporting.serial_console import Stream

if TYPE_CHECKING:
    from typing import Any, NoReturn

SECOND_NS = 1_000_000_000

# Source: LogSeverity of the API; the last four are what Python's logging and others call theirs.
SEVERITIES = {
    name: name for name in ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
}
SEVERITIES.update({"NOTSET": "DEFAULT", "WARN": "WARNING", "FATAL": "CRITICAL", "SEVERE": "ERROR"})

# Standard error is where Python's logging and TensorFlow print everything: a line that says its level has that one, and
# only what does not is an error, as the old service's successor takes all of it.
SEVERITY_OF_STREAM = {Stream.AGENT: "INFO", Stream.STDOUT: "INFO", Stream.STDERR: "ERROR"}
_WORDS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_LEVEL = re.compile(
    r"\[?(DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?[:\s]"  # Python's logging
    r"|([IWEF])\d{4} \d\d:\d\d:\d\d"  # glog, absl
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+: ([IWEF]) "  # TensorFlow's runtime
)


def shown(line: str) -> str:
    """What of a line a terminal would show in the end: progress bars write over themselves."""
    return line.rstrip("\r").rpartition("\r")[2]


def entry_of(line: str, stream: Stream) -> dict[str, Any]:
    """`jsonPayload` and `severity`."""
    if line.startswith("{"):
        payload = _object(line)
        if payload is not None:
            return {"jsonPayload": payload, "severity": _told(payload) or SEVERITY_OF_STREAM[stream]}
    return {"jsonPayload": {"message": line}, "severity": _written(line) or SEVERITY_OF_STREAM[stream]}


def _object(line: str) -> dict[str, Any] | None:
    """A JSON object as Google reads it, its message as text; None for everything else."""
    try:
        found = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if not isinstance(found.get("message", ""), str):
        found["message"] = json.dumps(found["message"])
    return found


def _refuse(word: str) -> NoReturn:
    """Python reads NaN and Infinity; Google refuses a whole request that holds one."""
    raise ValueError(word)


def _told(payload: dict[str, Any]) -> str | None:
    """The severity that a JSON line names, taken out of it."""
    for key in ("severity", "levelname"):
        known = SEVERITIES.get(str(payload.get(key, "")).upper())
        if known is not None:
            del payload[key]
            return known
    return None


def _written(line: str) -> str | None:
    """The level at the head of a line that a logging library wrote."""
    found = _LEVEL.match(line)
    if found is None:
        return None
    word, short, tensorflow = found.groups()
    return SEVERITIES[word] if word else _WORDS[short or tensorflow]


def rfc3339(at_ns: int) -> str:
    """With all nine digits."""
    return f"{_second(at_ns // SECOND_NS)}.{at_ns % SECOND_NS:09d}Z"


@functools.lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
