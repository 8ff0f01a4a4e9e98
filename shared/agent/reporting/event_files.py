"""Reads one tag's last value out of summary event files, with TensorBoard's own reader.

    python3 -m shared.agent.reporting.event_files TAG FILE…    prints {"TAG": 0.93, "global_step": 1000}, or nothing

A program of its own, because TensorBoard is the image's, if it is there, and so is the time that it takes. Last is what
was written last, by the events' own clock, whichever file it is in: one run has several.
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

NO_READER = 3  # exit status: TensorBoard is not installed


def main(argv: Sequence[str]) -> int:
    _, tag, *files = argv
    # TensorBoard's own switch for reading without TensorFlow, whose import takes longer than the reading.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    try:
        importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    except ImportError:
        return NO_READER
    found = [point for file in files for point in points(file, tag)]
    if found:
        _, step, value = max(found)
        print(json.dumps({tag: value, "global_step": step}))  # noqa: T201 - its result
    return 0


def points(file: str, tag: str) -> Iterator[tuple[float, int, float]]:
    """Time, step and value of each finite number under the tag. A record cut short is the end of its file."""
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
