"""Print a tag's last value from summary event files, read with TensorBoard's own reader.

    python3 -m shared.agent.metric.event_file_reader TAG FILE…    prints {"TAG": 0.93, "global_step": 1000}, or nothing

It is a separate program because TensorBoard belongs to the image, if it is there, and may take long. The last value is
the one with the latest time in its event, whichever file it is in: one run has several files.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NO_TENSORBOARD = 3  # exit status


def main(argv: Sequence[str]) -> int:
    _, tag, *files = argv
    # TensorBoard's own switch for reading without TensorFlow, whose import takes longer than the reading.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    try:
        importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    except ImportError:
        return NO_TENSORBOARD
    points = [point for file in files for point in read_points(file, tag)]
    if points:
        _, step, value = max(points)
        print(json.dumps({tag: value, "global_step": step}))  # noqa: T201 - its result
    return 0


def read_points(file: str, tag: str) -> Iterator[tuple[float, int, float]]:
    """Yield time, step and value of each finite number under the tag. A truncated record ends the file."""
    loader = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    tensors = importlib.import_module("tensorboard.util.tensor_util")
    for event in loader.EventFileLoader(file).Load():
        for summary in event.summary.value:
            if summary.tag != tag:
                continue
            try:
                value = float(tensors.make_ndarray(summary.tensor).item())
            except (TypeError, ValueError):  # an image, a text, a histogram
                continue
            if math.isfinite(value):
                yield event.wall_time, event.step, value


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
