"""The metric of a trial, which is one run of hyperparameter tuning: the last value that its program
reported. The launcher puts it into the exit of the program, and `metric_report.py` publishes it
while the program runs.

The program writes the file of the library cloudml-hypertune, which AI Platform Training used: at
most a hundred records, each a line of JSON with its numbers as text. The library rewrites the file
with every report. Source: cloudml-hypertune 0.1.0.

    {"accuracy": "0.93", "checkpoint_path": "", "global_step": "1000",
     "timestamp": 1580000000.12, "trial": "3"}

The file belongs to one attempt of the job on one VM: an incarnation (execution of the program) that
reports nothing leaves the reports of the one before there. If the file holds nothing, the agent of
the primary, the replica whose exit 0 ends the job, reads summary events (``summary_metric.py``):
those that were written since the attempt's first start on this VM, because the job directory may
hold those of another job.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainmaster.agent.metric.summary_metric import SummaryMetric
from trainmaster.agent.model.results import STEP_MAX, Measurement, Point
from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
from trainmaster.agent.regular_file import open_regular

TAG_VARIABLE = "CLOUD_ML_HP_METRIC_TAG"
FILE_VARIABLE = "CLOUD_ML_HP_METRIC_FILE"
FILE_NAME = "output.metrics"
FILE_BYTES_MAX = 1 << 16
"""Read from the end, where the last record is. A hundred records take about 20 kB."""
EARLIER_MAX = 49  # measurements before the last one that an exit event carries: about 2 kB
FOLDER_IN_CONTAINER = "/tmp/hypertune"  # noqa: S108
"""The library's default folder, if no variable names another."""


class TrialMetric:
    """The reports of this VM's programs. There are none unless the job is a trial."""

    def __init__(
        self, identity: AgentIdentity, work: Path, summary_metric: SummaryMetric | None
    ) -> None:
        """`summary_metric`: None unless this is the primary and has a job directory."""
        self._tag = identity.config.environment.get(TAG_VARIABLE)
        self._is_primary = identity.is_primary
        self._work = work
        self._summary_metric = summary_metric
        self._started_at: dict[int, float] = {}
        """Attempt → time of its first start on this VM, in seconds since 1970."""

    def create_folder(self, key: IncarnationKey) -> Path | None:
        """Create and return the folder where this incarnation reports; None if the job is not a
        trial.

        Any user may write there, because the program in a container may run as any user.
        """
        if self._tag is None:
            return None
        self._started_at.setdefault(key.attempt, time.time())
        folder = self._folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        return folder

    def read_last(self, key: IncarnationKey, *, has_completed: bool) -> Measurement | None:
        """Return the last measurement with those before it; None if nothing was reported.

        It takes up to a minute if summary events have to be read. They are read only after a
        success, because reading them would delay the restart of a failed program. If a program
        completes without writing an event, an earlier incarnation had done the work, and its events
        count.
        """
        if self._tag is None:
            return None
        measurements = self._read_records(key)
        if not measurements and self._summary_metric is not None:
            if has_completed:
                self._summary_metric.read_rest()
            measurements = self.read_reported(key)
            if has_completed and not measurements:  # an earlier incarnation had done the work
                measurements = self._summary_metric.measurements(since=0.0)
        if not measurements:
            return None
        *earlier, last = measurements
        points = [Point(measurement.value, measurement.step) for measurement in earlier]
        return replace(last, earlier=points[-EARLIER_MAX:])

    @property
    def is_reported(self) -> bool:
        """Whether the job is a trial and this replica its primary, whose measurements count."""
        return self._tag is not None and self._is_primary

    def update(self, key: IncarnationKey) -> None:
        """Look for new summary events, if a pass is due and the program's file holds nothing.

        Called in a thread of its own.
        """
        if self._summary_metric is not None and not self._read_records(key):
            self._summary_metric.read_if_due()

    def read_reported(self, key: IncarnationKey) -> list[Measurement]:
        """Return the measurements of the program's file, or else those of the summary events that
        were read so far.

        May be called from any thread.
        """
        records = self._read_records(key)
        started_at = self._started_at.get(key.attempt)
        if records or self._summary_metric is None or started_at is None:
            return records
        return self._summary_metric.measurements(since=started_at)

    def not_finite(self, key: IncarnationKey) -> set[tuple[int, int]]:
        """Return (number of the record, step) of each record of the program's file whose value is
        no finite number, such as NaN: values of trials are compared.
        """
        if self._tag is None:
            return set()
        records = enumerate(parse_records(self._read_file(key), self._tag))
        return {(number, step) for number, (value, step) in records if value is None}

    def cancel(self) -> None:
        """Give up reading summary events. May be called from any thread."""
        if self._summary_metric is not None:
            self._summary_metric.cancel()

    def _read_records(self, key: IncarnationKey) -> list[Measurement]:
        """Return the measurements that the program's file holds now."""
        if self._tag is None:
            return []
        return list(parse_measurements(self._read_file(key), self._tag))

    def _read_file(self, key: IncarnationKey) -> str:
        """Return the end of the program's file; empty if there is none.

        Programs may leave anything there, so pipes, links and the like are not read.
        """
        try:
            with open_regular(self._folder(key) / FILE_NAME) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - FILE_BYTES_MAX))
                return file.read(FILE_BYTES_MAX).decode(errors="replace")
        except OSError:
            return ""

    def _folder(self, key: IncarnationKey) -> Path:
        return self._work / "metric" / str(key.attempt)


def parse_measurements(text: str, tag: str) -> Iterator[Measurement]:
    """Yield the measurements of this tag that are finite numbers, in the order of the file."""
    for value, step in parse_records(text, tag):
        if value is not None:
            yield Measurement(value, step)


def parse_records(text: str, tag: str) -> Iterator[tuple[float | None, int]]:
    """Yield value and step of each record of this tag, in the order of the file; None instead of a
    value that is no finite number.

    Skip incomplete lines (a program may be killed while it writes) and other tags. Nothing that a
    program writes raises an error.
    """
    for line in text.splitlines():
        try:
            record = json.loads(line)
            raw_value = record[tag]
            step = _parse_step(record.get("global_step"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        yield _parse_value(raw_value), step


def _parse_value(raw_value: Any) -> float | None:
    """Return the number; None if it is none, or not finite."""
    try:
        value = float(raw_value)
    except (ValueError, TypeError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _parse_step(text: object) -> int:
    try:
        step = int(float(str(text)))
    except (ValueError, OverflowError):
        return 0
    return step if 0 <= step <= STEP_MAX else 0
