"""Checks of responses against the discovery documents in Google's Python client."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_DOCUMENTS = {
    "ml": "ml.v1.json",
    "aiplatform": "aiplatform.v1.json",
    "monitoring": "monitoring.v3.json",
}


@cache
def document(api: str) -> dict[str, Any]:
    path = files("googleapiclient") / "discovery_cache" / "documents" / _DOCUMENTS[api]
    parsed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return parsed


def faults(api: str, schema: str, value: object, verbatim: Collection[str] = ()) -> list[str]:
    """Return what the schema does not allow.

    Fields named in `verbatim` are the user's own and may have any value.
    """
    return list(_object(api, document(api)["schemas"][schema], value, schema, verbatim))


def _object(
    api: str, schema: dict[str, Any], value: object, at: str, verbatim: Collection[str]
) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at} is not an object: {value!r}"
        return
    known = schema.get("properties", {})
    for name, item in value.items():
        inner = known.get(name, schema.get("additionalProperties"))
        if inner is None:
            yield f"{at} has no {name}"
        elif name not in verbatim:
            yield from _value(api, inner, item, f"{at}.{name}", verbatim)


def _value(
    api: str, schema: dict[str, Any], value: object, at: str, verbatim: Collection[str]
) -> Iterator[str]:
    if "$ref" in schema:
        yield from _object(api, document(api)["schemas"][schema["$ref"]], value, at, verbatim)
    elif schema["type"] == "object":
        yield from _object(api, schema, value, at, verbatim)
    elif schema["type"] == "array":
        if not isinstance(value, list):
            yield f"{at} is not a list: {value!r}"
            return
        for index, item in enumerate(value):
            yield from _value(api, schema["items"], item, f"{at}[{index}]", verbatim)
    elif not _is(schema, value):
        yield f"{at} is not of type {schema['type']} {schema.get('format', '')}: {value!r}"


def _is(schema: dict[str, Any], value: object) -> bool:
    kind = schema["type"]
    if kind != "string":
        return (
            kind == "any"
            or type(value) in {"boolean": (bool,), "number": (int, float), "integer": (int,)}[kind]
        )
    if not isinstance(value, str) or value not in schema.get("enum", [value]):
        return False
    match schema.get("format"):
        case "int64":
            return re.fullmatch(r"-?\d+", value) is not None
        case "google-datetime":
            return _TIME.fullmatch(value) is not None
        case "byte":
            return _is_base64(value)
    return True


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True
