"""What a trial of a tuning job reported: the last value of the metric that its search goes by.

The program tells it as the old service's library has it: a file of at most a hundred records, each a line of JSON with
its numbers as text, written anew with every report. Source: cloudml-hypertune 0.1.0.

    {"accuracy": "0.93", "checkpoint_path": "", "global_step": "1000", "timestamp": 1580000000.12, "trial": "3"}

The file is an attempt's, on one VM: a life that reports nothing leaves there what the life before it reported.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.agent.gang import Key, Seat

TAG = "CLOUD_ML_HP_METRIC_TAG"
FILE = "CLOUD_ML_HP_METRIC_FILE"
NAME = "output.metrics"
INSIDE = "/tmp/hypertune"  # noqa: S108 - in a container; where the library writes that was told nothing


@dataclass(frozen=True)
class Measurement:
    """A finite value, and the step of the training that it was taken at (0: not told)."""

    value: float
    step: int


class Metric:
    def __init__(self, seat: Seat, work: Path) -> None:
        self._tag = seat.gang.environment.get(TAG)
        self._work = work

    def folder(self, key: Key) -> Path | None:
        """Where the program of this life reports, open to whoever it runs as; None where nothing is asked of it."""
        if self._tag is None:
            return None
        folder = self._folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # the user of a container's image may be any
        return folder

    def last(self, key: Key) -> Measurement | None:
        """None where nothing was reported."""
        if self._tag is None:
            return None
        try:
            text = (self._folder(key) / NAME).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        last = None
        for last in measurements(text, self._tag):  # noqa: B007 - the last one counts
            pass
        return last

    def _folder(self, key: Key) -> Path:
        return self._work / "metric" / str(key.attempt)


def measurements(text: str, tag: str) -> Iterator[Measurement]:
    """Of this tag, in the order of the file. A line cut short, as by a program that was killed while it wrote, another
    tag's, and a value that is no finite number do not count."""
    for line in text.splitlines():
        try:
            record = json.loads(line)
            value = float(record[tag])
        except (ValueError, KeyError, TypeError):
            continue
        if math.isfinite(value):
            yield Measurement(value, _step(record.get("global_step")))


def _step(told: object) -> int:
    try:
        return int(float(str(told)))
    except (ValueError, OverflowError):
        return 0
