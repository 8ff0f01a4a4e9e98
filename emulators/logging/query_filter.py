"""The Logging query language, as far as gcloud and `trainmaster` speak it, as an SQL condition.

    filter     := any (AND? any)*                    OR binds more tightly than AND: Logging's order, not everyone's
    any        := not (OR not)*
    not        := (NOT | -)? ( "(" filter ")" | field operator values )
    values     := literal | "(" literal ((OR | AND) literal)* ")"
    operator   := = | : | > | >= | < | <=

`=` compares and `:` searches text without regard to case; `field:*` asks whether the field is there. Times, severities
and numbers are compared as such. What else the language has (`!=`, `=~`, functions, text without a field) is refused
with an error that names it, never guessed at. Source: the Logging query language reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from emulators.logging.api_errors import invalid
from emulators.logging.times import nanoseconds

LENGTH_MAX: Final = 20_000  # Source: Cloud Logging's quotas page

SEVERITIES: Final = {
    "DEFAULT": 0,
    "DEBUG": 100,
    "INFO": 200,
    "NOTICE": 300,
    "WARNING": 400,
    "ERROR": 500,
    "CRITICAL": 600,
    "ALERT": 700,
    "EMERGENCY": 800,
}
"""Source: LogSeverity in the API's discovery document."""

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")
        |(?P<operator>!=|=~|!~|>=|<=|=|:|>|<)
        |(?P<paren>[()])
        |(?P<word>(?:\."(?:[^"\\]|\\.)*"|[^\s()"'=!<>:,])+))""",
    re.VERBOSE,
)
_STEP: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.]+)')
_OPERATORS: Final = ("=", ":", ">", ">=", "<", "<=")
_JSON_FIELDS: Final = (
    "resource",
    "labels",
    "jsonPayload",
    "textPayload",
    "severity",
    "trace",
    "operation",
    "httpRequest",
)
_COLUMNS: Final = {"insertId": "insert_id", "logName": "log_name"}
_TIMES: Final = {"timestamp": "timestamp", "receiveTimestamp": "received"}


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition and what its question marks stand for."""

    text: str
    values: tuple[object, ...] = ()


def parse(text: str) -> Sql:
    """The whole filter; an empty one lets everything through. Raises ApiError (400)."""
    if len(text) > LENGTH_MAX:
        raise invalid(f"The filter is longer than {LENGTH_MAX} characters.")
    return _Parser(text).parse() if text.strip() else Sql("1")


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def parse(self) -> Sql:
        found = self._all()
        if self._peek()[0] != "end":
            raise invalid(f"Unparseable filter: unexpected {self._peek()[1]!r}.")
        return found

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _takes(self, kind: str, value: str) -> bool:
        if self._peek() != (kind, value):
            return False
        self._at += 1
        return True

    def _all(self) -> Sql:
        parts = [self._any()]
        while self._peek() not in (("end", "the end"), ("paren", ")")):
            self._takes("word", "AND")  # may be left out
            parts.append(self._any())
        return _joined(" AND ", parts)

    def _any(self) -> Sql:
        parts = [self._not()]
        while self._takes("word", "OR"):
            parts.append(self._not())
        return _joined(" OR ", parts)

    def _not(self) -> Sql:
        kind, word = self._peek()
        if kind == "word" and word.startswith("-") and len(word) > 1:
            self._tokens[self._at] = ("word", word[1:])
            return _negated(self._not())
        if self._takes("word", "NOT") or self._takes("word", "-"):
            return _negated(self._not())
        if self._takes("paren", "("):
            found = self._all()
            self._close()
            return found
        return self._comparison()

    def _close(self) -> None:
        if not self._takes("paren", ")"):
            raise invalid(f"Unparseable filter: expected ')' before {self._peek()[1]!r}.")

    def _comparison(self) -> Sql:
        kind, field = self._next()
        operator = self._peek()
        if kind != "word" or operator[0] != "operator":
            raise invalid(f"This emulator knows no search without a field: {field!r}.")
        self._next()
        if operator[1] not in _OPERATORS:
            raise invalid(f"This emulator knows no operator {operator[1]!r}.")
        compare = _field(field, operator[1])
        if not self._takes("paren", "("):
            return compare(*self._literal())
        parts, joiners = [compare(*self._literal())], set()
        while not self._takes("paren", ")"):
            joiners.add(self._next())
            parts.append(compare(*self._literal()))
        if not joiners <= {("word", "OR")} and not joiners <= {("word", "AND")}:
            raise invalid("A list of values is joined by OR, or by AND.")
        return _joined(" AND " if ("word", "AND") in joiners else " OR ", parts)

    def _literal(self) -> tuple[str, bool]:
        """The value, and whether it stood in quotes."""
        kind, value = self._next()
        if kind not in ("text", "word"):
            raise invalid(f"Unparseable filter: expected a value, not {value!r}.")
        return value, kind == "text"


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise invalid(f"Unparseable filter at {text[position : position + 20]!r}.")
        kind = str(match.lastgroup)
        yield kind, _unquoted(match[kind][1:-1]) if kind == "text" else match[kind]
        position = match.end()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _field(path: str, operator: str) -> Callable[[str, bool], Sql]:
    """How this field is compared with a literal. Raises ApiError where it is none that is known here."""
    steps = [_unquoted(quoted) or plain for quoted, plain in _STEP.findall(path)]
    if not steps:
        raise invalid(f"Unknown field {path!r}.")
    if path in _TIMES:
        return lambda value, _: _ordered(_TIMES[path], operator, nanoseconds(value))
    if path == "severity":
        return lambda value, _: _ordered("severity", operator, _rank(value))
    if path in _COLUMNS:
        return lambda value, _: _text(_COLUMNS[path], operator, value)
    if steps[0] not in _JSON_FIELDS:
        raise invalid(f"Unknown field {path!r}.")
    place = "$" + "".join(f".{json.dumps(step)}" for step in steps)
    return lambda value, quoted: _payload(place, operator, value, quoted=quoted)


def _rank(name: str) -> int:
    if name.upper() not in SEVERITIES:
        raise invalid(f"Unknown severity {name!r}.")
    return SEVERITIES[name.upper()]


def _ordered(column: str, operator: str, value: int) -> Sql:
    if operator == ":":
        raise invalid(f"This emulator does not search in {column}.")
    return Sql(f"{column} {operator} ?", (value,))


def _payload(place: str, operator: str, value: str, *, quoted: bool) -> Sql:
    found = "json_extract(entry, ?)"
    if operator == ":" and value == "*" and not quoted:
        return Sql(f"{found} IS NOT NULL", (place,))
    if operator in ("=", ":"):
        condition = _text(found, operator, value)
        return Sql(condition.text, (place, *condition.values))
    try:
        return Sql(f"CAST({found} AS REAL) {operator} ?", (place, float(value)))
    except ValueError:
        raise invalid(f"This emulator compares {place[2:]} by {operator} with numbers only.") from None


def _text(expression: str, operator: str, value: str) -> Sql:
    match operator:
        case "=":
            return Sql(f"COALESCE(lower({expression}) = lower(?), 0)", (value,))
        case ":":
            return Sql(f"COALESCE(instr(lower({expression}), lower(?)) > 0, 0)", (value,))
        case _:
            return Sql(f"{expression} {operator} ?", (value,))


def _joined(word: str, parts: list[Sql]) -> Sql:
    if len(parts) == 1:
        return parts[0]
    return Sql(f"({word.join(part.text for part in parts)})", tuple(value for part in parts for value in part.values))


def _negated(part: Sql) -> Sql:
    return Sql(f"NOT ({part.text})", part.values)
