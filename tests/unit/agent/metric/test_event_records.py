"""Scalars of summary event files: those that real libraries wrote, truncated ones and
corrupt ones.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from tests.support.event_files import event, event_file
from trainmaster.agent.metric.event_records import (
    CorruptRecordError,
    Scalar,
    masked_crc32c,
    parse_event,
    parse_records,
)

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.tfevents"))
TAG = "accuracy"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_files_of_real_writers_are_read(path: Path) -> None:
    """`golden/write.py` names the libraries, and what they wrote."""
    data = path.read_bytes()
    parsed = parse_records(data, TAG)
    assert [(scalar.step, scalar.value) for scalar in parsed.scalars] == [(10, 0.25), (20, 0.75)]
    assert (parsed.consumed, parsed.incomplete) == (len(data), 0)
    # The golden files were written in November 2026.
    assert parsed.scalars[0].wall_time == pytest.approx(1795450000, abs=100_000)
    assert [(scalar.step, scalar.value) for scalar in parse_records(data, "loss").scalars] == [
        (20, 2.5)
    ]
    assert parse_records(data, "accurac").scalars == []


def test_golden_files_are_those_of_five_writers() -> None:
    assert [path.stem for path in GOLDEN] == [
        "tensorboardx",
        "tensorflow1",
        "tensorflow2",
        "torch",
        "torch_double",
    ]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_file_is_read_in_two_parts_wherever_it_is_cut(path: Path) -> None:
    data = path.read_bytes()
    whole = parse_records(data, TAG)
    for cut in range(len(data)):
        first = parse_records(data[:cut], TAG)
        rest = parse_records(data[first.consumed :], TAG)
        assert [*first.scalars, *rest.scalars] == whole.scalars
        assert first.incomplete == 0 or cut < first.consumed + first.incomplete <= len(data)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_changed_byte_is_detected_or_changes_no_scalar(path: Path) -> None:
    """A length and a message with the tag have checksums; other messages are not looked at."""
    data = path.read_bytes()
    whole = parse_records(data, TAG)
    detected = 0
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x01
        parsed = parse_records(bytes(changed), TAG)
        detected += bool(parsed.problem)
        assert set(parsed.scalars) <= set(whole.scalars)
    assert detected > 24  # at least the headers


def tensor(dtype: int, *sizes: int, **content: object) -> TensorProto:
    """Return a tensor of these sizes; none: a scalar. `dtype`: 1 float, 2 double, 7 string."""
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])
    return TensorProto(dtype=dtype, tensor_shape=shape, **content)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"simple_value": 0.5}, [0.5], id="number"),
        pytest.param({"simple_value": 0.0}, [0.0], id="zero"),
        pytest.param({"simple_value": float("nan")}, [], id="not a number"),
        pytest.param({"simple_value": float("inf")}, [], id="infinite"),
        pytest.param({"tensor": tensor(1, float_val=[0.5])}, [0.5], id="float"),
        pytest.param({"tensor": tensor(1, tensor_content=b"\0\0\0?")}, [0.5], id="float as bytes"),
        pytest.param({"tensor": tensor(2, double_val=[0.1])}, [0.1], id="double"),
        pytest.param({"tensor": tensor(1)}, [0.0], id="zero that is left out"),
        pytest.param({"tensor": tensor(1, 1, float_val=[0.5])}, [0.5], id="list of one"),
        pytest.param({"tensor": tensor(1, 2, float_val=[0.5, 1.5])}, [], id="list of two"),
        pytest.param({"tensor": tensor(1, 2, float_val=[0.5])}, [], id="list of two equal ones"),
        pytest.param({"tensor": tensor(1, 0)}, [], id="empty list"),
        pytest.param({"tensor": tensor(7, string_val=["ü".encode()])}, [], id="text"),
        pytest.param({"tensor": tensor(1, tensor_content=b"\0\0")}, [], id="too few bytes"),
    ],
)
def test_finite_number_is_a_scalar(value: dict[str, object], expected: list[float]) -> None:
    message = Event(
        wall_time=1.5, step=-7, summary=Summary(value=[Summary.Value(tag=TAG, **value)])
    )
    assert parse_event(message.SerializeToString(), TAG.encode()) == [
        Scalar(wall_time=1.5, step=-7, value=number, tag=TAG) for number in expected
    ]


def test_only_the_tag_itself_counts() -> None:
    data = event_file(
        [event(1.0, step=1, tag=f"eval/{TAG}", value=0.1), event(2.0, step=2, tag=TAG, value=0.5)]
    )
    assert parse_records(data, TAG).scalars == [Scalar(wall_time=2.0, step=2, value=0.5, tag=TAG)]


@given(st.binary(max_size=300))
def test_checksum_is_the_one_of_the_library(data: bytes) -> None:
    # TFRecord files mask a checksum: rotated by 15 bits, plus a constant.
    crc = google_crc32c.value(data)
    assert masked_crc32c(data) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_corrupt(data: bytes) -> None:
    parse_records(data, TAG)
    messages = [data]
    if len(data) < 128:  # a length of one byte
        field_of_summary = b"\x2a"
        messages.append(field_of_summary + bytes([len(data)]) + data)
    for message in messages:
        with contextlib.suppress(CorruptRecordError):
            parse_event(message, b"")
