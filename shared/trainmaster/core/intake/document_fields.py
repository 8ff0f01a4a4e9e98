"""Fields of a job document that have a given value. Their paths are spelled as in the document."""

from __future__ import annotations

import json
from collections.abc import Iterator


def field_with(value: str, spec_json: str, otherwise: str) -> str:
    """Return the path of the first field that equals `value`, such as `trainingInput.packageUris[0]`; `otherwise` if
    none does."""
    return next(_fields_with(value, json.loads(spec_json), ""), otherwise)


def _fields_with(value: str, part: object, path: str) -> Iterator[str]:
    if part == value:
        yield path
    elif isinstance(part, dict):
        for name, item in part.items():
            yield from _fields_with(value, item, f"{path}.{name}" if path else name)
    elif isinstance(part, list):
        for index, item in enumerate(part):
            yield from _fields_with(value, item, f"{path}[{index}]")
