"""Summary event files, written with TensorBoard's own writer."""

from __future__ import annotations

import io
from collections.abc import Iterable

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


def event(wall_time: float, step: int, tag: str, value: float) -> Event:
    """Return an event with one value, as the summary writers of TensorFlow 1 and PyTorch do."""
    return Event(
        wall_time=wall_time,
        step=step,
        summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]),
    )


def event_file(events: Iterable[Event]) -> bytes:
    """Return the bytes of an event file: its header, and these events."""
    buffer = io.BytesIO()
    writer = RecordWriter(buffer)
    for message in (Event(file_version="brain.Event:2"), *events):
        writer.write(message.SerializeToString())
    return buffer.getvalue()
