"""Logging of the functions: one JSON line per record on standard output, where Cloud Logging reads
it.

Fields that describe the current request, such as `function` and `message_id`, are added to every
line by `context`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Final

REFUSED_CALL: Final = "refused_call"
"""Field `action` of entries about calls that Google refuses and an operator can repair. infra/ has
an alert for it.
"""
REFUSED_SUBMISSION: Final = "refused_submission"
"""Field `action` of entries about submissions with a mistake of their senders."""
_FIELDS: Final = ("job_id", "event", "rule", "action", "reason", "duplicate")
_context: ContextVar[dict[str, str] | None] = ContextVar("log_context", default=None)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON.

    Source of the keys: Cloud Logging, structured logging (`severity` and `message` have a special
    meaning).
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"severity": record.levelname, "message": record.getMessage()}
        line |= _context.get() or {}
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["stack_trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@cache
def configure() -> None:
    """Send the records of all `trainmaster` loggers to standard output.

    Only the first call in a process has an effect.
    """
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("trainmaster")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


@contextmanager
def context(**fields: str) -> Iterator[None]:
    """Add these fields to every line that this thread logs within the block."""
    outer_fields = _context.get() or {}
    token = _context.set(outer_fields | fields)
    try:
        yield
    finally:
        _context.reset(token)
