"""Partial responses: the system parameter `fields`, or the header `X-Goog-FieldMask`.

    items/*/instances(name,labels,metadata/fingerprint),nextPageToken

A path selects a field and everything below it. `*` selects every key of a map. Where a path leads
through a list, the rest of the path applies to each item. Source: "Working with partial responses"
and "System parameters" of Google's API documentation. Google refuses fields that a resource cannot
have; this emulator only refuses malformed masks.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final, cast

from lark import Lark, LarkError, Token, Transformer, v_args
from werkzeug.wrappers import Request

from trainmaster_emulators.machines.compute_errors import Json, invalid

Mask = dict[str, "Mask"]
"""Selected fields; an empty mask selects everything below."""
_GRAMMAR: Final = r"""
    fields: path ("," path)*
    path: NAME (("/" | ".") NAME)* ["(" fields ")"]
    NAME: /[A-Za-z0-9_$]+|\*/
"""


def select_fields(request: Request, body: Json) -> Json:
    """Return what the request asks for. Raises ApiError if its mask is malformed."""
    text = (
        request.args.get("fields")
        or request.args.get("$fields")
        or request.headers.get("X-Goog-FieldMask")
    )
    selected: Json = select(body, parse_mask(text) if text else {})
    return selected


@lru_cache(maxsize=100)
def parse_mask(text: str) -> Mask:
    """Parse a mask. Raises ApiError if it is malformed."""
    try:
        return cast(Mask, _parser().parse(text.replace(" ", "")))
    except LarkError:
        raise invalid("fields", text, "Invalid field selection.") from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", start="fields", transformer=_ToMask())


@v_args(inline=True)
class _ToMask(Transformer[Token, Mask]):
    """Builds the mask while the text is parsed.

    Each method handles the grammar rule of its name.
    """

    def fields(self, *paths: Mask) -> Mask:
        mask: Mask = {}
        for path in paths:
            _merge(mask, path)
        return mask

    def path(self, *parts: Token | Mask | None) -> Mask:
        *names, nested = parts
        mask: Mask = nested if isinstance(nested, dict) else {}
        for name in reversed(names):
            mask = {str(name): mask}
        return mask


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
