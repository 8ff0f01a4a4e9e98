"""The Logging query language, as far as gcloud and `trainmaster` use it, translated to an SQL
condition on the table of `entries`: the JSON of an entry, and the columns named below.

`=` compares and `:` searches text without regard to case; `=~` searches for a regular expression,
with regard to case; `field:*` tests whether the field exists. Times, severities and numbers are
compared by value. AND may be omitted. OR binds more tightly than AND in this language. Other parts
of the language (`!=`, `!~`, functions, text without a field) are refused with an error that names
them. Source: the Logging query language reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, cast

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from trainmaster.api.filter_grammar import Tighter, logic_rules
from trainmaster_emulators.rest.api_errors import ApiError, invalid
from trainmaster_emulators.rest.times import nanoseconds

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

_GRAMMAR: Final = (
    logic_rules(Tighter.OR)
    + r"""
    negation: (_NOT | _MINUS) _term
    comparison: WORD OPERATOR _values
        | (WORD | TEXT) -> text_search
    _values: literal | alternatives
    alternatives: "(" literal (joiner literal)* ")"
    !joiner: _AND | _OR
    literal: WORD | TEXT

    _AND: "AND"
    _OR: "OR"
    _NOT: "NOT"
    _MINUS.2: "-"
    OPERATOR: /!=|=~|!~|>=|<=|=|:|>|</
    TEXT: /"(?:[^"\\]|\\.)*"/
    WORD: /(?:\."(?:[^"\\]|\\.)*"|[^\s()"'=!<>:,])+/
    %import common.WS
    %ignore WS
