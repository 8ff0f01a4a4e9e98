"""Fields of a job document that have a given value, and versions of the code that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_CODE_FIELDS: Final = ("packageUris", "package_uris", "imageUri", "image_uri")


def field_with(value: str, spec_json: str, otherwise: str) -> str:
    """Return the path of the first field that equals `value`, such as
    `trainingInput.packageUris[0]`; `otherwise` if none does.
    """
    return next(_fields_with(value, json.loads(spec_json), path=""), otherwise)


def _fields_with(value: str, part: object, path: str) -> Iterator[str]:
    if part == value:
        yield path
    elif isinstance(part, dict):
        for name, item in part.items():
            yield from _fields_with(value, item, f"{path}.{name}" if path else name)
    elif isinstance(part, list):
        for index, item in enumerate(part):
            yield from _fields_with(value, item, f"{path}[{index}]")


def with_versions(document: Any, versions: Mapping[str, str], *, is_code: bool = False) -> Any:
    """Return the document with the versions of its packages and container images, so that a
    repetition runs the same.

    `versions`: see `Plan.versions`. `is_code`: the document is the value of a field that names
    them.
    """
    if isinstance(document, dict):
        return {
            name: with_versions(item, versions, is_code=is_code or name in _CODE_FIELDS)
            for name, item in document.items()
        }
    if isinstance(document, list):
        return [with_versions(item, versions, is_code=is_code) for item in document]
    return versions.get(document, document) if is_code and isinstance(document, str) else document
