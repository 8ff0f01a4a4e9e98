"""Python's values as Firestore's REST API writes them, and back: `7` is `{"integerValue": "7"}`.

Times are UTC to the microsecond, which is as precise as Firestore stores them.
Source: `Value` in Firestore's REST reference (https://cloud.google.com/firestore/docs/reference/rest/v1/Value).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Value = Mapping[str, Any]


def encoded(value: object) -> Value:  # noqa: PLR0911 - a kind of value a line
    """Raises TypeError for what Firestore cannot hold, or we never store."""
    match value:
        case None:
            return {"nullValue": None}
        case bool():  # before int, of which it is one
            return {"booleanValue": value}
        case int():
            return {"integerValue": str(int(value))}  # 64 bits: more than JSON's numbers hold everywhere
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": str.__str__(value)}
        case datetime():
            return {"timestampValue": _written(value)}
        case list() | tuple():
            return {"arrayValue": {"values": [encoded(each) for each in value]}}
        case dict():
            return {"mapValue": {"fields": {str(name): encoded(each) for name, each in value.items()}}}
    raise TypeError(f"{type(value).__name__} is nothing that we store in Firestore")


def decoded(value: Value) -> Any:  # noqa: PLR0911 - as above
    """Raises TypeError for a kind that we never store."""
    ((kind, said),) = value.items()
    match kind:
        case "nullValue":
            return None
        case "integerValue":
            return int(said)
        case "booleanValue" | "stringValue":
            return said
        case "doubleValue":
            return float(said)  # NaN and Infinity are texts
        case "timestampValue":
            return datetime.fromisoformat(said).astimezone(UTC)
        case "arrayValue":
            return [decoded(each) for each in said.get("values", ())]
        case "mapValue":
            return {name: decoded(each) for name, each in said.get("fields", {}).items()}
    raise TypeError(f"{kind} is nothing that we store in Firestore")


def _written(at: datetime) -> str:
    if at.tzinfo is None:
        raise TypeError(f"{at} is of no time zone")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
