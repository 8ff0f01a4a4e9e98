"""What a discovery document does not allow in one exchange: verb, path, query, request and
response.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from tests.support.conformance.documents import OWN_PREFIXES, Json, Route, document, find

_SYSTEM_PARAMETERS: Final = {"$alt", "$apiVersion", "$fields"}
_TOLERATED: Final = {
    ("logging.entries.write", "dry_run"),  # Google's own client sends this name
    ("tpu.projects.locations.nodes.patch", "update_mask"),
    ("tpu.projects.locations.nodes.create", "node_id"),
    ("tpu.projects.locations.queuedResources.create", "queued_resource_id"),
}
"""Method and parameter or field: names that Google's clients send and Google's servers accept."""
_ANY: Final = re.compile(r".*", re.DOTALL)
_FORMATS: Final = {
    "int64": (re.compile(r"-?\d+"), "is not int64"),
    "uint64": (re.compile(r"\d+"), "is not uint64"),
    "google-duration": (re.compile(r"-?\d+(\.\d{1,9})?s"), "is not a duration"),
    "google-datetime": (
        re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"),
        "is not a time",
    ),
}
"""Format of a text → its pattern, and the fault.

Source: "Type and format summary" of Google's API client libraries.
"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call and its answer."""

    verb: str
    path: str
    """Without the query."""
    query: str
    request: str
    status: int
    response: str

    @property
    def is_accepted(self) -> bool:
        return 200 <= self.status < 300


def check(exchange: Exchange) -> tuple[str, tuple[str, ...]]:
    """Return the id of the method, empty for a call of another API, and the faults.

    A call that is refused is not checked: tests send wrong calls on purpose.
    """
    if not exchange.is_accepted:
        return "", ()
    path = unquote(exchange.path)
    routes, others = find(exchange.verb, exchange.path)
    if not routes and path != exchange.path:
        routes, others = find(exchange.verb, path)
    if not routes:
        is_ours = others or path.startswith(OWN_PREFIXES)
        known = f"it has {', '.join(sorted(others))}" if others else "no document has it"
        return "", (f"{exchange.verb} {path}: there is no such method; {known}",) if is_ours else ()
    checked = [(route, tuple(_faults(route, exchange))) for route in routes]
    route, faults = min(checked, key=lambda pair: len(pair[1]))
    return route.id, tuple(f"{route.id}: {fault}" for fault in faults)


def _faults(route: Route, exchange: Exchange) -> Iterator[str]:
    yield from _query_faults(route, exchange.query)
    request, is_request_json = _parse(exchange.request)
    reference = route.method.get("request")
    if reference is None:
        if exchange.request and request != {}:
            yield "the method has no request body"
    elif not is_request_json:
        yield "request: is not JSON"
    else:
        yield from Schema(route, is_request=True).faults(reference, request, "request")
    response, is_response_json = _parse(exchange.response)
    if not is_response_json:
        yield "response: is not JSON"
    elif "response" in route.method:
        yield from Schema(route, is_request=False).faults(
            route.method["response"], response, "response"
        )
    elif response:
        yield "the method has no response body"


def _parse(text: str) -> tuple[Any, bool]:
    try:
        return json.loads(text or "{}"), True
    except ValueError:
        return None, False


def _query_faults(route: Route, query: str) -> Iterator[str]:
    known = {**document(route.api).get("parameters", {}), **route.method.get("parameters", {})}
    sent: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in parse_qsl(query, keep_blank_values=True):
        sent[name].append(value)
    for name, values in sent.items():
        if name in _SYSTEM_PARAMETERS or (route.id, name) in _TOLERATED:
            continue
        if name not in known:
            yield f"query: there is no parameter {name}"
            continue
        if len(values) > 1 and not known[name].get("repeated"):
            yield f"query: {name} may not be repeated"
        for value in values:
            yield from (
                f"query: {name}={value} {fault}" for fault in _parameter_faults(known[name], value)
            )
    for name, schema in known.items():
        if schema.get("required") and schema.get("location") == "query" and name not in sent:
            yield f"query: the parameter {name} is missing"


def _parameter_faults(schema: Json, value: str) -> Iterator[str]:
    kind = schema.get("type")
    if schema.get("enum") and value not in schema["enum"]:
        yield "is not a value of the enum"
    elif kind == "integer" and not re.fullmatch(r"-?\d+", value):
        yield "is not an integer"
    elif kind == "boolean" and value.lower() not in ("true", "false"):
        yield "is not boolean"
    elif schema.get("maximum") and value.isdigit() and int(value) > int(schema["maximum"]):
        yield f"exceeds {schema['maximum']}"


class Schema:
    """Compares values with the schemas of one method."""

    def __init__(self, route: Route, *, is_request: bool) -> None:
        self._schemas: Json = document(route.api)["schemas"]
        self._method_id, self._is_request = route.id, is_request

    def faults(self, schema: Json, value: object, at: str) -> Iterator[str]:
        """Yield what is wrong with the value at the path `at`, by the schema."""
        schema = self._schemas[schema["$ref"]] if "$ref" in schema else schema
        match schema.get("type", "any"):
            case "any":
                pass
            case "object":
                yield from self._object_faults(schema, value, at)
            case "array":
                if isinstance(value, list):
                    for item in value:
                        yield from self.faults(schema["items"], item, f"{at}[]")
                else:
                    yield f"{at}: is not a list"
            case kind:
                if fault := self._value_fault(kind, schema, value):
                    yield f"{at}: {fault}: {value!r:.60}"

    def _object_faults(self, schema: Json, value: object, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at}: is not an object"
            return
        known: Json = schema.get("properties", {})
        if self._is_request:
            required = (name for name, field in known.items() if self._is_required(field))
            yield from (
                f"{at}: the field {name} is missing" for name in required if name not in value
            )
        for name, item in value.items():
            field = known.get(name, schema.get("additionalProperties"))
            if field is None:
                if name != "@type" and (self._method_id, name) not in _TOLERATED:
                    yield f"{at}: there is no field {name}"
            elif self._is_request and _is_output_only(field) and item not in ("", 0, [], {}):
                yield f"{at}.{name}: is output only"
            else:
                yield from self.faults(field, item, f"{at}.{name}")

    def _is_required(self, field: Json) -> bool:
        return self._method_id in field.get("annotations", {}).get("required", ())

    def _value_fault(self, kind: str, schema: Json, value: object) -> str:
        if kind == "boolean":
            return "" if isinstance(value, bool) else "is not boolean"
        if kind in ("integer", "number"):
            types = (int,) if kind == "integer" else (int, float)
            return (
                ""
                if isinstance(value, types) and not isinstance(value, bool)
                else f"is not of type {kind}"
            )
        form = schema.get("format", "")
        if (
            self._is_request
            and type(value) is int
            and ("enum" in schema or form in ("int64", "uint64"))
        ):
            return ""  # Google accepts the number
        if "enum" in schema:
            return "" if value in schema["enum"] else "is not a value of the enum"
        return _text_fault(form, value)


def _text_fault(form: str, value: object) -> str:
    if not isinstance(value, str):
        return f"is not {form}" if form in ("int64", "uint64") else "is not a string"
    pattern, words = _FORMATS.get(form, (_ANY, ""))
    if not pattern.fullmatch(value):
        return words
    return "is not base64" if form == "byte" and not _is_base64(value) else ""


def _is_output_only(field: Json) -> bool:
    is_described = re.match(r"\[?Output[ -]only", field.get("description", ""), re.IGNORECASE)
    return bool(field.get("readOnly")) or is_described is not None


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
