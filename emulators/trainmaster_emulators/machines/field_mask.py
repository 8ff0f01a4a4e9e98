"""Partial responses: the system parameter `fields`, or the header `X-Goog-FieldMask`.

    items/*/instances(name,labels,metadata/fingerprint),nextPageToken

A path selects a field and everything below it. `*` selects every key of a map. Where a path leads through a list, the
rest of the path applies to each item. Source: "Working with partial responses" and "System parameters" of Google's API
documentation. Google refuses fields that a resource cannot have; this emulator only refuses malformed masks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from werkzeug.wrappers import Request

from trainmaster_emulators.machines.api_errors import Json, invalid

Mask = dict[str, "Mask"]
"""Selected fields; an empty mask selects everything below."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_$]+|[*/.(),]")


def select_fields(request: Request, body: Json) -> Json:
    """Return what the request asks for. Raises ApiError if its mask is malformed."""
    text = request.args.get("fields") or request.args.get("$fields") or request.headers.get("X-Goog-FieldMask") or "*"
    selected: Json = select(body, parse_mask(text))
    return selected


def parse_mask(text: str) -> Mask:
    """Parse a mask. Raises ApiError if it is malformed."""
    tokens = _TOKEN.findall(text.replace(" ", ""))
    if "".join(tokens) != text.replace(" ", ""):
        raise invalid("fields", text, "Invalid field selection.")
    remaining = iter([*tokens, ""])
    mask, end = _parse_list(remaining, text)
    if end:
        raise invalid("fields", text, "Invalid field selection.")
    return mask


def _parse_list(tokens: Iterator[str], text: str) -> tuple[Mask, str]:
    """Return the mask of a list of paths, and the token that ends it."""
    mask: Mask = {}
    while True:
        names, end = _parse_path(tokens, text)
        nested: Mask = {}
        if end == "(":
            nested, end = _parse_list(tokens, text)
            if end != ")":
                raise invalid("fields", text, "Invalid field selection.")
            end = next(tokens, "")
        target = mask
        for name in names:
            target = target.setdefault(name, {})
        _merge(target, nested)
        if end != ",":
            return mask, end


def _merge(mask: Mask, other: Mask) -> None:
    for name, nested in other.items():
        _merge(mask.setdefault(name, {}), nested)


def _parse_path(tokens: Iterator[str], text: str) -> tuple[list[str], str]:
    names: list[str] = []
    while True:
        name = next(tokens, "")
        if not name or name in "/.(),":
            raise invalid("fields", text, "Invalid field selection.")
        names.append(name)
        separator = next(tokens, "")
        if separator not in ("/", "."):
            return names, separator


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
