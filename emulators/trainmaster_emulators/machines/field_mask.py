"""Partial responses: the system parameter `fields`, or the header `X-Goog-FieldMask`.

    items/*/instances(name,labels,metadata/fingerprint),nextPageToken

A path selects a field and everything below it. `*` selects every key of a map. Where a path leads through a list, the
rest of the path applies to each item. Source: "Working with partial responses" and "System parameters" of Google's API
documentation. Google refuses fields that a resource cannot have; this emulator only refuses malformed masks.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, cast

from lark import Lark, LarkError, Token, Transformer, v_args
from werkzeug.wrappers import Request

from trainmaster_emulators.machines.api_errors import Json, invalid

Mask = dict[str, "Mask"]
"""Selected fields; an empty mask selects everything below."""
_GRAMMAR: Final = r"""
    paths: path ("," path)*
    path: NAME [_SEPARATOR path | "(" paths ")"]
    NAME: /[A-Za-z0-9_$]+|[*]/
    _SEPARATOR: /[\/.]/
    %ignore " "
"""


def select_fields(request: Request, body: Json) -> Json:
    """Return what the request asks for. Raises ApiError if its mask is malformed."""
    text = request.args.get("fields") or request.args.get("$fields") or request.headers.get("X-Goog-FieldMask") or "*"
    selected: Json = select(body, parse_mask(text))
    return selected


def parse_mask(text: str) -> Mask:
    """Parse a mask. Raises ApiError if it is malformed."""
    try:
        return cast(Mask, _parser().parse(text))
    except LarkError:
        raise invalid("fields", text, "Invalid field selection.") from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", start="paths", transformer=_ToMask())


@v_args(inline=True)
class _ToMask(Transformer[Token, Mask]):
    """Builds the mask while it is parsed. Each method handles the grammar rule of its name."""

    def paths(self, *masks: Mask) -> Mask:
        merged: Mask = {}
        for mask in masks:
            _merge(merged, mask)
        return merged

    def path(self, name: Token, rest: Mask | None = None) -> Mask:
        return {str(name): rest or {}}


def _merge(mask: Mask, other: Mask) -> None:
    for name, nested in other.items():
        _merge(mask.setdefault(name, {}), nested)


def select(value: Any, mask: Mask) -> Any:
    """Return the part of the value that the mask selects."""
    if not mask:
        return value
    if isinstance(value, list):
        return [select(item, mask) for item in value]
    if not isinstance(value, dict):
        return value
    if "*" in mask:
        return {key: select(item, mask["*"]) for key, item in value.items()}
    return {key: select(item, mask[key]) for key, item in value.items() if key in mask}
