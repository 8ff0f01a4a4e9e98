"""The filter of a list: `jobId:rnn* AND state:FAILED`, `NOT display_name="x"`, `labels.team:* OR create_time>"2026-…"`.

    expression = factor {[AND] factor}    factor = term {OR term}    term = [NOT | -] ( (expression) | comparison )

It is compared with the job as it is shown, by its field names in camelCase or snake_case. `=` and `:` are the same word
in any case, with `*` for anything; `!=` is not that; `<` and its kin compare times and numbers. What a job does not
have is like nothing. Source: the filter examples of both APIs' discovery documents, and AIP-160 for OR before AND.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from pydantic.alias_generators import to_camel

from shared.api import errors

CHARS_MAX: Final = 2_000
DEPTH_MAX: Final = 20

Predicate = Callable[[Mapping[str, object]], bool]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<mark>[()])
      |(?P<field>[A-Za-z_][\w.-]*)\s*(?P<op>!=|<=|>=|[=<>:])\s*(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s()]+)
      |(?P<word>AND|OR|NOT)(?=[\s(])
      |(?P<minus>-)(?=\S))""",
    re.VERBOSE,
)
_ORDERED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def read(text: str, fields: Collection[str]) -> Predicate:
    """`fields`: the top-level names that a shown job can have. Nothing given: everything is desired."""
    if not text.strip():
        return lambda _: True
    if len(text) > CHARS_MAX:
        raise errors.invalid("filter", f"has more than {CHARS_MAX} characters")
    return _Reader(text, fields).whole()


class _Reader:
    def __init__(self, text: str, fields: Collection[str]) -> None:
        self._fields = fields
        self._tokens = _tokens(text)
        self._at = 0

    def whole(self) -> Predicate:
        predicate = self._expression(0)
        if self._at < len(self._tokens):
            raise _wrong(f"has {self._tokens[self._at][0]!r} where it should end")
        return predicate

    def _expression(self, depth: int) -> Predicate:
        if depth > DEPTH_MAX:
            raise _wrong(f"is nested more than {DEPTH_MAX} deep")
        every = [self._factor(depth)]
        while self._at < len(self._tokens) and self._tokens[self._at][0] != ")":
            self._take("AND")
            every.append(self._factor(depth))
        return lambda job: all(each(job) for each in every)

    def _factor(self, depth: int) -> Predicate:
        any_of = [self._term(depth)]
        while self._take("OR"):
            any_of.append(self._term(depth))
        return lambda job: any(each(job) for each in any_of)

    def _term(self, depth: int) -> Predicate:
        negated = self._take("NOT") or self._take("-")
        if self._take("("):
            term = self._expression(depth + 1)
            if not self._take(")"):
                raise _wrong("has a ( without its )")
        else:
            term = self._comparison()
        return (lambda job: not term(job)) if negated else term

    def _comparison(self) -> Predicate:
        if self._at >= len(self._tokens) or self._tokens[self._at][1] is None:
            raise _wrong("needs a comparison, such as state:FAILED, in every place")
        _, comparison = self._tokens[self._at]
        assert comparison is not None  # noqa: S101 - just looked at; for the type checker
        self._at += 1
        name, sign, value = comparison
        path = _path(name, self._fields)
        if sign in _ORDERED:
            return _ordered(path, _ORDERED[sign], value)
        pattern = value.lower()
        if sign == "!=":
            return lambda job: not _is_like(_found(job, path), pattern)
        return lambda job: _is_like(_found(job, path), pattern)

    def _take(self, word: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == (word, None):
            self._at += 1
            return True
        return False


def _tokens(text: str) -> list[tuple[str, tuple[str, str, str] | None]]:
    """Each as it is written, and what a comparison compares."""
    tokens: list[tuple[str, tuple[str, str, str] | None]] = []
    at, text = 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong(f"cannot be read from {text[at : at + 40]!r} on")
        at = match.end()
        if match["field"]:
            tokens.append((match[0].strip(), (match["field"], match["op"], _unquoted(match["value"]))))
        else:
            tokens.append((match[0].strip(), None))
    return tokens


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" and len(value) > 1 else value


def _path(name: str, fields: Collection[str]) -> tuple[str, ...]:
    """A label's key is as the user wrote it; all other names are the API's."""
    head, _, rest = name.partition(".")
    head = head if head in fields else to_camel(head)
    if head not in fields:
        raise _wrong(f"names {name}, and a job has {', '.join(sorted(fields))}")
    steps = (rest,) if head == "labels" else tuple(rest.split("."))
    return (head, *steps) if rest else (head,)


def _found(job: object, path: tuple[str, ...]) -> object:
    value = job
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step, value.get(to_camel(step)) if "_" in step else None)
    return value


def _is_like(value: object, pattern: str) -> bool:
    if value is None:
        return False
    if isinstance(value, Mapping | list):  # a mapping has its keys, a list its items
        return any(_is_like(each, pattern) for each in value)
    return fnmatch.fnmatchcase(_text(value).lower(), _literal(pattern))


def _literal(pattern: str) -> str:
    """Only `*` is special."""
    return re.sub(r"([\[?])", r"[\1]", pattern)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ordered(path: tuple[str, ...], compare: Callable[[float, float], bool], value: str) -> Predicate:
    limit = _number(value)
    if limit is None:
        raise _wrong(f"compares {'.'.join(path)} with {value[:60]!r}, which is neither a time nor a number")

    def holds(job: Mapping[str, object]) -> bool:
        found = _found(job, path)
        number = None if found is None else _number(str(found))
        return number is not None and compare(number, limit)

    return holds


def _number(text: str) -> float | None:
    """A number, or a time in RFC 3339 (without a zone: UTC) as seconds."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _wrong(problem: str) -> errors.ApiError:
    return errors.invalid("filter", problem)
