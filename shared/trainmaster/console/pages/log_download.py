"""The filtered log of a job as a text file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from trainmaster.console.pages.job_page import find_job
from trainmaster.console.pages.log_page import LogFilters, log_query
from trainmaster.console.pages.log_window import entries_from, parse_position, position_of
from trainmaster.console.pages.service import Console
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.presentation.log_reader import LogLine
from trainmaster.presentation.printable import printable

DOWNLOAD_LINES_MAX: Final = 50_000
"""Lines of a file, read by 50 calls of Cloud Logging, which permits 60 a minute in a project."""


def read_log_file(console: Console, job_id: str, filters: LogFilters) -> Iterator[str]:
    """Return the lines of the file, from the filters' `from` on; its last line says if others
    follow, and how to get them.

    Raises PermanentError or TemporaryError if the log cannot be read. A later error becomes the
    last line.
    """
    job = find_job(console, job_id)
    position = parse_position("from", filters.start) if filters.start else None
    lines = entries_from(
        console.read_log, log_query(job, filters), position, DOWNLOAD_LINES_MAX + 1
    )
    first = list(islice(lines, 1))  # so that a problem is an error of the call, and not of the file
    return _file(chain(first, lines), filters)


def _file(lines: Iterator[LogLine], filters: LogFilters) -> Iterator[str]:
    last: LogLine | None = None
    try:
        for count, line in enumerate(lines):
            if last and count == DOWNLOAD_LINES_MAX:
                query = filters.window_query(start=str(position_of(last)))
                yield f"# These are the first {count} lines. Those after them: logs.txt?{query}\n"
                return
            start = f"{line.timestamp} {' '.join(line.source.split())} {line.severity}"
            # Each line of a message has its source, because a program chooses what its lines look
            # like.
            yield "".join(
                f"{start} {printable(text)}\n" for text in line.message.splitlines() or [""]
            )
            last = line
    except (PermanentError, TemporaryError) as error:
        query = filters.window_query(start=str(position_of(last))) if last else filters.query()
        yield f"# This file is incomplete: {error}. Lines after the last one: logs.txt?{query}\n"
