"""Terraform providers google and time with their schemas and no cloud, for `terraform validate`,
`plan` and `apply`.

Terraform itself resolves references, checks types, evaluates expressions and expands `for_each`.
From a provider it needs the schema and, for a plan, the values that the provider adds to each
resource; here these are always "known after apply". An apply gives each of them a value of its
type and creates nothing. Checks of the google provider itself, such as ranges of values, do not
happen.

They implement version 5 of Terraform's plugin protocol over gRPC and are attached with
TF_REATTACH_PROVIDERS, so nothing is downloaded. Source of the field numbers:
docs/plugin-protocol/tfplugin5.proto of hashicorp/terraform.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import grpc
import msgpack

from tests.infra.provider_schema import Attribute, Block

SOURCE: Final = "registry.terraform.io/hashicorp/{}"
TIME: Final[dict[str, Block]] = {
    "provider": Block(attributes={}, blocks={}),
    "time_sleep": Block(
        {
            "create_duration": Attribute("string", required=False, computed=False),
            "destroy_duration": Attribute("string", required=False, computed=False),
            "triggers": Attribute(["map", "string"], required=False, computed=False),
            "id": Attribute("string", required=False, computed=True),
        },
        blocks={},
    ),
}
"""Source: documentation of hashicorp/time, resource time_sleep."""
UNKNOWN: Final = msgpack.ExtType(0, b"\x00")
"""Source: cty's MessagePack encoding."""
NESTED_SINGLE: Final = 1
NESTED_LIST: Final = 2
_WIRE_BYTES: Final = 2
# Numbers of fields in the requests and replies of the protocol.
_TYPE_NAME: Final = 1
_CONFIG: Final = 2
_PROPOSED_STATE: Final = 3
_PLANNED_STATE: Final = 3
_RAW_STATE: Final = 3
_STATE_OF_REPLY: Final = 1
# A DynamicValue is a value in one of two encodings; a RawState is one in JSON.
_MSGPACK: Final = 1
_JSON: Final = 2
_JSON_OF_RAW_STATE: Final = 1

Schema = dict[str, Block]


@contextmanager
def attached(google: Schema) -> Iterator[dict[str, str]]:
    """Serve both providers; yield the environment variables that make terraform use them."""
    with ExitStack() as stack:
        addresses = {
            SOURCE.format(name): stack.enter_context(_served(schema))
            for name, schema in {"google": google, "time": TIME}.items()
        }
        yield {"TF_REATTACH_PROVIDERS": json.dumps(addresses)}


