"""The fixture `caplog`, as a plugin for those tests alone that read logs.

pytest's own plugin (`-p no:logging` in pyproject.toml) visits every logger six times per test,
whether or not the test reads logs, and Google's libraries have a logger per module.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class CapturedLogs(logging.Handler):
    """The records of one test that reach the root logger, or one that passes nothing on to it
    (`json_log`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._levels: list[tuple[logging.Logger, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.message = record.getMessage()
        self.records.append(record)

    @property
    def text(self) -> str:
        """All records with their tracebacks, a line or more each."""
        return "".join(f"{self.format(record)}\n" for record in self.records)

    def set_level(self, level: int, logger: str | None = None) -> None:
        """Let a logger, by default the root logger, pass records of this level on until the end of
        the test.
        """
        changed = logging.getLogger(logger)
        self._levels.append((changed, changed.level))
        changed.setLevel(level)

    @contextmanager
    def at_level(self, level: int) -> Iterator[None]:
        """Let the root logger pass records of this level on."""
        self.set_level(level)
        yield
        self.restore()

    def restore(self) -> None:
        while self._levels:
            changed, level = self._levels.pop()
            changed.setLevel(level)


@pytest.fixture
def caplog() -> Iterator[CapturedLogs]:
    """Collect the records of all loggers, also of those that do not propagate theirs."""
    captured = CapturedLogs()
    captured.set_level(logging.WARNING)  # Python's default, whatever an earlier test has made of it
    known = [
        logger
        for logger in logging.root.manager.loggerDict.values()
        if isinstance(logger, logging.Logger)
    ]
    roots = [logging.root, *(logger for logger in known if not logger.propagate)]
    for root in roots:
        root.addHandler(captured)
    yield captured
    for root in roots:
        root.removeHandler(captured)
    captured.restore()
