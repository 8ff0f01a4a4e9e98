"""List filters and paging.

    filter   := terms (OR terms)*            terms := factor ((AND)? factor)*
    factor   := [NOT | -] (comparison | "(" filter ")")
    comparison := field operator literal     operator := = | != | : | > | >= | < | <= | eq | ne

`eq` and `ne` take an RE2 expression that must match the whole value (what gcloud rewrites its own filters to);
`=` compares the text, `:` asks whether the text is contained, `field:*` whether the field is there. Where a path leads
through a list, one matching element is enough. Source: the `filter` parameter in Compute's reference, and
`googlecloudsdk/api_lib/compute/filter_rewrite.py`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from emulators.compute.api_errors import ApiError, Json, invalid

PAGE_SIZE_MAX: Final = 500
"""Source: Compute's reference, maxResults: 0 to 500, default 500."""

Predicate = Callable[[Json], bool]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
        |(?P<operator>!=|>=|<=|=|:|>|<)
        |(?P<paren>[()])
        |(?P<word>[^\s()"'=!<>:]+(?::(?=//)[^\s()"'=!<>]*)?))""",
    re.VERBOSE,
)
_OPERATORS: Final = frozenset({"=", "!=", ":", ">", ">=", "<", "<=", "eq", "ne"})


def parse_filter(text: str) -> Predicate:
    """A predicate on a resource's JSON. An empty filter lets everything through; a wrong one is a 400."""
    return _Parser(text).parse() if text.strip() else lambda _: True


def page(
    items: Sequence[tuple[str, Json]], max_results: str | None, token: str | None
) -> tuple[list[Json], str | None]:
    """One page of `items`, which carry the keys they are ordered by, and the next page's token."""
    size = PAGE_SIZE_MAX if max_results is None else _page_size(max_results)
    after = None if not token else _decode(token)
    rest = [(key, item) for key, item in items if after is None or key > after]
    chosen = rest[:size]
    following = _encode(chosen[-1][0]) if chosen and len(rest) > size else None
    return [item for _, item in chosen], following


def _page_size(text: str) -> int:
    if not text.isdigit() or int(text) > PAGE_SIZE_MAX:
        raise invalid("maxResults", text, f"Must be a number between 0 and {PAGE_SIZE_MAX}.")
    return int(text)


def _encode(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _decode(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        raise invalid("pageToken", token, "The page token is not one of this list's.") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.at = 0

    def _tokens(self) -> Iterator[tuple[str, str]]:
        position = 0
        while position < len(self.text.rstrip()):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._error()
            kind = str(match.lastgroup)
            value = match[kind]
            if kind == "quoted":
                # Only the quote itself is escaped: a backslash before anything else belongs to a regular expression.
                value = re.sub(r'\\(["\'])', r"\1", value[1:-1])
            yield kind, value
            position = match.end()

    def _error(self) -> ApiError:
        return invalid("filter", self.text, "Invalid list filter expression.")

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self.at += 1
        return token

    def parse(self) -> Predicate:
        found = self._either()
        if self._peek()[0] != "end":
            raise self._error()
        return found

    def _either(self) -> Predicate:
        choices = [self._all()]
        while self._peek() == ("word", "OR"):
            self._next()
            choices.append(self._all())
        return choices[0] if len(choices) == 1 else lambda item: any(choice(item) for choice in choices)

    def _all(self) -> Predicate:
        factors = [self._factor()]
        while self._peek() not in (("end", ""), ("paren", ")"), ("word", "OR")):
            if self._peek() == ("word", "AND"):
                self._next()
            factors.append(self._factor())
        return factors[0] if len(factors) == 1 else lambda item: all(factor(item) for factor in factors)

    def _factor(self) -> Predicate:
        kind, value = self._next()
        if (kind, value) in (("word", "NOT"), ("word", "-")):
            inner = self._factor()
            return lambda item: not inner(item)
        if (kind, value) == ("paren", "("):
            inner = self._either()
            if self._next() != ("paren", ")"):
                raise self._error()
            return inner
        if kind != "word":
            raise self._error()
        if value.startswith("-") and len(value) > 1:
            positive = self._comparison(value[1:])
            return lambda item: not positive(item)
        return self._comparison(value)

    def _comparison(self, path: str) -> Predicate:
        _, operator = self._next()
        kind, literal = self._next()
        if operator not in _OPERATORS or kind not in ("word", "quoted"):
            raise self._error()
        try:
            test = _test(operator, literal)
        except re.error:
            raise self._error() from None
        steps = tuple(path.split("."))
        negative = operator in ("!=", "ne")

        def matches(item: Json) -> bool:
            values = [_text(value) for value in _values(item, steps)]
            return all(map(test, values)) if negative else any(map(test, values))

        return matches


def _test(operator: str, literal: str) -> Callable[[str], bool]:
    match operator:
        case "eq" | "ne":
            pattern = re.compile(literal)
            desired = operator == "eq"
            return lambda value: (pattern.fullmatch(value) is not None) is desired
        case "=":
            return lambda value: value == literal
        case "!=":
            return lambda value: value != literal
        case ":":
            return (lambda _: True) if literal == "*" else (lambda value: literal.lower() in value.lower())
        case _:
            return lambda value: _compare(value, operator, literal)


def _compare(value: str, operator: str, literal: str) -> bool:
    left: Any = value
    right: Any = literal
    try:
        left, right = float(value), float(literal)
    except ValueError:
        left, right = value, literal  # text: RFC 3339 times of one zone order as they read
    match operator:
        case ">":
            return bool(left > right)
        case ">=":
            return bool(left >= right)
        case "<":
            return bool(left < right)
        case _:
            return bool(left <= right)


def _values(item: Any, steps: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(item, list):
        for element in item:
            yield from _values(element, steps)
    elif not steps:
        yield item
    elif isinstance(item, dict):
        for length in range(len(steps), 0, -1):  # a label's own key may hold dots
            key = ".".join(steps[:length])
            if key in item:
                yield from _values(item[key], steps[length:])
                return


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
