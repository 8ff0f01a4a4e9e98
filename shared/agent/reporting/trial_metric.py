"""What a trial of a tuning job reported: the last value of the metric that its search goes by.

The program tells it as the old service's library has it: a file of at most a hundred records, each a line of JSON with
its numbers as text, written anew with every report. Source: cloudml-hypertune 0.1.0.

    {"accuracy": "0.93", "checkpoint_path": "", "global_step": "1000", "timestamp": 1580000000.12, "trial": "3"}

The file is an attempt's, on one VM: a incarnation that reports nothing leaves there what the incarnation before it reported. Where it
holds nothing, the primary's summary events may (``summaries.py``).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.agent.control.vm_config import Key, ReplicaId
    from shared.agent.reporting.summary_metric import Summaries

TAG = "CLOUD_ML_HP_METRIC_TAG"
FILE = "CLOUD_ML_HP_METRIC_FILE"
NAME = "output.metrics"
FILE_BYTES_MAX = 1 << 16  # of its end, which has the last record: a hundred take some 20 kB
STEP_MAX = 2**53  # what JSON's readers agree on: Pub/Sub would refuse the whole message for more
INSIDE = "/tmp/hypertune"  # noqa: S108 - in a container; where the library writes that was told nothing


@dataclass(frozen=True)
class Measurement:
    """A finite value, and the step of the training that it was taken at (0: not told)."""

    value: float
    step: int


class Metric:
    def __init__(self, replica_id: ReplicaId, work: Path, summaries: Summaries) -> None:
        self._tag = replica_id.gang.environment.get(TAG)
        self._job_dir = replica_id.gang.job_dir if replica_id.is_primary else None
        self._work = work
        self._summaries = summaries

    def folder(self, key: Key) -> Path | None:
        """Where the program of this incarnation reports, open to whoever it runs as; None where nothing is asked of it."""
        if self._tag is None:
            return None
        folder = self._folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # the user of a container's image may be any
        return folder

    def last(self, key: Key, *, has_completed: bool) -> Measurement | None:
        """None where nothing was reported. Takes a minute where summary events have to be read."""
        if self._tag is None:
            return None
        found = list(measurements(self._reported(key), self._tag))
        if not found and has_completed and self._job_dir:
            found = list(measurements(self._summaries.last(self._tag, self._job_dir), self._tag))
        return found[-1] if found else None

    def cancel(self) -> None:
        """From another thread: what takes long is given up."""
        self._summaries.cancel()

    def _reported(self, key: Key) -> str:
        """Whatever the program left there: what is no file, as a pipe, is not read."""
        path = self._folder(key) / NAME
        try:
            if not path.is_file():
                return ""
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - FILE_BYTES_MAX))
                return file.read(FILE_BYTES_MAX).decode(errors="replace")
        except OSError:
            return ""

    def _folder(self, key: Key) -> Path:
        return self._work / "metric" / str(key.attempt)


def measurements(text: str, tag: str) -> Iterator[Measurement]:
    """Of this tag, in the order of the file. A line cut short, as by a program that was killed while it wrote, another
    tag's, and a value that is no finite number do not count; nothing that a program writes is an error."""
    for line in text.splitlines():
        try:
            record = json.loads(line)
            value = float(record[tag])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if math.isfinite(value):
            yield Measurement(value, _step(record.get("global_step")))


def _step(told: object) -> int:
    try:
        step = int(float(str(told)))
    except (ValueError, OverflowError):
        return 0
    return step if 0 <= step <= STEP_MAX else 0
