"""The scalars in summary event files, as TensorFlow, PyTorch and tensorboardX write them.

An event file is a sequence of records, each of which holds one protobuf message. All numbers are
little-endian:

    length of the message 8 | checksum of the length 4 | message | checksum of the message 4

    Event        wall_time = 1 double, step = 2 int64, summary = 5
    Summary      value = 1, repeated
    Value        tag = 1, and simple_value = 2 float (TensorFlow 1, PyTorch)
                          or tensor = 8 (TensorFlow 2)
    TensorProto  dtype = 1, tensor_shape = 2, and its content
                 in tensor_content = 4, float_val = 5 or double_val = 6

Sources: TensorFlow's lib/io/record_writer.h, event.proto, summary.proto, tensor.proto and
tensor_shape.proto, and protobuf's "Encoding". Fields that are not named above are skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LENGTH = struct.Struct("<Q")
CHECKSUM = struct.Struct("<I")
HEADER_BYTES = LENGTH.size + CHECKSUM.size
OVERHEAD_BYTES = HEADER_BYTES + CHECKSUM.size
DT_FLOAT, DT_DOUBLE = 1, 2  # tensorflow.DataType
VARINT_BYTES_MAX = 10  # of 64 bits, seven in each byte
SCALARS_BYTES_MAX = 16 << 10
"""Longest message that is read if all tags are wanted: longer ones hold images, histograms and the
like.
"""
# Numbers of fields, as in the table above
EVENT_WALL_TIME, EVENT_STEP, EVENT_SUMMARY = 1, 2, 5
SUMMARY_VALUE = 1
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 1, 2, 8
TENSOR_DTYPE, TENSOR_SHAPE, TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES = 1, 2, 4, 5, 6
SHAPE_DIM, DIM_SIZE = 2, 1
# Protobuf's wire types: how a field is encoded
VARINT, FIXED_64, LENGTH_DELIMITED, FIXED_32 = 0, 1, 2, 5
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected


class CorruptRecordError(Exception):
    """The bytes are not records of an event file."""


class Scalar(NamedTuple):
    """One value of a tag."""

    wall_time: float
    """Seconds since 1970, by the clock of the machine that wrote it."""
    step: int
    """As the program wrote it, so it may be negative."""
    value: float
    """Finite."""
    tag: str = ""


@dataclass(frozen=True)
class ParsedRecords:
    """The result of parsing a part of an event file."""

    scalars: Sequence[Scalar]
    """The finite scalars, in the order of the file."""
    consumed: int
    """Bytes of all complete records."""
    incomplete: int
    """Bytes of the whole record that follows the complete ones, if only a part of it is in the
    data; 0 if not even its length is.
    """
    problem: str = ""
    """Why the record that follows is corrupt; empty if it is not."""


def parse_records(data: bytes, tag: str) -> ParsedRecords:
    """Parse the records at the start of `data`, up to one that is corrupt or incomplete.

    `tag`: empty for all tags.

    The checksum of a message is computed only if the message may hold a scalar of the tag: it takes
    longer than everything else.
    """
    wanted = tag.encode()
    scalars: list[Scalar] = []
    start = 0
    try:
        while len(data) - start >= HEADER_BYTES:
            size = _record_size(data, start)
            end = start + size
            if end > len(data):
                return ParsedRecords(scalars, start, size)
            message = data[start + HEADER_BYTES : end - CHECKSUM.size]
            if _may_have_scalar(message, wanted):
                _verify(message, data[end - CHECKSUM.size : end])
                scalars += parse_event(message, wanted)
            start = end
    except CorruptRecordError as error:
        return ParsedRecords(scalars, start, incomplete=0, problem=str(error))
    return ParsedRecords(scalars, start, incomplete=0)


def _may_have_scalar(message: bytes, tag: bytes) -> bool:
    return tag in message if tag else len(message) <= SCALARS_BYTES_MAX


def _record_size(data: bytes, start: int) -> int:
    (length,) = LENGTH.unpack_from(data, start)
    _verify(data[start : start + LENGTH.size], data[start + LENGTH.size : start + HEADER_BYTES])
    return int(length) + OVERHEAD_BYTES


def _verify(content: bytes, checksum: bytes) -> None:
    if CHECKSUM.unpack(checksum) != (masked_crc32c(content),):
        raise CorruptRecordError(f"the checksum of {len(content)} bytes is wrong")


def parse_event(message: bytes, tag: bytes) -> list[Scalar]:
    """Return the finite scalars of the tag, or of all if it is empty, in one message.

    Raises CorruptRecordError.
    """
    wall_time, step = 0.0, 0
    values: list[tuple[str, float]] = []
    try:
        for number, content in read_fields(message):
            if number == EVENT_WALL_TIME:
                (wall_time,) = struct.unpack("<d", _bytes(content))
            elif number == EVENT_STEP:
                step = _signed(content)
            elif number == EVENT_SUMMARY:
                values += _summary_values(_bytes(content), tag)
    except (IndexError, struct.error, ValueError) as error:
        raise CorruptRecordError(f"a message cannot be decoded: {error}") from error
    return [Scalar(wall_time, step, value, name) for name, value in values if math.isfinite(value)]


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message: an integer for a varint, else
    bytes.

    Raises IndexError or ValueError if the message is malformed.
    """
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, position = _read_varint(message, position)
            yield number, value
            continue
        if wire_type == LENGTH_DELIMITED:
            size, position = _read_varint(message, position)
        elif wire_type in (FIXED_64, FIXED_32):
            size = 8 if wire_type == FIXED_64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + size > len(message):
            raise ValueError("a field is longer than its message")
        yield number, message[position : position + size]
        position += size


