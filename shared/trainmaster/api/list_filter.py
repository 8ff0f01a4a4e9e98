"""Filters of lists: `jobId:rnn* AND state:FAILED`, `NOT display_name="x"`, `labels.team:* OR
create_time>"2026-…"`.

A filter is applied to jobs as the API shows them; field names may be in camelCase or snake_case.
`=` and `:` compare text in any case, with `*` for any characters; `!=` is their negation; `<`,
`<=`, `>` and `>=` compare times and numbers. A comparison with a field that a job does not have is
false. Source: the filter examples in both APIs' discovery documents. `filter_grammar` has the
syntax, and `list_bounds` the conditions that an index of the store answers.
"""

from __future__ import annotations

import fnmatch
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final

from pydantic.alias_generators import to_camel

from trainmaster.api import errors
from trainmaster.api.list_bounds import Bounds, Condition
from trainmaster.core.model.job import Label

if TYPE_CHECKING:
    from lark import Lark

CHARS_MAX: Final = 2_000
"""Characters of a filter."""
NUMBER_CHARS_MAX: Final = 64
"""Characters of the longest value that is a number or a time."""
_COMPARISON: Final = re.compile(r"([\w.-]+)\s*(!=|<=|>=|[=<>:])\s*(.+)", re.DOTALL)
"""Field, sign and value."""
_VALUE_CHARS_MAX: Final = 60
"""Characters of a wrong value that an error repeats."""
_ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMES: Final = (("jobId",), ("displayName",))
_LABEL_STEPS: Final = 2
_SHOWN_TO_S: Final = 1
"""Times are shown in whole seconds: a job was created up to one second after its `createTime`."""


def parse_filter(text: str, fields: frozenset[str]) -> Condition:
    """Return the condition of shown jobs; an empty filter accepts all. Raises ApiError.

    `fields`: the top-level fields that a shown job can have.
    """
    if not text.strip():
        return Condition(lambda _: True)
    if len(text) > CHARS_MAX:
        raise errors.invalid_argument("filter", f"must have at most {CHARS_MAX} characters")
    # A late import, because it imports lark, which only requests with a filter need.
    from trainmaster.api import filter_grammar

    try:
        return filter_grammar.parse(text, _parser(fields))
    except filter_grammar.FilterSyntaxError as error:
        raise errors.invalid_argument("filter", str(error)) from None


@cache
def _parser(fields: frozenset[str]) -> Lark:
    from trainmaster.api import filter_grammar

    return filter_grammar.parser_of(lambda comparison: _compile(comparison, fields))


def _compile(comparison: str, fields: Collection[str]) -> Condition:
    """Return the condition of one comparison, such as `state:FAILED`."""
    match = _COMPARISON.fullmatch(comparison)
    if match is None:
        raise ValueError(f"not a comparison: {comparison!r}")
    name, sign, quoted = match.groups()
    value = _unquote(quoted)
    path = _resolve_path(name, fields)
    if sign in _ORDERS:
        return _compile_order(path, sign, value)
    pattern = _escape_all_but_star(value.lower())
    if sign == "!=":
        return Condition(
            lambda job: not _matches(_value_at(job, path), pattern),
            bounds=_bounds_of_others(path, pattern),
            bounds_of_others=_bounds_of_matches(path, pattern),
        )
    return Condition(
        lambda job: _matches(_value_at(job, path), pattern),
        bounds=_bounds_of_matches(path, pattern),
        bounds_of_others=_bounds_of_others(path, pattern),
    )


def _unquote(value: str) -> str:
    """Return a value without its quotes and backslashes; a value without quotes as it is."""
    is_quoted = value[0] in "\"'" and len(value) > 1
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if is_quoted else value


def _escape_all_but_star(text: str) -> str:
    """Return the pattern of `fnmatch` in which only `*` is a wildcard: `a?b*` → `a[?]b*`."""
    return re.sub(r"([\[?])", r"[\1]", text)


def _bounds_of_matches(path: tuple[str, ...], pattern: str) -> Bounds:
    """Return the bounds of the jobs whose field is like the pattern."""
    if path == ("state",):
        return Bounds(has_state=lambda word: _matches(word, pattern))
    if "*" in pattern or "[" in pattern:  # no index finds parts of a text
        return Bounds()
    if path in _NAMES:
        return Bounds(name=pattern)
    if path[0] == "labels" and len(path) == _LABEL_STEPS:
        return Bounds(labels=frozenset({Label(path[1], pattern)}))
    return Bounds()


def _bounds_of_others(path: tuple[str, ...], pattern: str) -> Bounds:
    """Return the bounds of the jobs whose field is not like the pattern."""
    if path == ("state",):
        return Bounds(has_state=lambda word: not _matches(word, pattern))
    return Bounds()


def _compile_order(path: tuple[str, ...], sign: str, value: str) -> Condition:
    compare = _ORDERS[sign]
    limit = _parse_number(value)
    if limit is None:
        problem = (
            f"compares {'.'.join(path)} with {value[:_VALUE_CHARS_MAX]!r}, which is neither a time"
            " nor a number"
        )
        raise errors.invalid_argument("filter", problem)

    def holds(job: Mapping[str, object]) -> bool:
        value = _value_at(job, path)
        is_short = isinstance(value, int | float | str) and len(str(value)) <= NUMBER_CHARS_MAX
        number = _parse_number(str(value)) if is_short else None
        return number is not None and compare(number, limit)

    if path != ("createTime",) or not math.isfinite(limit):
        return Condition(holds)
    older, newer = Bounds(until_s=limit + _SHOWN_TO_S), Bounds(since_s=limit)
    if sign in ("<", "<="):
        return Condition(holds, bounds=older, bounds_of_others=newer)
    return Condition(holds, bounds=newer, bounds_of_others=older)


def _resolve_path(name: str, fields: Collection[str]) -> tuple[str, ...]:
    """Split a field name.

    A label's key stays as the user wrote it; all other names are the API's.
    """
    head, _, rest = name.partition(".")
    if head not in fields:
        head = to_camel(head)
    if head not in fields:
        problem = (
            f"names the field {name}, which a job does not have; it has {', '.join(sorted(fields))}"
        )
        raise errors.invalid_argument("filter", problem)
    if not rest:
        return (head,)
    if head == "labels":
        return (head, rest)
    return (head, *rest.split("."))


def _value_at(job: object, path: tuple[str, ...]) -> object:
    """Return the value of a field; None if the job does not have it."""
    value = job
    for step in path:
        if not isinstance(value, Mapping):
            return None
        is_snake_case = step not in value and "_" in step
        value = value.get(to_camel(step) if is_snake_case else step)
    return value


def _matches(value: object, pattern: str) -> bool:
    """Return whether the value is like the pattern; for a mapping whether a key is, for a list
    whether an item is.
    """
    if value is None:
        return False
    if isinstance(value, Mapping | list):
        return any(_matches(item, pattern) for item in value)
    return fnmatch.fnmatchcase(str(value).lower(), pattern)


def _parse_number(text: str) -> float | None:
    """Parse a number, or a time in RFC 3339 as seconds. A time without a zone is in UTC."""
    try:
        return float(text)
    except ValueError:
        pass  # no number, but perhaps a time
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
