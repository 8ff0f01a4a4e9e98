"""How one printed line becomes an entry in Cloud Logging: its payload, its severity and its time.

Each line is one entry, also within tracebacks, as on AI Platform Training. `jsonPayload.message`
holds the text, which is the field that clients of that service read. If a line is a JSON object, it
is the payload, and its `severity` is the severity of the entry.
"""

from __future__ import annotations

import functools
import json
import re
import time
from typing import Any, NoReturn

from trainmaster.agent.reporting.serial_console import Stream

SECOND_NS = 1_000_000_000

# Source: LogSeverity of the API.
_API_SEVERITIES = (
    "DEFAULT",
    "DEBUG",
    "INFO",
    "NOTICE",
    "WARNING",
    "ERROR",
    "CRITICAL",
    "ALERT",
    "EMERGENCY",
)
SEVERITIES = {
    **{name: name for name in _API_SEVERITIES},
    # The names that Python's logging and other libraries use.
    "NOTSET": "DEFAULT",
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
    "SEVERE": "ERROR",
}

# Python's logging and TensorFlow print everything to standard error. A line there that begins with
# a level has that severity; any other line there is an error. Vertex AI treats all of standard
# error as errors.
SEVERITY_OF_STREAM = {
    Stream.AGENT: "INFO",
    Stream.AGENT_WARNING: "WARNING",
    Stream.AGENT_ERROR: "ERROR",
    Stream.STDOUT: "INFO",
    Stream.STDERR: "ERROR",
}
_SEVERITY_OF_LETTER = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_LEVEL = re.compile(
    r"\[?(DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?[:\s]"  # Python's logging
    r"|([IWEF])\d{4} \d\d:\d\d:\d\d"  # glog, absl
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+: ([IWEF]) "  # TensorFlow's runtime
)


def visible_text(line: str) -> str:
    """Return the part of a line that a terminal shows in the end: that after the last carriage
    return, with which progress bars overwrite themselves.
    """
    return line.rstrip("\r").rpartition("\r")[2]


def entry_of(text: str, stream: Stream) -> dict[str, Any]:
    """Return `jsonPayload` and `severity` of the entry.

    Text with a carriage return is a progress bar, and no error, unless a traceback begins after it.
    """
    line = visible_text(text)
    is_progress = "\r" in text and not text.endswith("Traceback (most recent call last):")
    default = "INFO" if is_progress else SEVERITY_OF_STREAM[stream]
    if line.startswith("{"):
        payload = _parse_payload(line)
        if payload is not None:
            return {"jsonPayload": payload, "severity": _pop_severity(payload) or default}
    return {"jsonPayload": {"message": line}, "severity": _severity_of_text(line) or default}


def _parse_payload(line: str) -> dict[str, Any] | None:
    """Return the JSON object that the line holds, with its message as text; None if it holds
    none.
    """
    try:
        payload = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict):
        return None
    if not isinstance(payload.get("message", ""), str):
        payload["message"] = json.dumps(payload["message"])
    return payload


def _reject_constant(word: str) -> NoReturn:
    """Reject NaN and Infinity: Python parses them, but Cloud Logging rejects the whole request."""
    raise ValueError(word)


def _pop_severity(payload: dict[str, Any]) -> str | None:
    """Remove and return the severity that a JSON line names."""
    for key in ("severity", "levelname"):
        severity = SEVERITIES.get(str(payload.get(key, "")).upper())
        if severity is not None:
            del payload[key]
            return severity
    return None


def _severity_of_text(line: str) -> str | None:
    """Return the severity of the level at the start of a line that a logging library wrote."""
    match = _LEVEL.match(line)
    if match is None:
        return None
    word, glog_letter, tensorflow_letter = match.groups()
    return SEVERITIES[word] if word else _SEVERITY_OF_LETTER[glog_letter or tensorflow_letter]


def rfc3339(at_ns: int) -> str:
    """Format nanoseconds since 1970 with all nine digits."""
    return f"{_format_seconds(at_ns // SECOND_NS)}.{at_ns % SECOND_NS:09d}Z"


@functools.lru_cache(maxsize=16)
def _format_seconds(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