"""
)
_PATH_STEP: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.]+)')
"""A step of a field's path: in quotation marks, or without dots."""
_OPERATORS: Final = ("=", ":", "=~", ">", ">=", "<", "<=")
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
"""Fields of an entry that may be compared, by their paths in its JSON."""
# Field → column of the table
_TEXT_COLUMNS: Final = {"insertId": "insert_id", "logName": "log_name"}
_TIME_COLUMNS: Final = {"timestamp": "timestamp", "receiveTimestamp": "received"}


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL condition, and the values of its question marks."""

    text: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class _Literal:
    """A value in a filter. `quoted`: whether it had quotation marks."""

    value: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class _Alternatives:
    """`(a OR b)` or `(a AND b)` as the value of a comparison."""

    literals: tuple[_Literal, ...]
    joiner: str


def parse(text: str) -> Sql:
    """Translate a filter. An empty filter matches every entry. Raises ApiError (400)."""
    if len(text) > LENGTH_MAX:
        raise invalid(f"The filter is longer than {LENGTH_MAX} characters.")
    if not text.strip():
        return Sql("1")
    try:
        return cast(Sql, _parser().parse(text))
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None


@cache
def _parser() -> Lark:
    """Return the parser, which is built at its first use."""
    return Lark(_GRAMMAR, parser="lalr", transformer=_ToSql())


def _syntax_error(text: str, error: UnexpectedInput) -> ApiError:
    """Return the error of a filter that cannot be parsed, which shows where."""
    if not isinstance(error, UnexpectedToken):
        return invalid(f"Unparseable filter at {text[error.pos_in_stream :][:20]!r}.")
    where = "end of the filter" if error.token.type == "$END" else repr(str(error.token))
    hint = ", expected ')'" if "RPAR" in error.expected else ""
    return invalid(f"Unparseable filter: unexpected {where}{hint}.")


@v_args(inline=True)
class _ToSql(Transformer[Token, Sql]):
    """Builds the condition while the filter is parsed.

    Each method handles the grammar rule of its name.
    """

    def conjunction(self, *parts: Sql) -> Sql:
        return _join("AND", parts)

    def disjunction(self, *parts: Sql) -> Sql:
        return _join("OR", parts)

    def group(self, part: Sql) -> Sql:
        return part

    def negation(self, part: Sql) -> Sql:
        return Sql(f"NOT ({part.text})", part.values)

    def comparison(self, field: Token, operator: Token, value: _Literal | _Alternatives) -> Sql:
        if operator not in _OPERATORS:
            raise invalid(f"This emulator does not support the operator {str(operator)!r}.")
        compare = _comparison(str(field), str(operator))
        if isinstance(value, _Literal):
            return compare(value)
        return _join(value.joiner, [compare(literal) for literal in value.literals])

    def alternatives(self, *parts: _Literal | str) -> _Alternatives:
        literals = tuple(part for part in parts if isinstance(part, _Literal))
        joiners = {part for part in parts if isinstance(part, str)}
        if len(joiners) > 1:
            raise invalid(
                "Unparseable filter: the values of a list must all be joined by OR, or all by AND."
            )
        return _Alternatives(literals, joiners.pop() if joiners else "OR")

    def joiner(self, word: Token) -> str:
        return str(word)

    def literal(self, token: Token) -> _Literal:
        if token.type == "TEXT":
            return _Literal(_unescape(token[1:-1]), quoted=True)
        return _Literal(str(token), quoted=False)

    def text_search(self, text: Token) -> Sql:
        raise invalid(f"This emulator does not support a search without a field: {str(text)!r}.")


def _comparison(path: str, operator: str) -> Callable[[_Literal], Sql]:
    """Return the comparison of a field with a literal.

    Raises ApiError for a field that this emulator does not know.
    """
    if path in _TIME_COLUMNS:
        column = _TIME_COLUMNS[path]
        return lambda literal: _compare_number(column, operator, nanoseconds(literal.value))
    if path == "severity":
        return lambda literal: _compare_number("severity", operator, _severity_rank(literal.value))
    if path in _TEXT_COLUMNS:
        return lambda literal: _compare_text(_TEXT_COLUMNS[path], operator, literal.value)
    steps = [_unescape(quoted) or plain for quoted, plain in _PATH_STEP.findall(path)]
    if not steps or steps[0] not in _JSON_FIELDS:
        raise invalid(f"Unknown field {path!r}.")
    json_path = "$" + "".join(f".{json.dumps(step)}" for step in steps)
    return lambda literal: _compare_json(json_path, operator, literal)


def _severity_rank(name: str) -> int:
    """Return the number of a severity, by which severities are compared."""
    if name.upper() not in SEVERITIES:
        raise invalid(f"Unknown severity {name!r}.")
    return SEVERITIES[name.upper()]


def _compare_number(column: str, operator: str, value: int) -> Sql:
    """Return the comparison of a column of numbers."""
    if operator in (":", "=~"):
        raise invalid(f"This emulator does not support '{operator}' for {column}.")
    return Sql(f"{column} {operator} ?", (value,))


def _compare_json(json_path: str, operator: str, literal: _Literal) -> Sql:
    """Return the comparison of a field in the JSON of the entry, by a path of SQLite such as
    `$.labels`.
    """
    extracted = "json_extract(entry, ?)"
    if operator == ":" and literal.value == "*" and not literal.quoted:
        return Sql(f"{extracted} IS NOT NULL", (json_path,))
    if operator in ("=", ":", "=~"):
        condition = _compare_text(extracted, operator, literal.value)
        return Sql(condition.text, (json_path, *condition.values))
    try:
        return Sql(f"CAST({extracted} AS REAL) {operator} ?", (json_path, float(literal.value)))
    except ValueError:
        raise invalid(
            f"This emulator compares {json_path[2:]} by {operator} with numbers only."
        ) from None


def _compare_text(expression: str, operator: str, value: str) -> Sql:
    """Return the comparison of an SQL expression that is a text, or NULL."""
    match operator:
        case "=":
            return Sql(f"COALESCE(lower({expression}) = lower(?), 0)", (value,))
        case ":":
            return Sql(f"COALESCE(instr(lower({expression}), lower(?)) > 0, 0)", (value,))
        case "=~":
            _check_pattern(value)
            return Sql(f"COALESCE({expression} REGEXP ?, 0)", (value,))
        case _:
            return Sql(f"{expression} {operator} ?", (value,))


def _check_pattern(pattern: str) -> None:
    """Raise ApiError unless this is a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise invalid(f"Invalid regular expression {pattern!r}: {error}.") from None


def _join(joiner: str, parts: Sequence[Sql]) -> Sql:
    """Return the conditions, joined by AND or OR."""
    if len(parts) == 1:
        return parts[0]
    text = f" {joiner} ".join(part.text for part in parts)
    values: list[object] = []
    for part in parts:
        values += part.values
    return Sql(f"({text})", tuple(values))


def _unescape(text: str) -> str:
    """Return the text without the backslashes before its characters."""
    return re.sub(r"\\(.)", r"\1", text)
