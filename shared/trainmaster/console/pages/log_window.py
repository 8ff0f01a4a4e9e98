"""A window of a job's log: the lines before, after or around a position, always in order, and what
it leaves out.

Lines are ordered by time and, within a time, by insertId, as Cloud Logging orders them. So a
position is a time and an insertId, and pages that follow each other neither repeat nor lose a line.
Source of the conditions: `LogPosition` of gcloud's `ml stream-logs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from trainmaster.console.pages.times import parse_time
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.presentation.log_reader import LogLine, parse_entry

LINES_MAX: Final = 1_000
"""Lines of a window: one page, and one call of Cloud Logging."""
TAIL_LINES: Final = 10
"""Lines that the page of a job shows of its log."""
FOLLOWED_MAX: Final = 5
"""Windows that one update of a live page reads while it is behind: 5,000 lines, and 60 calls a
minute at most.
"""
CALLS_MAX: Final = 4
"""Calls for one window: Cloud Logging may return a part of a page, or none, with a token to search
on.
"""
AROUND: Final = timedelta(seconds=30)
"""Time before a linked line in which the lines before it are searched."""
_SECOND_CHARS: Final = len("2026-11-21T03:00:00")


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A call of Cloud Logging."""

    filter: str
    newest_first: bool = False
    token: str = ""
    """Token of the page; empty: the first one."""
    limit: int = LINES_MAX


ReadLog = Callable[[LogQuery], tuple[Sequence[Mapping[str, Any]], str]]
"""Query → entries in its order, at most its limit, and the token of the next page or an empty one.
"""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The position of a line; without an insertId, a time."""

    time: str
    insert_id: str = ""

    def __str__(self) -> str:
        return f"{self.time}/{self.insert_id}" if self.insert_id else self.time

    @property
    def key(self) -> tuple[str, str]:
        """The key that positions are sorted by."""
        return _comparable(self.time), self.insert_id

    @property
    def before(self) -> str:
        """The condition for the lines before it."""
        return self._beyond("<") if self.insert_id else f'timestamp<"{self.time}"'

    @property
    def onward(self) -> str:
        """The condition for the lines after it; for a time, also those of the time itself."""
        return self._beyond(">") if self.insert_id else f'timestamp>="{self.time}"'

    def _beyond(self, sign: str) -> str:
        """Return the condition for the lines before (`<`) or after (`>`) this one."""
        insert_id = json.dumps(self.insert_id)
        tie = f'(timestamp="{self.time}" AND insertId{sign}{insert_id})'
        return f'timestamp{sign}="{self.time}" AND (timestamp{sign}"{self.time}" OR {tie})'


@dataclass(frozen=True, slots=True)
class Window:
    """Lines that follow each other, and whether there are others."""

    lines: tuple[LogLine, ...]
    """The oldest first."""
    has_older: bool = False
    has_newer: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest lines of a log, or why they cannot be read."""

    lines: tuple[LogLine, ...] = ()
    problem: str = ""


def read_tail(read: ReadLog, query: str) -> Tail:
    """Return the newest `TAIL_LINES` lines. Never raises PermanentError or TemporaryError."""
    try:
        lines, _ = _read(read, query, TAIL_LINES, newest_first=True)
    except (PermanentError, TemporaryError) as error:
        return Tail(problem=f"{error}.")
    return Tail(lines)


def parse_position(name: str, text: str) -> LogPosition:
    """Return the position of a parameter: `TIME` or `TIME/INSERT_ID`.

    Raises PermanentError for a wrong time.
    """
    time, _, insert_id = text.partition("/")
    parse_time(name, time)
    return LogPosition(time, insert_id)


def position_of(line: LogLine) -> LogPosition:
    return LogPosition(line.timestamp, line.insert_id)


def newest_window(read: ReadLog, query: str, before: LogPosition | None = None) -> Window:
    """Return the newest lines, or those before a position."""
    lines, has_more = _read(
        read, f"{query} AND {before.before}" if before else query, LINES_MAX, newest_first=True
    )
    return Window(lines, has_older=has_more, has_newer=before is not None)


def live_window(read: ReadLog, query: str, follow: LogPosition | None) -> Window:
    """Return the newest lines, and before them all lines since `follow`, in `FOLLOWED_MAX` windows
    at most.

    Errors of Cloud Logging after the first window, such as a used-up quota, end the search: the
    page names the gap.
    """
    window = newest_window(read, query)
    for _ in range(FOLLOWED_MAX - 1):
        if follow is None or not is_behind(window, follow):
            break
        try:
            earlier = newest_window(read, query, position_of(window.lines[0]))
        except TemporaryError:
            break
        window = Window(earlier.lines + window.lines, earlier.has_older)
        if not earlier.lines:
            break
    return window


def is_behind(window: Window, follow: LogPosition) -> bool:
    """Return whether there may be lines between `follow` and the window."""
    return window.has_older and bool(window.lines) and position_of(window.lines[0]).key > follow.key


def window_from(read: ReadLog, query: str, position: LogPosition) -> Window:
    """Return the first lines from a position on. There may always be older ones."""
    lines, has_more = _read(read, f"{query} AND {position.onward}", LINES_MAX)
    return Window(lines, has_older=True, has_newer=has_more)


def window_around(read: ReadLog, query: str, time: str) -> Window:
    """Return the lines from a time on, and as many before it: the line of that time is always among
    them.
    """
    begin = parse_time("around", time) - AROUND
    half = LINES_MAX // 2
    after, has_newer = _read(read, f'{query} AND timestamp>="{time}"', half)
    earlier = f'{query} AND timestamp>="{begin.isoformat()}" AND timestamp<"{time}"'
    before, _ = _read(read, earlier, half, newest_first=True)
    return Window(before + after, has_older=True, has_newer=has_newer)


def entries_from(
    read: ReadLog, query: str, position: LogPosition | None, limit: int
) -> Iterator[LogLine]:
    """Yield the first lines from a position on, or all from the beginning, page by page."""
    text = f"{query} AND {position.onward}" if position else query
    token = ""
    count = 0
    while True:
        entries, token = read(LogQuery(text, token=token))
        yield from map(parse_entry, entries[: limit - count])
        count += len(entries)
        if not token or count >= limit:
            return


def _read(
    read: ReadLog, query: str, limit: int, *, newest_first: bool = False
) -> tuple[tuple[LogLine, ...], bool]:
    """Return the first lines in this direction, the oldest first, and whether there may be more."""
    lines: list[LogLine] = []
    token = ""
    for _ in range(CALLS_MAX):
        entries, token = read(LogQuery(query, newest_first, token, limit))
        lines += map(parse_entry, entries)
        if len(lines) >= limit or not token:
            break
    has_more = len(lines) > limit or bool(token)
    return tuple(sorted(lines[:limit], key=lambda line: position_of(line).key)), has_more


def _comparable(time: str) -> str:
    """Return a time with nine digits of its second, in UTC, so that texts compare as times do."""
    if time.endswith("Z"):
        fraction = time[_SECOND_CHARS:-1].removeprefix(".")
        return f"{time[:_SECOND_CHARS]}.{fraction:0<9}"
    moment = datetime.fromisoformat(time)
    return (moment - (moment.utcoffset() or timedelta())).strftime("%Y-%m-%dT%H:%M:%S.%f000")
