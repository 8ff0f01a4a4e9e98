"""The syntax of filters, by lark: the rules that Google's filter languages share, and those of this
API's list filters.

All these languages have AND, which may be left out, OR, NOT, `-` for NOT, and parentheses. They
differ in comparisons, and in what `a AND b OR c` means (`Tighter`).

The transformer combines predicates while lark parses, so that no syntax tree is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import reduce
from typing import Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from trainmaster.api.list_bounds import Bounds, Condition

NESTING_MAX: Final = 20
"""Levels of parentheses: evaluating them recurses."""
_UNREAD_CHARS_MAX: Final = 40
"""Characters that an error repeats of the part that could not be read."""


class Tighter(Enum):
    """The operator that binds more tightly than the other."""

    AND = auto()
    """`a AND b OR c` is `(a AND b) OR c`. Source: the `filter` parameter in Compute's reference."""
    OR = auto()
    """`a AND b OR c` is `a AND (b OR c)`. Source: AIP-160; the Logging query language."""


_LOGIC: Final = {
    Tighter.AND: """
        ?start: disjunction
        ?disjunction: conjunction (_OR conjunction)*
        ?conjunction: _term (_AND? _term)*
        group: "(" disjunction ")"
    """,
    Tighter.OR: """
        ?start: conjunction
        ?conjunction: disjunction (_AND? disjunction)*
        ?disjunction: _term (_OR _term)*
        group: "(" conjunction ")"
    """,
}
_TERMS: Final = """
    _term: negation | _operand
    _operand: group | comparison
"""


def logic_rules(tighter: Tighter) -> str:
    """Return the shared rules of a grammar.

    A language adds the rules `negation` (of a `_term`, or only of an `_operand`) and `comparison`,
    and the terminals `_AND`, `_OR`, `_NOT` and `_MINUS`.
    """
    return _LOGIC[tighter] + _TERMS


_GRAMMAR: Final = (
    logic_rules(Tighter.OR)
    + r"""
    negation: (_NOT | _MINUS) _operand
    comparison: COMPARISON

    // Lark joins the texts of the three: each alternative needs its parentheses.
    COMPARISON.2: FIELD OPERATOR VALUE
    FIELD: /[A-Za-z_][\w.-]*\s*/
    OPERATOR: /(!=|<=|>=|[=<>:])\s*/
    VALUE: /("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s()]+)/
    _AND: /AND(?=[\s(])/
    _OR: /OR(?=[\s(])/
    _NOT: /NOT(?=[\s(])/
    _MINUS: /-(?=\S)/
    %ignore /\s+/
"""
)


class FilterSyntaxError(Exception):
    """The filter cannot be parsed. The text completes a sentence whose subject is the filter."""


def parser_of(compile_comparison: Callable[[str], Condition]) -> Lark:
    """Return a parser of filters, which takes longer to build than to use.

    `compile_comparison` turns a comparison, such as `state:FAILED`, into its condition.
    """
    return Lark(_GRAMMAR, parser="lalr", transformer=_Conditions(compile_comparison))


def parse(text: str, parser: Lark) -> Condition:
    """Return the condition that a filter describes. Raises FilterSyntaxError."""
    try:
        condition: object = parser.parse(text)
    except UnexpectedCharacters as error:
        unread = text[error.pos_in_stream :]
        raise FilterSyntaxError(f"cannot be read from {unread[:_UNREAD_CHARS_MAX]!r} on") from None
    except UnexpectedToken as error:
        is_end = error.token.type == "$END"
        unread = text[error.pos_in_stream :]
        place = "its end" if is_end else repr(unread[:_UNREAD_CHARS_MAX])
        raise FilterSyntaxError(
            f"needs a comparison, such as state:FAILED, or a parenthesis at {place}"
        ) from None
    if not isinstance(condition, Condition):
        raise TypeError(f"not a condition: {condition!r}")
    return condition


class _Conditions(Transformer[Token, Condition]):
    """Methods are named after the rules of the grammar."""

    def __init__(self, compile_comparison: Callable[[str], Condition]) -> None:
        super().__init__()
        self._compile = compile_comparison

    def comparison(self, children: list[Token]) -> Condition:
        return self._compile(str(children[0]))

    def group(self, children: list[Condition]) -> Condition:
        (inner,) = children
        if inner.nesting >= NESTING_MAX:
            raise FilterSyntaxError(f"is nested more than {NESTING_MAX} levels deep")
        return replace(inner, nesting=inner.nesting + 1)

    def negation(self, children: list[Condition]) -> Condition:
        (inner,) = children
        return Condition(
            lambda job: not inner.holds(job),
            bounds=inner.bounds_of_others,
            bounds_of_others=inner.bounds,
            nesting=inner.nesting,
        )

    def disjunction(self, children: list[Condition]) -> Condition:
        return Condition(
            lambda job: any(child.holds(job) for child in children),
            bounds=reduce(Bounds.either, (child.bounds for child in children)),
            bounds_of_others=reduce(Bounds.both, (child.bounds_of_others for child in children)),
            nesting=_deepest(children),
        )

    def conjunction(self, children: list[Condition]) -> Condition:
        return Condition(
            lambda job: all(child.holds(job) for child in children),
            bounds=reduce(Bounds.both, (child.bounds for child in children)),
            bounds_of_others=reduce(Bounds.either, (child.bounds_of_others for child in children)),
            nesting=_deepest(children),
        )


def _deepest(children: list[Condition]) -> int:
    return max(child.nesting for child in children)