def masked_crc32c(data: bytes) -> int:
    """Return the checksum that TensorFlow's records have: CRC-32C, rotated by 15 bits, plus a
    constant.
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(map(_table_entry, range(256)))


def _summary_values(summary: bytes, tag: bytes) -> Iterator[tuple[str, float]]:
    for number, content in read_fields(summary):
        if number == SUMMARY_VALUE and tag in _bytes(content):
            yield from _tagged_value(_bytes(content), tag)


def _tagged_value(message: bytes, tag: bytes) -> Iterator[tuple[str, float]]:
    """Yield tag and number of a Value, if it has the tag that is wanted; empty for all tags."""
    fields = dict(read_fields(message))
    own = _bytes(fields.get(VALUE_TAG, b""))
    if tag not in (own, b""):
        return
    values: Iterable[float] = ()
    if VALUE_SIMPLE in fields:
        values = struct.unpack("<f", _bytes(fields[VALUE_SIMPLE]))
    elif VALUE_TENSOR in fields:
        values = _tensor_scalar(_bytes(fields[VALUE_TENSOR]))
    yield from ((own.decode(errors="replace"), value) for value in values)


def _tensor_scalar(message: bytes) -> Iterator[float]:
    """Yield the value of a tensor that has one element; nothing for other tensors and types."""
    fields = list(read_fields(message))
    types = [content for number, content in fields if number == TENSOR_DTYPE]
    if types == [DT_FLOAT]:
        typed_field = TENSOR_FLOATS
        layout = struct.Struct("<f")
    elif types == [DT_DOUBLE]:
        typed_field = TENSOR_DOUBLES
        layout = struct.Struct("<d")
    else:
        return
    shapes = [_bytes(content) for number, content in fields if number == TENSOR_SHAPE]
    if any(_elements(shape) != 1 for shape in shapes):
        return
    content_fields = (TENSOR_CONTENT, typed_field)
    content = b"".join(_bytes(content) for number, content in fields if number in content_fields)
    if not content:
        yield 0.0  # a zero may be left out
    elif len(content) == layout.size:
        yield from layout.unpack(content)


def _elements(shape: bytes) -> int:
    """Return the number of elements of a TensorShapeProto: dim = 2, repeated, with its size = 1."""
    dimensions = [content for number, content in read_fields(shape) if number == SHAPE_DIM]
    sizes = [dict(read_fields(_bytes(dimension))).get(DIM_SIZE, 0) for dimension in dimensions]
    elements = 1
    for size in sizes:
        elements *= _signed(size)
    return elements


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number and the position after it."""
    number = 0
    for count in range(VARINT_BYTES_MAX):
        byte = message[position + count]
        number |= (byte & 0x7F) << (7 * count)
        if not byte & 0x80:
            return number, position + count + 1
    raise ValueError("a number is too long")


def _bytes(content: int | bytes) -> bytes:
    if isinstance(content, int):
        raise ValueError("a field has another type")  # noqa: TRY004 - like all malformed messages
    return content


def _signed(content: int | bytes) -> int:
    """Return an int64, which is stored in two's complement."""
    if not isinstance(content, int):
        raise ValueError("a field has another type")  # noqa: TRY004
    return content - (1 << 64) if content >> 63 else content
