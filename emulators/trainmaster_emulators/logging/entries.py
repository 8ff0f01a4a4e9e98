"""The checks of a log entry, and the storage of entries: a table in a file, sorted by time and
insertId.

Two writes with the same log, timestamp and insertId are one entry, as Cloud Logging guarantees for
a retried write.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainmaster_emulators.logging.log_filter import SEVERITIES, Sql
from trainmaster_emulators.rest.api_errors import Json, StatusError, invalid
from trainmaster_emulators.rest.times import SECOND, nanoseconds, rfc3339

ENTRY_BYTES_MAX: Final = 256_000  # Source: Cloud Logging's quotas page ("256 KB")
FUTURE_MAX_NS: Final = 24 * 3600 * SECOND  # Source: the same
LABELS_MAX: Final = 64  # Source: the same
NUMBER_BYTES: Final = 8
"""Size of a number, a boolean or null."""
BYTES_PER_CHARACTER_MAX: Final = 8
"""Most bytes of data for which one character of JSON may stand: a digit may be a whole number."""
_LOG_NAME: Final = re.compile(
    r"projects/([a-z][a-z0-9-]{4,28}[a-z0-9])/logs/[A-Za-z0-9/_.%-]{1,511}"
)
_PAYLOADS: Final = ("textPayload", "jsonPayload", "protoPayload")
"""The fields of which an entry has one."""

Position = tuple[int, str, str]
"""The sort key of an entry: timestamp, insertId, logName."""

_SCHEMA: Final = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS entries (
        timestamp INTEGER, insert_id TEXT, log_name TEXT,
        received INTEGER, severity INTEGER, entry TEXT,
        PRIMARY KEY (timestamp, insert_id, log_name)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS severities ON entries (severity, timestamp);
"""
"""`timestamp` and `received`: nanoseconds since the epoch. `entry`: the whole entry as JSON."""


@dataclass(frozen=True, slots=True)
class Row:
    """A stored entry."""

    position: Position
    received: int
    """Nanoseconds since the epoch, like the timestamp."""
    severity: int
    entry: str
    """The LogEntry as JSON."""


def parse_entry(
    entry: Json, request: Json, now_ns: int, refused_types: Collection[str] = ()
) -> Row:
    """Check an entry.

    Fields that it does not have are taken from the write request. Raises ApiError (400).

    `refused_types`: resource types that the caller may not write.
    """
    log_name = entry.get("logName", request.get("logName"))
    if not isinstance(log_name, str) or not _LOG_NAME.fullmatch(log_name):
        raise invalid(f"Log name {log_name!r} must have the form projects/PROJECT/logs/LOG.")
    resource = entry.get("resource", request.get("resource"))
    if not isinstance(resource, dict) or not isinstance(resource.get("type"), str):
        raise invalid("A log entry needs a resource with a type.")
    if resource["type"] in refused_types:
        raise invalid(f"Resource type {resource['type']!r} cannot be written to by this caller.")
    labels = {**request.get("labels", {}), **entry.get("labels", {})}
    if len(labels) > LABELS_MAX or not all(isinstance(value, str) for value in labels.values()):
        raise invalid(
            f"A log entry has at most {LABELS_MAX} labels, and their values must be text."
        )
    payloads = [name for name in _PAYLOADS if name in entry]
    if len(payloads) > 1:
        raise invalid(f"A log entry has one payload, not {' and '.join(payloads)}.")
    timestamp = nanoseconds(entry["timestamp"]) if "timestamp" in entry else now_ns
    if timestamp > now_ns + FUTURE_MAX_NS:
        raise invalid(
            f"Log entry with timestamp {entry['timestamp']} is more than a day in the future."
        )
    severity = _severity(entry.get("severity", "DEFAULT"))
    insert_id = str(entry.get("insertId") or secrets.token_hex(8))
    stored = {
        **entry,
        "logName": log_name,
        "resource": resource,
        "timestamp": rfc3339(timestamp),
        "receiveTimestamp": rfc3339(now_ns),
        "insertId": insert_id,
    }
    if labels:
        stored["labels"] = labels
    text = json.dumps(stored, ensure_ascii=False, separators=(",", ":"))
    # Counting takes time, so entries that are certainly short enough are not counted.
    may_be_too_long = BYTES_PER_CHARACTER_MAX * len(text) > ENTRY_BYTES_MAX
    if may_be_too_long:
        size = _size(stored)
        if size > ENTRY_BYTES_MAX:
            raise invalid(f"Log entry with size {size} exceeds maximum size of {ENTRY_BYTES_MAX}.")
    return Row((timestamp, insert_id, log_name), now_ns, severity, text)


