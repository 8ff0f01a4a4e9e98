"""One JSON line per event on standard output, as Cloud Logging reads it from a function.

Only entry points and adapters log. What they say of the message at hand (`function`, `message_id`) is added here.
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

_FIELDS: Final = ("job_id", "event", "rule", "decision", "reason", "duplicate")
_context: ContextVar[dict[str, str] | None] = ContextVar("log_context", default=None)


class JsonLines(logging.Formatter):
    """Source of the keys: Cloud Logging's structured payload (`severity` and `message` are special)."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {"severity": record.levelname, "message": record.getMessage()}
        line |= _context.get() or {}
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["stack_trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@cache
def start() -> None:
    """Once per process: our own loggers to standard output, one JSON line each."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("shared")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


@contextmanager
def context(**fields: str) -> Iterator[None]:
    """These fields are in every line of this thread's work until the end of the block."""
    token = _context.set({**(_context.get() or {}), **fields})
    try:
        yield
    finally:
        _context.reset(token)
