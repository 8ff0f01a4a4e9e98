"""Metrics from the summary event files below --job-dir, for a program that reports them in no other
way.

    event files on Cloud Storage ── what was added ──► event_records.py
        ──► the latest measurements of a trial, or the latest value of each tag

While the program runs, the agent of the primary (the replica whose exit 0 ends the job) lists the
files about once a minute and reads what was added to them. After the program has completed, it does
so once more. A *pass* is one such listing with the reads that follow. `trial_metric.py` uses the
measurements of a trial (a run of hyperparameter tuning), `progress/collector.py` the values of all
tags. docs/decisions/vms-and-programs.md#decision-92.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trainmaster.agent.metric.event_records import (
    OVERHEAD_BYTES,
    ParsedRecords,
    Scalar,
    parse_records,
)
from trainmaster.agent.model.reading import Reading
from trainmaster.agent.model.results import STEP_MAX, Measurement
from trainmaster.agent.setup.cloud_storage import StorageReader, StoredObject
from trainmaster.agent.setup.setup_errors import SetupError

# In the name of an event file. Source: TensorBoard, io_wrapper.IsSummaryEventsFile.
EVENT_FILE_MARK = "tfevents"
OBJECTS_MAX = 100_000
"""Objects below the directory that a pass looks at: a hundred requests. The directory of a job may
have its data, too.
"""
FILES_MAX = 50  # the newest ones: there is one file for each incarnation and writer
INTERVAL_S = 60.0  # between two passes over the files while the program runs
LOAD_MAX = 0.05
"""Largest share of the time that passes may take: a long pause follows a long pass."""
PAUSE_MAX_S = 600.0  # longest pause, for example after a pass in which Cloud Storage did not answer
PASS_BYTES_MAX = 16 << 20  # of one pass: about a second of CPU time; the next one continues
FINAL_BYTES_MAX = 512 << 20  # of the pass after the program's end
FINAL_S = 60.0  # the exit report waits for that pass
PIECE_BYTES = 1 << 20  # of one request
RECORD_BYTES_MAX = 8 << 20  # larger records, of images, are skipped without reading them
SCALARS_MAX = 50  # of one file, the latest ones: as many as a report has
TAGS_MAX = 32  # of one file, the first ones
EVALUATION = ("validation", "eval", "val", "test")
"""Folders of evaluations. Their event files have the same tags as those of the training."""


@dataclass
class EventFile:
    """How far one file was read."""

    offset: int = 0
    """Bytes before the first record that was not read."""
    is_corrupt: bool = False
    scalars: Sequence[Scalar] = ()
    """The latest ones."""
    by_tag: dict[str, Scalar] = field(default_factory=dict)
    """The latest one of each tag."""

    def take(self, parsed: ParsedRecords) -> None:
        """Add the scalars of all complete records."""
        for scalar in parsed.scalars:
            if scalar.tag in self.by_tag or len(self.by_tag) < TAGS_MAX:
                self.by_tag[scalar.tag] = scalar
        self.scalars = (*self.scalars, *parsed.scalars)[-SCALARS_MAX:]
        self.offset += parsed.consumed
        self.is_corrupt = bool(parsed.problem)


class SummaryMetric:
    """Reads the event files of one job, piece by piece.

    Only `cancel`, `latest` and `measurements` may be called while another thread reads files.
    """

    def __init__(
        self,
        tag: str,
        job_dir: str,
        storage: StorageReader,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tag`: name of the trial's metric in the files; empty: all metrics are read."""
        self._tag = tag
        self._job_dir = job_dir
        self._storage = storage
        self._log = log
        self._clock = clock
        self._files: dict[str, EventFile] = {}
        self._next_pass_at = float("-inf")
        self._reading = threading.Lock()
        self._logged: set[str] = set()
        self._is_cancelled = False
        self._has_read_rest = threading.Event()
        """Set when the last pass has ended, or is not waited for any longer."""

    def measurements(self, since: float) -> list[Measurement]:
        """Return the latest measurements that were written since this time (in seconds since 1970),
        oldest first.
        """
        scalars: list[Scalar] = []
        for file in list(self._files.values()):  # a copy: another thread may add files
            scalars.extend(file.scalars)
        scalars.sort()
        return [
            Measurement(scalar.value, scalar.step if 0 <= scalar.step <= STEP_MAX else 0)
            for scalar in scalars
            if scalar.wall_time >= since
        ]

    def latest(self, since: float) -> Reading:
        """Return the latest value of each tag that was written since this time, and the largest of
        their steps.

        Tags of a folder of evaluations have its name in front. What was read so far counts.
        """
        scalars: dict[str, Scalar] = {}
        for uri, file in list(self._files.items()):
            _, folder, _ = uri.rsplit("/", 2)
            for tag, scalar in list(file.by_tag.items()):
                name = f"{folder}/{tag}" if folder in EVALUATION else tag
                is_latest = name not in scalars or scalar > scalars[name]
                if scalar.wall_time >= since and is_latest:
                    scalars[name] = scalar
        oldest_first = sorted(scalars.items(), key=lambda pair: pair[1])
        step = max((scalar.step for scalar in scalars.values()), default=None)
        return Reading.of_steps(
            step,
            steps=None,
            metrics=[(name, scalar.value) for name, scalar in reversed(oldest_first)],
        )

    def read_if_due(self) -> None:
        """Read what was added to the files, if the last pass is long enough ago."""
        started = self._clock()
        if started < self._next_pass_at:
            return
        self._read_pass(PASS_BYTES_MAX, float("inf"))
        ended = self._clock()
        self._next_pass_at = max(
            started + INTERVAL_S, ended + min((ended - started) / LOAD_MAX, PAUSE_MAX_S)
        )

    def read_rest(self) -> None:
        """Read what is left after the program's end.

        Returns after at most `FINAL_S`, and soon after `cancel`.
        """

        def read() -> None:
            try:
                self._read_pass(FINAL_BYTES_MAX, self._clock() + FINAL_S)
            finally:
                self._has_read_rest.set()

        self._has_read_rest.clear()
        if not self._is_cancelled:
            threading.Thread(target=read, daemon=True).start()
            self._has_read_rest.wait(FINAL_S)

    def cancel(self) -> None:
        """Read nothing more. May be called from any thread."""
        self._is_cancelled = True
        self._has_read_rest.set()

    def _read_pass(self, bytes_max: int, until: float) -> None:
        """Read up to `bytes_max` bytes, until this time of the clock."""
        with self._reading:
            try:
                self._read_files(bytes_max, until)
            except SetupError as error:
                self._log_once(f"Summary events cannot be read now: {error}.")

    def _read_files(self, bytes_max: int, until: float) -> None:
        """Read what was added to the files.

        Raises SetupError if Cloud Storage does not answer or refuses the list.
        """
        stored = self._list_files()
        newest = select_newest(stored)
        if len(newest) < len(stored):
            self._log_once(f"Only the newest {FILES_MAX} files of summary events are read.")
        left = bytes_max
        # In this order a large file does not delay all others.
        for file in sorted(newest, key=self._count_unread_bytes):
            try:
                left -= self._read_added(file, left, until)
            except SetupError as error:
                if error.failure.cause != "install":
                    raise
                # The file is gone, or reading it is not permitted.
                self._log_once(f"Summary events in {file.uri} are not read: {error}.")

    def _list_files(self) -> list[StoredObject]:
        """Return the event files among the first `OBJECTS_MAX` objects."""
        stored = []
        for number, file in enumerate(self._storage.list_below(self._job_dir), start=1):
            if number > OBJECTS_MAX:
                self._log_once(
                    f"Only the first {OBJECTS_MAX} objects below {self._job_dir} are searched for"
                    " summary events."
                )
                break
            if EVENT_FILE_MARK in file.name:
                stored.append(file)
        return stored

    def _read_added(self, stored: StoredObject, bytes_max: int, until: float) -> int:
        """Read what was added to a file since the last pass.

        Return the number of bytes that were read.
        """
        if stored.uri not in self._files:
            self._log(f"Reading {self._tag or 'metrics'} from the summary events in {stored.uri}.")
        file = self._files.setdefault(stored.uri, EventFile())
        read_bytes = 0
        piece_bytes = PIECE_BYTES
        while file.offset + OVERHEAD_BYTES <= stored.size and not file.is_corrupt:
            length = min(piece_bytes, stored.size - file.offset)
            if read_bytes + length > bytes_max or self._is_cancelled or self._clock() > until:
                break
            data = self._storage.read_range(stored.uri, file.offset, length)
            read_bytes += len(data)
            parsed = parse_records(data, self._tag)
            file.take(parsed)
            if parsed.problem:
                self._log(
                    f"Summary events in {stored.uri} are not read any further: {parsed.problem}."
                )
            # `incomplete`: size of the record that begins in this piece and ends behind it.
            elif parsed.incomplete > RECORD_BYTES_MAX:
                file.offset += parsed.incomplete  # skip it
            elif file.offset + parsed.incomplete > stored.size or len(data) < length:
                break  # the program has not written the rest of the record yet
            piece_bytes = max(PIECE_BYTES, parsed.incomplete)
        return read_bytes

    def _count_unread_bytes(self, stored: StoredObject) -> int:
        file = self._files.get(stored.uri)
        return stored.size if file is None else stored.size - file.offset

    def _log_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            self._log(text)


def select_newest(stored: Iterable[StoredObject]) -> list[StoredObject]:
    """Return the newest `FILES_MAX` files, the last one first."""
    return sorted(stored, key=lambda file: file.updated, reverse=True)[:FILES_MAX]
