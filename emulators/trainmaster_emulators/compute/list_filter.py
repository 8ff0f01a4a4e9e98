"""The `filter` parameter of Compute's list calls, as a predicate on a resource's JSON.

`eq` and `ne` take an RE2 expression that must match the whole value; gcloud rewrites its own
filters to them. `=` compares the text, `:` searches text without regard to case, and `field:*`
tests whether the field exists. A path that leads through a list matches if one element does. AND
may be omitted, and binds more tightly than OR. Source: the `filter` parameter in Compute's
reference, and `googlecloudsdk/api_lib/compute/filter_rewrite.py`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, cast

from lark import Lark, LarkError, Token, Transformer, v_args

from trainmaster.api.filter_grammar import Tighter, logic_rules
from trainmaster_emulators.machines.compute_errors import Json, invalid

Predicate = Callable[[Json], bool]

_GRAMMAR: Final = (
    logic_rules(Tighter.AND)
    + r"""
    negation: (_NOT | _MINUS) _term
    comparison: WORD OPERATOR literal
    literal: WORD | QUOTED

    _AND: "AND"
    _OR: "OR"
    _NOT: "NOT"
    _MINUS.2: "-"
    OPERATOR: /!=|>=|<=|=|:|>|<|(?:eq|ne)(?![^\s()"'=!<>:])/
    QUOTED: /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/
    WORD: /[^\s()"'=!<>:]+(?::(?=\/\/)[^\s()"'=!<>]*)?/
    %import common.WS
    %ignore WS
"""
)
_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def parse_filter(text: str) -> Predicate:
    """Return the predicate of a filter.

    An empty filter matches everything. Raises ApiError (400).
    """
    if not text.strip():
        return lambda _: True
    try:
        return cast(Predicate, _parser().parse(text))
    except (LarkError, re.error):
        raise invalid("filter", text, "Invalid list filter expression.") from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", transformer=_ToPredicate())


@v_args(inline=True)
class _ToPredicate(Transformer[Token, Predicate]):
    """Builds the predicate while the filter is parsed.

    Each method handles the grammar rule of its name.
    """

    def disjunction(self, *parts: Predicate) -> Predicate:
        return lambda resource: any(part(resource) for part in parts)

    def conjunction(self, *parts: Predicate) -> Predicate:
        return lambda resource: all(part(resource) for part in parts)

    def group(self, part: Predicate) -> Predicate:
        return part

    def negation(self, part: Predicate) -> Predicate:
        return lambda resource: not part(resource)

    def comparison(self, field: Token, operator: Token, literal: str) -> Predicate:
        test = _value_test(str(operator), literal)
        steps = tuple(field.split("."))
        combine = all if operator in ("!=", "ne") else any
        return lambda resource: combine(test(_as_text(value)) for value in _values(resource, steps))

    def literal(self, token: Token) -> str:
        if token.type == "WORD":
            return str(token)
        # Only the quotes are escaped: a backslash before another character belongs to a regular
        # expression.
        return re.sub(r'\\(["\'])', r"\1", token[1:-1])


def _value_test(operator: str, literal: str) -> Callable[[str], bool]:
    match operator:
        case "eq" | "ne":
            pattern = re.compile(literal)
            return lambda value: (pattern.fullmatch(value) is not None) is (operator == "eq")
        case "=":
            return lambda value: value == literal
        case "!=":
            return lambda value: value != literal
        case ":" if literal == "*":
            return lambda _: True
        case ":":
            return lambda value: literal.lower() in value.lower()
        case _:
            return lambda value: _is_ordered(value, operator, literal)


def _is_ordered(value: str, operator: str, literal: str) -> bool:
    """Return whether the comparison holds, for numbers or else for text.

    RFC 3339 times in one zone sort like text.
    """
    try:
        return _ORDER[operator](float(value), float(literal))
    except ValueError:
        return _ORDER[operator](value, literal)


def _values(node: Any, steps: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values at a path.

    A key may itself contain dots, as label keys do; the longest key wins.
    """
    if isinstance(node, list):
        for element in node:
            yield from _values(element, steps)
    elif not steps:
        yield node
    elif isinstance(node, dict):
        for length in range(len(steps), 0, -1):
            key = ".".join(steps[:length])
            if key in node:
                yield from _values(node[key], steps[length:])
                return


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