@contextmanager
def _served(schema: Schema) -> Iterator[dict[str, object]]:
    """Serve one provider; yield its entry in TF_REATTACH_PROVIDERS."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("tfplugin5.Provider", _handlers(schema)),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    address = {"Network": "tcp", "String": f"127.0.0.1:{port}"}
    try:
        yield {
            "Protocol": "grpc",
            "ProtocolVersion": 5,
            "Pid": os.getpid(),
            "Test": True,
            "Addr": address,
        }
    finally:
        server.stop(None).wait()


def _handlers(schema: Schema) -> dict[str, Any]:
    schemas = _schemas(schema)
    answers: dict[str, Callable[[bytes], bytes]] = {
        "GetSchema": lambda _: schemas,
        "PrepareProviderConfig": lambda request: _field(1, _fields(request)[1]),
        "ValidateResourceTypeConfig": lambda _: b"",
        "ValidateDataSourceConfig": lambda _: b"",
        "Configure": lambda _: b"",
        "PlanResourceChange": lambda request: _plan(schema, request),
        "ApplyResourceChange": lambda request: _apply(schema, request),
        "ReadResource": lambda request: _field(1, _fields(request)[2]),
        "ReadDataSource": lambda request: _read(schema, request),
        "UpgradeResourceState": _upgrade,
        "Stop": lambda _: b"",
    }

    def handler(answer: Callable[[bytes], bytes]) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: answer(request))

    return {name: handler(answer) for name, answer in answers.items()}


def _plan(schema: Schema, request: bytes) -> bytes:
    """Return the proposed values; every attribute without a value is unknown."""
    fields = _fields(request)
    proposed = _decoded(fields[_PROPOSED_STATE])
    planned = _with_unknowns(schema[fields[_TYPE_NAME].decode()], proposed)
    legacy_type_system = b"\x28\x01"  # field 5 is true in every provider that is built with SDK 2
    return _reply(planned) + legacy_type_system


def _apply(schema: Schema, request: bytes) -> bytes:
    """Return the planned values with a value for each unknown one. A deletion has none."""
    fields = _fields(request)
    planned = _decoded(fields[_PLANNED_STATE])
    applied = _with_values(schema[fields[_TYPE_NAME].decode()], planned)
    legacy_type_system = b"\x20\x01"  # field 4
    return _reply(applied) + legacy_type_system


def _read(schema: Schema, request: bytes) -> bytes:
    """Return a data source with a value for each attribute that its configuration lacks."""
    fields = _fields(request)
    block = schema[f"data.{fields[_TYPE_NAME].decode()}"]
    config = _decoded(fields[_CONFIG])
    found = _with_values(block, _with_unknowns(block, config))
    return _reply(found)


def _upgrade(request: bytes) -> bytes:
    """Return the stored state, which has the schema's version, in the form in which it is
    stored.
    """
    stored = _fields(_fields(request)[_RAW_STATE])[_JSON_OF_RAW_STATE]
    return _field(_STATE_OF_REPLY, _field(_JSON, stored))


def _decoded(dynamic_value: bytes) -> Any:
    return msgpack.unpackb(_fields(dynamic_value)[_MSGPACK], strict_map_key=False)


def _reply(state: Any) -> bytes:
    return _field(_STATE_OF_REPLY, _field(_MSGPACK, msgpack.packb(state)))


def _with_values(block: Block, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    result = {
        name: _value_of(attribute.type) if _is_unknown(value.get(name)) else value.get(name)
        for name, attribute in block.attributes.items()
    }
    for name, nested in block.blocks.items():
        inner = value.get(name)
        if isinstance(inner, list):
            inner = [_with_values(nested.block, item) for item in inner]
        result[name] = inner
    return result


def _is_unknown(value: Any) -> bool:
    return isinstance(value, msgpack.ExtType)


def _value_of(kind: Any) -> Any:
    """Return a value of a type, which Terraform writes as `"string"` or `["list", "string"]`."""
    if isinstance(kind, list):
        return {} if kind[0] in ("map", "object") else []
    return {"string": "known", "number": 1, "bool": False, "dynamic": None}[kind]


def _with_unknowns(block: Block, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    result = {
        name: UNKNOWN if value.get(name) is None else value[name] for name in block.attributes
    }
    for name, nested in block.blocks.items():
        inner = value.get(name)
        result[name] = (
            [_with_unknowns(nested.block, item) for item in inner]
            if isinstance(inner, list)
            else inner
        )
    return result


def _schemas(schema: Schema) -> bytes:
    message = _field(1, _schema(schema["provider"]))
    for name, block in schema.items():
        if name != "provider":
            kind = 3 if name.startswith("data.") else 2
            message += _field(
                kind, _field(1, name.removeprefix("data.").encode()) + _field(2, _schema(block))
            )
    return message


def _schema(block: Block) -> bytes:
    return _field(2, _block(block))


def _block(block: Block) -> bytes:
    message = b""
    for name, attribute in block.attributes.items():
        flag = 4 if attribute.required else 5
        is_computed = not attribute.required
        encoded = _field(1, name.encode()) + _field(2, json.dumps(attribute.type).encode())
        encoded += b"" if attribute.computed else _number(flag, 1)
        message += _field(2, encoded + _number(6, int(is_computed)))
    for name, nested in block.blocks.items():
        nesting = NESTED_SINGLE if name == "timeouts" else NESTED_LIST
        encoded = _field(1, name.encode()) + _field(2, _block(nested.block)) + _number(3, nesting)
        if nesting == NESTED_LIST:
            encoded += _number(4, int(nested.required)) + _number(5, int(nested.is_single))
        message += _field(3, encoded)
    return message


# The part of Protocol Buffers' wire format that these messages use.


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _WIRE_BYTES) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _fields(message: bytes) -> dict[int, bytes]:
    """Return the fields that contain bytes, by number. The last one of each number counts."""
    fields, position = {}, 0
    while position < len(message):
        key, position = _read_varint(message, position)
        size, position = _read_varint(message, position)
        if key & 7 == _WIRE_BYTES:
            fields[key >> 3] = message[position : position + size]
            position += size
    return fields


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number that begins at `position`, and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