def _size(value: object) -> int:
    """Return the size of the data, which Cloud Logging limits, not of its JSON."""
    match value:
        case str():
            return len(value.encode("utf-8", "replace"))
        case dict():
            return sum(_size(key) + _size(item) for key, item in value.items())
        case list():
            return sum(map(_size, value))
        case _:
            return NUMBER_BYTES


def _contains_match(pattern: str, text: object) -> bool:
    """Implement SQLite's `text REGEXP pattern`."""
    return isinstance(text, str) and re.search(pattern, text) is not None


def _severity(value: object) -> int:
    """Return the number of a severity that is given by its name or its number."""
    if isinstance(value, int) and value in SEVERITIES.values():
        return value
    if isinstance(value, str) and value in SEVERITIES:
        return SEVERITIES[value]
    raise invalid(f"Invalid value at 'entries.severity': {value!r}.")


class Entries:
    """The stored entries. Thread-safe; statements run one at a time."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.executescript(_SCHEMA)
        self._database.create_function("regexp", 2, _contains_match, deterministic=True)

    def add(self, rows: Sequence[Row]) -> None:
        """Store the entries, all or none. One that is stored already stays as it is."""
        values = [(*row.position, row.received, row.severity, row.entry) for row in rows]
        with self._lock:
            self._database.execute("BEGIN")
            self._database.executemany(
                "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?)", values
            )
            self._database.execute("COMMIT")

    def page(
        self,
        projects: Sequence[str],
        condition: Sql,
        after: Position | None,
        limit: int,
        *,
        descending: bool,
    ) -> tuple[list[str], Position | None]:
        """Return at most `limit` entries after a position, as JSON, and the last one's position if
        there are more.
        """
        order, comparison = ("DESC", "<") if descending else ("ASC", ">")
        in_projects = " OR ".join("log_name GLOB ?" for _ in projects)
        where = [f"({in_projects})"]
        values: list[object] = [f"{project}/logs/*" for project in projects]
        values += condition.values
        if after is None:
            where.append(condition.text)
        else:
            # The plus keeps SQLite from searching by a time in the filter, from which all earlier
            # pages would follow.
            where.append(f"+({condition.text})")
            where.append(f"(timestamp, insert_id, log_name) {comparison} (?, ?, ?)")
            values += after
        # Nothing that a caller sends is in the text: every value is a parameter.
        query = (
            "SELECT timestamp, insert_id, log_name, entry FROM entries"  # noqa: S608
            f" WHERE {' AND '.join(where)}"
            f" ORDER BY timestamp {order}, insert_id {order}, log_name {order} LIMIT ?"
        )
        with self._lock:
            matches = self._database.execute(query, (*values, limit + 1)).fetchall()
        page = matches[:limit]
        last: Position | None = None
        if len(matches) > limit:
            timestamp, insert_id, log_name, _ = page[-1]
            last = (timestamp, insert_id, log_name)
        return [entry for *_, entry in page], last

    def close(self) -> None:
        with self._lock:
            self._database.close()


def parse_entries(
    request: Json, now_ns: int, refused_types: Collection[str]
) -> tuple[list[Row], dict[int, StatusError]]:
    """Check the entries of a write request.

    Return the valid ones, and the errors of the others by their index.
    """
    rows: list[Row] = []
    errors: dict[int, StatusError] = {}
    for index, entry in enumerate(request.get("entries", [])):
        try:
            rows.append(parse_entry(entry, request, now_ns, refused_types))
        except StatusError as error:
            errors[index] = error
    return rows, errors
