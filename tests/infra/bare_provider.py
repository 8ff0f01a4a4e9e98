"""A provider that knows the real google provider's schema and does nothing, so that terraform can validate and plan.

Terraform needs no cloud to resolve references, check types, evaluate every expression and expand every `for_each`: it
asks a provider for its schema, and in a plan for what the provider adds to each resource, which here is always "known
after apply". What only Google's provider would say (that a value is out of range) is not said here.

It speaks terraform's plugin protocol 5 over gRPC and is attached with TF_REATTACH_PROVIDERS, so nothing is downloaded.
Source: docs/plugin-protocol/tfplugin5.proto of hashicorp/terraform; the numbers of fields below are its.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import grpc
import msgpack

from tests.infra.provider_schema import Block

SOURCE: Final = "registry.terraform.io/hashicorp/google"
UNKNOWN: Final = msgpack.ExtType(0, b"\x00")
"""Source: cty's MessagePack encoding."""
NESTED_SINGLE: Final = 1
NESTED_LIST: Final = 2
_WIRE_BYTES: Final = 2

Schema = dict[str, Block]


@contextmanager
def attached(schema: Schema) -> Iterator[dict[str, str]]:
    """Environment in which terraform uses this provider."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tfplugin5.Provider", _handlers(schema)),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    address = {"Network": "tcp", "String": f"127.0.0.1:{port}"}
    reattach = {"Protocol": "grpc", "ProtocolVersion": 5, "Pid": os.getpid(), "Test": True, "Addr": address}
    try:
        yield {"TF_REATTACH_PROVIDERS": json.dumps({SOURCE: reattach})}
    finally:
        server.stop(None).wait()


def _handlers(schema: Schema) -> dict[str, Any]:
    answers: dict[str, Callable[[bytes], bytes]] = {
        "GetSchema": lambda _: _schemas(schema),
        "PrepareProviderConfig": lambda asked: _field(1, _fields(asked)[1]),
        "ValidateResourceTypeConfig": lambda _: b"",
        "ValidateDataSourceConfig": lambda _: b"",
        "Configure": lambda _: b"",
        "PlanResourceChange": lambda asked: _plan(schema, asked),
        "Stop": lambda _: b"",
    }

    def handler(answer: Callable[[bytes], bytes]) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda asked, _context: answer(asked))

    return {name: handler(answer) for name, answer in answers.items()}


def _plan(schema: Schema, asked: bytes) -> bytes:
    """What was proposed, with everything unknown that nobody has said."""
    fields = _fields(asked)
    proposed = msgpack.unpackb(_fields(fields[3])[1], strict_map_key=False)
    planned = _filled(schema[fields[1].decode()], proposed)
    legacy_type_system = b"\x28\x01"  # field 5, true: as of every provider made with SDK 2
    return _field(1, _field(1, msgpack.packb(planned))) + legacy_type_system


def _filled(block: Block, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    filled = {name: UNKNOWN if value.get(name) is None else value[name] for name in block.attributes}
    for name, nested in block.blocks.items():
        said = value.get(name)
        filled[name] = [_filled(nested.block, each) for each in said] if isinstance(said, list) else said
    return filled


def _schemas(schema: Schema) -> bytes:
    message = _field(1, _schema(schema["provider"]))
    for name, block in schema.items():
        if name != "provider":
            kind = 3 if name.startswith("data.") else 2
            message += _field(kind, _field(1, name.removeprefix("data.").encode()) + _field(2, _schema(block)))
    return message


def _schema(block: Block) -> bytes:
    return _field(2, _block(block))


def _block(block: Block) -> bytes:
    message = b""
    for name, attribute in block.attributes.items():
        flag = 4 if attribute.required else 5
        is_computed = not attribute.required
        said = _field(1, name.encode()) + _field(2, json.dumps(attribute.type).encode())
        said += b"" if attribute.computed else _number(flag, 1)
        message += _field(2, said + _number(6, int(is_computed)))
    for name, nested in block.blocks.items():
        nesting = NESTED_SINGLE if name == "timeouts" else NESTED_LIST
        said = _field(1, name.encode()) + _field(2, _block(nested.block)) + _number(3, nesting)
        if nesting == NESTED_LIST:
            said += _number(4, int(nested.required)) + _number(5, int(nested.is_single))
        message += _field(3, said)
    return message


# Protocol Buffers' wire format, as far as these messages go.


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _WIRE_BYTES) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _fields(message: bytes) -> dict[int, bytes]:
    """The last of each number, of those that hold bytes."""
    found, at = {}, 0
    while at < len(message):
        key, at = _read_varint(message, at)
        size, at = _read_varint(message, at)
        if key & 7 == _WIRE_BYTES:
            found[key >> 3] = message[at : at + size]
            at += size
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
